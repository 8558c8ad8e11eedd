// PeerMemory: memory of other processes' GPUs of this host, mapped here, and flags that streams of
// all of them write and wait for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "comm/device_links.h"

namespace orthant {

// Where a tensor of a process is, for others.
struct SharedPlace {
  cudaIpcMemHandle_t handle{};  // of the allocation that it lies in
  std::uint64_t base = 0;       // of the allocation in its own process: names it there
  std::int64_t offset = 0;      // of the tensor in the allocation
};

class PeerMemory {
 public:
  PeerMemory() = default;
  ~PeerMemory() { close(); }
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  SharedPlace place_of(const std::byte* data);
  // Mapped once for each allocation. Throws where that cannot be.
  std::byte* open(int world_rank, const SharedPlace& place);
  // What was mapped. An allocation must not be freed while others have it mapped.
  void close() noexcept;

 private:
  struct Allocation {
    const std::byte* begin;
    const std::byte* end;
    cudaIpcMemHandle_t handle;
  };
  std::vector<Allocation> own_;
  std::map<std::pair<int, std::uint64_t>, void*> opened_;  // by world rank and base
};

// Words of memory that the processes of a host share. A word counts calls: streams write it and
// wait until it has come to a number.
class SharedFlags {
 public:
  static std::int64_t bytes(int size);  // that `size` ranks need
  // `memory` begins at a page and stays until this goes; this rank sets its own words to zero.
  SharedFlags(std::span<std::byte> memory, int rank, int size);
  ~SharedFlags();
  SharedFlags(const SharedFlags&) = delete;
  SharedFlags& operator=(const SharedFlags&) = delete;

  enum class What : std::uint8_t { kReady, kDone };
  // Of a lane's collectives, written by `rank`.
  std::uint32_t* of_calls(int lane, int rank, What what) const;
  // Of a lane's messages of an ordered pair: kReady is written by `to`, kDone by `from`.
  std::uint32_t* of_messages(int lane, int from, int to, What what) const;

  static void write(cudaStream_t stream, std::uint32_t* word, std::int64_t count);
  static void wait(cudaStream_t stream, std::uint32_t* word, std::int64_t count);
  void release_all();  // whoever waits goes on

  static constexpr int kMostLanes = 16;

 private:
  std::uint32_t* word(std::int64_t entry, What what) const;
  std::span<std::byte> memory_;
  int size_;
};

}  // namespace orthant
