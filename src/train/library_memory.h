// Library memory: what driver and libraries take of a GPU for themselves, as a model. Measured once
// for a kind of machine, it says the bytes of any rank.
#pragma once

#include <cstdint>
#include <string>

#include "dist/connections.h"
#include "train/rank.h"

namespace orthant {

// Of a GPU, in MiB. NCCL gives each channel of a connection buffers of its own, so that what it
// takes grows with its communicators and with the neighbours of each, and hardly with the size of a
// group.
struct LibraryMemory {
  std::int64_t libraries_mib = 0;
  std::int64_t context_mib = 0;
  std::int64_t peer_mib = 0;
  std::int64_t nccl_mib = 0;
  std::int64_t nccl_group_mib = 0;
  std::int64_t nccl_small_mib = 0;
  std::int64_t nccl_peer_mib = 0;

  template <class Visitor>
  void fields(Visitor&& v) {
    v("libraries_mib", libraries_mib, "of it what driver and libraries take for one rank, MiB");
    v("context_mib", context_mib, "of that what is taken before a kernel is loaded, MiB");
    v("peer_mib", peer_mib, "more for each other process of a host whose memory is mapped, MiB");
    v("nccl_mib", nccl_mib, "more where NCCL moves data, once, MiB");
    v("nccl_group_mib", nccl_group_mib, "and for each group of ranks, MiB");
    v("nccl_small_mib", nccl_small_mib,
      "and for each group with calls of few values, each neighbour and direction of messages, MiB");
    v("nccl_peer_mib", nccl_peer_mib,
      "and for each other rank of a host and group whose sums go from all to all, MiB");
  }
};

// Of a GPU that no machine file describes.
LibraryMemory assumed_library_memory();

// How ranks on GPUs are connected.
enum class GpuLinks : std::uint8_t {
  kNone,   // it is one rank, or they are threads of one process
  kPeers,  // mapped memory of the other processes of a host
  kNccl,
};

// The model, and what of it holds for a run.
struct Libraries {
  LibraryMemory memory = {};
  GpuLinks links = GpuLinks::kNone;
  int ranks_per_host = 1;
  bool has_context = false;  // it is taken already, and not counted
};

// What a rank without others takes once its GPU has a context.
std::int64_t module_bytes(const LibraryMemory& memory);

// Of a rank with a device of its own. Threads that share a device take it once.
std::int64_t library_bytes(const Libraries& libraries, const RankConfig& config, int rank);

// For people: "546.0 MiB context and modules, 140.0 MiB mapped memory of other ranks (7)".
std::string library_text(const Libraries& libraries, const RankConfig& config, int rank);

}  // namespace orthant
