#include "train/fit.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/text.h"
#include "data/loader.h"
#include "train/host_memory.h"

namespace orthant {
namespace {

// "activations 60.1 GiB, optimizer 20.0 GiB, gradients 9.8 GiB": the largest three.
std::string largest_classes(const Fit& fit) {
  struct Named {
    std::string_view name;
    std::int64_t bytes;
  };
  std::vector<Named> all = {{"libraries", fit.libraries}};
  for (int i = 0; i < kNumMemClasses; ++i) {
    all.push_back({name_of(static_cast<MemClass>(i)), fit.classes[static_cast<std::size_t>(i)]});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Named& a, const Named& b) { return a.bytes > b.bytes; });
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < 3; ++i) {
    parts.push_back(fmt::format("{} {}", all[i].name, format_bytes(all[i].bytes)));
  }
  return join(parts);
}

void add(ClassBytes& sum, const ClassBytes& part) {
  std::transform(sum.begin(), sum.end(), part.begin(), sum.begin(), std::plus<>());
}

// Ranks r .. r + n - 1 of the fullest host.
Fit fullest_host(const Job& job, const RunPlan& plan, const MemoryLimit& limit) {
  const int num_ranks = static_cast<int>(plan.kind_of.size());
  Fit fullest;
  for (int first = 0; first < num_ranks; first += limit.ranks_per_host) {
    Fit host{.needed = job.logits_bytes, .where = {}};
    const int last = std::min(num_ranks, first + limit.ranks_per_host);
    for (int rank = first; rank < last; ++rank) {
      const DryMemory& memory = plan.of(rank);
      host.needed += host_bytes(job, memory);
      add(host.classes, host_classes(job, memory));
      if (!limit.devices.empty()) continue;
      host.needed += memory.whole.device_bytes();
      add(host.classes, memory.whole.by_class());
    }
    host.where = fmt::format("the {} ranks of {}", last - first,
                             last - first == num_ranks ? "this run" : "one host");
    if (host.needed > fullest.needed) fullest = host;
  }
  fullest.available = limit.host_bytes;
  fullest.fits = limit.host_bytes == 0 || fullest.needed <= fullest.available;
  return fullest;
}

// Of the host whose first rank is `first`: what the ranks on one device need.
Fit device_of_host(const RankConfig& config, const RunPlan& plan, const MemoryLimit& limit,
                   int first, std::size_t device) {
  const int num_ranks = static_cast<int>(plan.kind_of.size());
  const int last = std::min(num_ranks, first + limit.ranks_per_host);
  const int begin = first + static_cast<int>(device);
  Fit fit{.available = limit.devices[device], .where = {}};
  int sharing = 0;
  for (int rank = begin; rank < last; rank += static_cast<int>(limit.devices.size())) {
    const MemoryPlan& memory = plan.of(rank).whole;
    fit.needed += memory.device_bytes();
    add(fit.classes, memory.by_class());
    ++sharing;
  }
  if (sharing > 0) {
    fit.libraries = library_bytes(limit.libraries, config, begin);
    fit.needed += fit.libraries;
  }
  const auto coords = mesh_shape(config.layout).coords_of(begin < last ? begin : first);
  fit.where = sharing > 1
                  ? fmt::format("the {} ranks that share device {}", sharing, device)
                  : fmt::format("a rank of stage {}", coords[static_cast<std::size_t>(Axis::kPp)]);
  fit.fits = fit.needed <= fit.available;
  return fit;
}

// The one that lacks most, or has least left.
Fit fullest_device(const Job& job, const RunPlan& plan, const MemoryLimit& limit) {
  const int num_ranks = static_cast<int>(plan.kind_of.size());
  const RankConfig config = rank_config(job);
  std::optional<Fit> fullest;
  for (int first = 0; first < num_ranks; first += limit.ranks_per_host) {
    for (std::size_t device = 0; device < limit.devices.size(); ++device) {
      const Fit fit = device_of_host(config, plan, limit, first, device);
      if (fit.needed == 0) continue;
      if (!fullest || fit.needed - fit.available > fullest->needed - fullest->available) {
        fullest = fit;
      }
    }
  }
  return fullest.value_or(Fit{.where = {}});
}

}  // namespace

MemoryLimit limit_of_this_host(const LayoutConfig& layout) {
  return {.host_bytes = available_host_bytes(), .ranks_per_host = layout.ranks};
}

std::int64_t feed_bytes(const Job& job) {
  const RunConfig& config = job.config;
  const BatchGeometry step = {.global_batch = config.max_global_batch(),
                              .micro_batch = config.layout.micro_batch,
                              .dp = config.layout.dp(),
                              .dp_rank = 0,
                              .seq_length = config.train.seq_length,
                              .by_document = !config.data.cross_documents};
  constexpr std::int64_t kFileBuffers = 1 << 19;  // of load and save
  const std::int64_t row = config.train.seq_length + 1;
  const std::int64_t micro_rows = config.layout.micro_batch;
  const bool trains = job.purpose == Purpose::kTrain;
  const auto sources = static_cast<std::int64_t>(config.valid_prefixes().size());
  const std::int64_t batches =
      trains ? (config.train.eval_interval > 0 ? sources : 0) : config.train.eval_steps;
  const std::int64_t eval_rows = std::int64_t{eval_micros(job)} * micro_rows * batches;
  return kFileBuffers + (trains ? Loader::buffer_bytes(step) : 0) +
         eval_rows * (row * (step.by_document ? 8 : 4) + 8) +  // tokens, places and positions
         micro_rows * config.train.seq_length * 4;
}

std::int64_t host_bytes(const Job& job, const DryMemory& memory) {
  return feed_bytes(job) + memory.whole.host_bytes() + memory.link_bytes(job.transport);
}

ClassBytes host_classes(const Job& job, const DryMemory& memory) {
  ClassBytes classes = memory.whole.host_by_class();
  classes[static_cast<std::size_t>(MemClass::kCommunication)] += memory.link_bytes(job.transport);
  return classes;
}

std::int64_t fullest_bytes(const Job& job, const RunPlan& plan, const Libraries& libraries) {
  const RankConfig config = rank_config(job);
  std::int64_t most = 0;
  for (int rank = 0; rank < config.layout.ranks; ++rank) {
    most =
        std::max(most, plan.of(rank).whole.device_bytes() + library_bytes(libraries, config, rank));
  }
  return most;
}

Fit check_fit(const Job& job, const RunPlan& plan, const MemoryLimit& limit) {
  Fit host = fullest_host(job, plan, limit);
  if (limit.devices.empty()) return host;
  const Fit device = fullest_device(job, plan, limit);
  return device.fits && !host.fits ? host : device;
}

std::string explain_misfit(const Job& job, const RunPlan& plan, const MemoryLimit& limit) {
  const Fit fit = check_fit(job, plan, limit);
  std::string text = fmt::format("{}: {} needed, {} free ({})", fit.where, format_bytes(fit.needed),
                                 format_bytes(fit.available), largest_classes(fit));
  const std::vector<Remedy> remedies = find_remedies(job, plan, limit);
  if (remedies.empty()) return text + "; no option lowers it: use more ranks or a smaller model";
  text += remedies.front().fits ? "; what makes it fit:"
                                : "; nothing makes it fit on these ranks, but these save:";
  std::vector<std::vector<std::string>> rows;
  rows.reserve(remedies.size());
  for (const Remedy& remedy : remedies) {
    rows.push_back({"  --" + join(remedy.options, " --"),
                    fmt::format("{} less", format_bytes(remedy.saved)),
                    remedy.fits ? "fits" : "does not fit yet", remedy.cost});
  }
  std::string table = format_table(rows);
  while (table.ends_with('\n')) {
    table.pop_back();
  }
  return text + "\n" + table;
}

void require_fit(const Job& job, const RunPlan& plan, const MemoryLimit& limit) {
  if (check_fit(job, plan, limit).fits) return;
  throw Error(Fault::kPlan, explain_misfit(job, plan, limit));
}

}  // namespace orthant
