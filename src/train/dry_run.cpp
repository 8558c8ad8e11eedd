#include "train/dry_run.h"

#include <algorithm>

#include "base/check.h"
#include "comm/backends.h"

namespace orthant {
namespace {

// Points every entry's `where` at names that outlive the rank.
void keep_names(DryRun& run, std::span<const Entry> entries) {
  run.step.assign(entries.begin(), entries.end());
  for (const Entry& entry : entries) {
    if (std::find(run.names.begin(), run.names.end(), entry.where) == run.names.end()) {
      run.names.emplace_back(entry.where);
    }
  }
  for (Entry& entry : run.step) {
    entry.where = *std::find(run.names.begin(), run.names.end(), entry.where);
  }
}

// A rank on meta, and what it stands on.
struct MetaRank {
  std::unique_ptr<Device> device;
  Rank rank;

  MetaRank(const RankConfig& config, int number, Programs* programs)
      : device(make_meta_device()),
        rank(config,
             {.device = *device,
              .ops = "meta",
              .join_world =
                  [&](const CommParts& parts) {
                    return make_meta_world(number, config.layout.ranks, parts);
                  },
              .num_threads = 1,
              .programs = programs},
             std::nullopt) {}
};

// A group's collectives go between all of its ranks, its messages between those that name each
// other.
class LinkCounter {
 public:
  void add(std::span<const Entry> entries) {
    for (const Entry& entry : entries) {
      if (entry.lane < Lane::kFirstComm || entry.starts.done()) continue;
      const auto lane = static_cast<std::size_t>(entry.lane);
      if (groups_.size() <= lane) groups_.resize(lane + 1);
      Group& group = groups_[lane];
      group.size = entry.group_size;
      if (entry.what != "send" && entry.what != "recv") {
        group.has_collectives = true;
      } else if (std::find(group.peers.begin(), group.peers.end(), entry.peer) ==
                 group.peers.end()) {
        group.peers.push_back(entry.peer);
      }
    }
  }
  std::vector<DryMemory::Links> links() const {
    std::vector<DryMemory::Links> all;
    for (const Group& group : groups_) {
      const int others = group.size - 1;
      const int count = (group.has_collectives ? others : 0) + static_cast<int>(group.peers.size());
      if (count > 0) all.push_back({.share = others, .count = count});
    }
    return all;
  }

 private:
  struct Group {
    int size = 1;
    bool has_collectives = false;
    std::vector<int> peers = {};
  };
  std::vector<Group> groups_;  // by lane
};

DryMemory run_dry(const RankConfig& config, int rank, int eval_micros, const StepReader& read,
                  Programs* programs) {
  MetaRank owner(config, rank, programs);
  Rank& meta = owner.rank;
  DryMemory memory;
  LinkCounter counter;
  const auto end_phase = [&](Phase phase) {
    const MemoryPlan marks = meta.memory();
    memory.phases[static_cast<std::size_t>(phase)] = marks.by_class();
    raise(memory.whole, marks);
    meta.begin_phase();
  };
  end_phase(Phase::kLoad);
  if (config.purpose == Purpose::kTrain) {
    for (const int micros : config.other_micros) {
      meta.step(1, 0.0, {}, micros);
    }
    meta.step(1, 0.0, {}, config.max_micros);
    // What is offloaded is updated behind the forward of the next step: that one is like all
    // others.
    if (config.layout.offload == "optimizer") meta.step(2, 0.0, {}, config.max_micros);
    counter.add(meta.ledger().entries());
    if (read) read(meta.ledger().entries());
    end_phase(Phase::kTrain);
  }
  if (eval_micros > 0) {
    meta.evaluate({}, eval_micros);
    counter.add(meta.ledger().entries());
    end_phase(Phase::kEvaluate);
  }
  if (config.purpose == Purpose::kTrain) end_phase(Phase::kSave);
  memory.links = counter.links();
  return memory;
}

}  // namespace

std::int64_t DryMemory::link_bytes(Transport transport) const {
  std::int64_t bytes = 0;
  for (const Links& of : links) {
    bytes += of.count * orthant::link_bytes(transport, of.share);
  }
  return bytes;
}

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kLoad: return "load";
    case Phase::kTrain: return "train";
    case Phase::kEvaluate: return "evaluate";
    case Phase::kSave: return "save";
  }
  return "?";
}

DryMemory dry_run_memory(const RankConfig& config, int rank, int eval_micros,
                         const StepReader& read, Programs* programs) {
  try {
    return run_dry(config, rank, eval_micros, read, programs);
  } catch (const Error& error) {
    if (error.fault() != Fault::kPlan) throw;
    throw Error(Fault::kPlan,
                fmt::format("rank {} needs more memory than can be planned for; lower "
                            "layout.micro_batch={} or train.seq_length={}",
                            rank, config.layout.micro_batch, config.seq_length));
  }
}

std::vector<ClassBytes> trace_memory(const RankConfig& config, int rank) {
  MetaRank owner(config, rank, nullptr);
  std::vector<ClassBytes> marks;
  const bool is_second = config.layout.offload == "optimizer";  // as in run_dry()
  if (is_second) owner.rank.step(1, 0.0, {}, config.max_micros);
  owner.rank.begin_phase();
  owner.rank.trace_memory(marks);
  owner.rank.step(is_second ? 2 : 1, 0.0, {}, config.max_micros);
  // What was in use before an entry was recorded belongs to the one before it.
  marks.push_back(owner.rank.memory().by_class());
  marks.erase(marks.begin());
  return marks;
}

DryRun dry_run(const RankConfig& config, int rank, int eval_micros) {
  DryRun run;
  const auto keep = [&run](std::span<const Entry> step) {
    keep_names(run, step);
  };
  run.memory = dry_run_memory(config, rank, eval_micros, keep, nullptr).whole;
  return run;
}

}  // namespace orthant
