#include "comm/cuda/peer_memory.h"

#include <algorithm>
#include <atomic>

#include <cuda.h>

#include "mem/cuda_check.h"

namespace orthant {
namespace {

constexpr std::int64_t kLine = 64;
constexpr std::uint32_t kReleased = 0x7fffffff;  // beyond every count

// A function of the driver, which is not linked.
template <class Function>
Function driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  constexpr unsigned kVersion = 12000;
  ORTHANT_CUDA(
      cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result));
#else
  ORTHANT_CUDA(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result));
#endif
  if (found == nullptr) fail_run("the NVIDIA driver has no {}: it is too old", name);
  return reinterpret_cast<Function>(found);
}

void check_driver(CUresult status, const char* asked) {
  if (status == CUDA_SUCCESS) return;
  fail_run("cuda: {}: driver error {}", asked, static_cast<int>(status));
}

}  // namespace

void PeerMemory::close() noexcept {
  for (const auto& [key, data] : opened_) {
    cudaIpcCloseMemHandle(data);
  }
  opened_.clear();
}

SharedPlace PeerMemory::place_of(const std::byte* data) {
  auto found = std::find_if(own_.begin(), own_.end(), [data](const Allocation& one) {
    return one.begin <= data && data < one.end;
  });
  if (found == own_.end()) {
    static const auto kAddressRange =
        driver_function<decltype(&cuMemGetAddressRange)>("cuMemGetAddressRange");
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    check_driver(kAddressRange(&base, &bytes, reinterpret_cast<CUdeviceptr>(data)),
                 "cuMemGetAddressRange");
    const auto* begin = reinterpret_cast<const std::byte*>(base);
    Allocation one{.begin = begin, .end = begin + bytes, .handle = {}};
    ORTHANT_CUDA(cudaIpcGetMemHandle(&one.handle, reinterpret_cast<void*>(base)));
    found = own_.insert(own_.end(), one);
  }
  return {.handle = found->handle,
          .base = reinterpret_cast<std::uint64_t>(found->begin),
          .offset = data - found->begin};
}

std::byte* PeerMemory::open(int world_rank, const SharedPlace& place) {
  void*& base = opened_[{world_rank, place.base}];
  if (base == nullptr) {
    ORTHANT_CUDA(cudaIpcOpenMemHandle(&base, place.handle, cudaIpcMemLazyEnablePeerAccess));
  }
  return static_cast<std::byte*>(base) + place.offset;
}

std::int64_t SharedFlags::bytes(int size) {
  const std::int64_t ranks = size;
  return kMostLanes * (ranks + ranks * ranks) * 2 * kLine;
}

SharedFlags::SharedFlags(std::span<std::byte> memory, int rank, int size)
    : memory_(memory),
      size_(size) {
  ORTHANT_CHECK(static_cast<std::int64_t>(memory.size()) >= bytes(size),
                "{} bytes for the flags of {} ranks, which need {}", memory.size(), size,
                bytes(size));
  for (int lane = 0; lane < kMostLanes; ++lane) {
    for (const What what : {What::kReady, What::kDone}) {
      *of_calls(lane, rank, what) = 0;
    }
    for (int other = 0; other < size; ++other) {
      *of_messages(lane, other, rank, What::kReady) = 0;
      *of_messages(lane, rank, other, What::kDone) = 0;
    }
  }
  ORTHANT_CUDA(cudaHostRegister(memory_.data(), memory_.size(), cudaHostRegisterPortable));
}

SharedFlags::~SharedFlags() {
  cudaHostUnregister(memory_.data());
}

std::uint32_t* SharedFlags::word(std::int64_t entry, What what) const {
  return reinterpret_cast<std::uint32_t*>(memory_.data() +
                                          (2 * entry + (what == What::kDone ? 1 : 0)) * kLine);
}

std::uint32_t* SharedFlags::of_calls(int lane, int rank, What what) const {
  ORTHANT_CHECK(lane < kMostLanes, "lane {} of flags; there are {}", lane, kMostLanes);
  const std::int64_t ranks = size_;
  return word(lane * (ranks + ranks * ranks) + rank, what);
}

std::uint32_t* SharedFlags::of_messages(int lane, int from, int to, What what) const {
  ORTHANT_CHECK(lane < kMostLanes, "lane {} of flags; there are {}", lane, kMostLanes);
  const std::int64_t ranks = size_;
  return word(lane * (ranks + ranks * ranks) + ranks + from * ranks + to, what);
}

void SharedFlags::write(cudaStream_t stream, std::uint32_t* word, std::int64_t count) {
  static const auto kWrite =
      driver_function<decltype(&cuStreamWriteValue32)>("cuStreamWriteValue32");
  check_driver(kWrite(stream, reinterpret_cast<CUdeviceptr>(word), static_cast<cuuint32_t>(count),
                      CU_STREAM_WRITE_VALUE_DEFAULT),
               "cuStreamWriteValue32");
}

void SharedFlags::wait(cudaStream_t stream, std::uint32_t* word, std::int64_t count) {
  static const auto kWait = driver_function<decltype(&cuStreamWaitValue32)>("cuStreamWaitValue32");
  check_driver(kWait(stream, reinterpret_cast<CUdeviceptr>(word), static_cast<cuuint32_t>(count),
                     CU_STREAM_WAIT_VALUE_GEQ),
               "cuStreamWaitValue32");
}

void SharedFlags::release_all() {
  for (std::size_t at = 0; at < memory_.size(); at += kLine) {
    std::atomic_ref(*reinterpret_cast<std::uint32_t*>(memory_.data() + at)).store(kReleased);
  }
}

}  // namespace orthant
