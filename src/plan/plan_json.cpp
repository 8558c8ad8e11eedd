// plan_json(): a plan for scripts.
#include <algorithm>

#include "base/json.h"
#include "plan/plan.h"

namespace orthant {
namespace {

OrderedJson classes_json(const ClassBytes& classes) {
  OrderedJson json = OrderedJson::object();
  for (int i = 0; i < kNumMemClasses; ++i) {
    json[std::string(name_of(static_cast<MemClass>(i)))] = classes[static_cast<std::size_t>(i)];
  }
  return json;
}

OrderedJson classes_json(const ClassBytes& classes, std::int64_t libraries) {
  OrderedJson json = classes_json(classes);
  json["libraries"] = libraries;
  return json;
}

OrderedJson host_json(const Job& job, const DryMemory& memory) {
  OrderedJson json = classes_json(host_classes(job, memory));
  json["data"] = feed_bytes(job);
  return json;
}

OrderedJson rank_json(const Plan& plan, const RankConfig& config, int rank) {
  const auto coords = mesh_shape(plan.config().layout).coords_of(rank);
  const Job& job = plan.request.job;
  const DryMemory& dry = plan.memory.of(rank);
  const MemoryPlan& memory = dry.whole;
  const std::int64_t libraries = library_bytes(plan.limit.libraries, config, rank);
  return {{"rank", rank},
          {"pp", coords[static_cast<std::size_t>(Axis::kPp)]},
          {"dp", coords[static_cast<std::size_t>(Axis::kDp)]},
          {"tp", coords[static_cast<std::size_t>(Axis::kTp)]},
          {"device_bytes", memory.device_bytes() + libraries},
          {"host_bytes", host_bytes(job, dry)},
          {"classes", classes_json(memory.by_class(), libraries)},
          {"host_classes", host_json(job, dry)}};
}

OrderedJson ranks_json(const Plan& plan) {
  const RankConfig config = rank_config(plan.request.job);
  OrderedJson ranks = OrderedJson::array();
  for (int rank = 0; rank < plan.config().layout.ranks; ++rank) {
    ranks.push_back(rank_json(plan, config, rank));
  }
  return ranks;
}

OrderedJson phases_json(const Plan& plan) {
  OrderedJson kinds = OrderedJson::array();
  for (std::size_t kind = 0; kind < plan.memory.kinds.size(); ++kind) {
    OrderedJson phases = OrderedJson::object();
    for (int i = 0; i < kNumPhases; ++i) {
      phases[std::string(name_of(static_cast<Phase>(i)))] =
          classes_json(plan.memory.kinds[kind].phases[static_cast<std::size_t>(i)], 0);
    }
    const auto& kind_of = plan.memory.kind_of;
    const auto first = std::find(kind_of.begin(), kind_of.end(), static_cast<int>(kind));
    kinds.push_back({{"first_rank", first - kind_of.begin()},
                     {"ranks", std::count(first, kind_of.end(), static_cast<int>(kind))},
                     {"phases", phases}});
  }
  return kinds;
}

OrderedJson messages_json(const Plan& plan) {
  OrderedJson groups = OrderedJson::array();
  for (const Traffic& traffic : plan.traffic) {
    groups.push_back({{"group", traffic.group},
                      {"ranks", traffic.group_size},
                      {"calls", traffic.calls},
                      {"bytes", traffic.bytes},
                      {"sent_bytes", traffic.sent}});
  }
  return groups;
}

OrderedJson zero_json(const Plan& plan) {
  OrderedJson stages = OrderedJson::array();
  for (const ZeroCost& cost : plan.zero) {
    if (!cost.refused.empty()) {
      stages.push_back({{"stage", cost.stage}, {"refused", cost.refused}});
      continue;
    }
    stages.push_back({{"stage", cost.stage},
                      {"device_bytes", cost.device_bytes},
                      {"calls", cost.calls},
                      {"sent_bytes", cost.sent}});
  }
  return stages;
}

OrderedJson remedies_json(const Plan& plan) {
  OrderedJson remedies = OrderedJson::array();
  if (plan.fit.fits) return remedies;
  for (const Remedy& remedy : find_remedies(plan.request.job, plan.memory, plan.limit)) {
    remedies.push_back({{"options", remedy.options},
                        {"saved_bytes", remedy.saved},
                        {"cost", remedy.cost},
                        {"fits", remedy.fits}});
  }
  return remedies;
}

}  // namespace

std::string plan_json(const Plan& plan) {
  OrderedJson mismatches = OrderedJson::array();
  for (const Mismatch& mismatch : plan.match.mismatches) {
    mismatches.push_back(
        {{"rank", mismatch.rank}, {"place", mismatch.place}, {"what", mismatch.what}});
  }
  OrderedJson json = {{"fits", plan.fit.fits},
                      {"step_ms", nullptr},
                      {"bubble", plan.bubble},
                      {"deadlock_free", plan.match.is_whole()},
                      {"deadlock", plan.match.deadlock},
                      {"mismatches", mismatches},
                      {"machine", plan.request.machine.name},
                      {"parameters", count_parameters(plan.config().model)},
                      {"needed_bytes", plan.fit.needed},
                      {"available_bytes", plan.fit.available}};
  if (plan.time) {
    json["step_ms"] = plan.time->step_s * 1e3;
    json["tokens_per_s"] = plan.time->tokens_per_s;
    json["mfu"] = plan.time->mfu;
    OrderedJson waits = OrderedJson::object();
    for (const auto& [group, seconds] : plan.time->waits) {
      waits[group] = seconds * 1e3;
    }
    json["exposed_ms"] = waits;
  }
  json["messages"] = messages_json(plan);
  json["zero"] = zero_json(plan);
  json["remedies"] = remedies_json(plan);
  json["notes"] = plan.advice;
  json["kinds"] = phases_json(plan);
  json["ranks"] = ranks_json(plan);
  return json.dump(1);
}

}  // namespace orthant
