#include "train/library_memory.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "model/build.h"

namespace orthant {
namespace {

struct Part {
  std::int64_t mib;  // of all of them
  int count;
  const char* what;  // with the count
};

std::vector<Part> parts_of(const Libraries& libraries, const RankConfig& config, int rank) {
  const LibraryMemory& memory = libraries.memory;
  std::vector<Part> parts;
  const auto add = [&parts](std::int64_t mib_each, int count, const char* what) {
    if (mib_each * count > 0) parts.push_back({mib_each * count, count, what});
  };
  if (libraries.has_context) {
    add(memory.libraries_mib - memory.context_mib, 1, "modules");
  } else {
    add(memory.libraries_mib, 1, "context and modules");
  }
  if (libraries.links == GpuLinks::kPeers) {
    const int others = std::min(libraries.ranks_per_host, config.layout.ranks) - 1;
    add(memory.peer_mib, others, "mapped memory of other ranks ({})");
  }
  if (libraries.links == GpuLinks::kNccl) {
    const MeshShape shape = mesh_shape(config.layout);
    const int copies = kv_copies(config.model, config.layout);
    const DirectSums sums = {.in_rank_order = config.target == Target::kCudaDeterministic,
                             .has_16_bit_activations = size_of(config.compute) == 2,
                             .has_16_bit_gradients = size_of(config.grads) == 2};
    const Connections of = connections_of(shape, rank, copies);
    add(memory.nccl_mib, 1, "NCCL");
    add(memory.nccl_group_mib, of.large_groups, "its groups ({})");
    add(memory.nccl_small_mib, of.small_groups, "groups of few values ({})");
    add(memory.nccl_small_mib, of.pairs, "lines of messages ({})");
    const DirectPeers peers = direct_peers_of(shape, rank, copies, sums, libraries.ranks_per_host);
    constexpr std::int64_t kSmallShare = 8;  // their groups have 4 of NCCL's 32 channels
    add(memory.nccl_peer_mib, peers.large, "peers of the host in sums from all to all ({})");
    add(memory.nccl_peer_mib / kSmallShare, peers.small, "such peers in sums of few values ({})");
  }
  return parts;
}

}  // namespace

// Somewhat more for modules than an H200 was seen to take, and for NCCL what it took of one.
LibraryMemory assumed_library_memory() {
  return {.libraries_mib = 768,
          .context_mib = 512,
          .peer_mib = 32,
          .nccl_mib = 700,
          .nccl_group_mib = 480,
          .nccl_small_mib = 127,
          .nccl_peer_mib = 448};
}

std::int64_t module_bytes(const LibraryMemory& memory) {
  return (memory.libraries_mib - memory.context_mib) << 20;
}

std::int64_t library_bytes(const Libraries& libraries, const RankConfig& config, int rank) {
  std::int64_t mib = 0;
  for (const Part& part : parts_of(libraries, config, rank)) {
    mib += part.mib;
  }
  return mib << 20;
}

std::string library_text(const Libraries& libraries, const RankConfig& config, int rank) {
  std::vector<std::string> texts;
  for (const Part& part : parts_of(libraries, config, rank)) {
    texts.push_back(format_bytes(part.mib << 20) + " " +
                    fmt::format(fmt::runtime(part.what), part.count));
  }
  return join(texts);
}

}  // namespace orthant
