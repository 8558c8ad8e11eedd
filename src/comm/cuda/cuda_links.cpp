#include "comm/cuda/cuda_links.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "comm/cuda/nccl_world.h"
#include "comm/cuda/peer_carrier.h"
#include "comm/cuda/queue_watch.h"
#include "comm/host.h"
#include "comm/stream/stream_communicator.h"
#include "mem/cuda_check.h"

namespace orthant {
namespace {

// A rank's GPU, the same words in all processes.
struct GpuPlace {
  std::array<char, 128> host{};
  std::array<char, 32> bus_id{};
  friend bool operator==(const GpuPlace&, const GpuPlace&) = default;
};

GpuPlace own_place() {
  GpuPlace place;
  const std::string host = host_of(read_environment());
  std::copy_n(host.begin(), std::min(host.size(), place.host.size() - 1), place.host.begin());
  int gpu = 0;
  ORTHANT_CUDA(cudaGetDevice(&gpu));
  ORTHANT_CUDA(
      cudaDeviceGetPCIBusId(place.bus_id.data(), static_cast<int>(place.bus_id.size()), gpu));
  return place;
}

// What ranks tell each other by the host, before anything else.
class HostTalk {
 public:
  explicit HostTalk(StreamRank& rank)
      : size_(rank.size()),
        rank_(rank.rank()),
        world_(rank, "links", members(rank.size()), rank.rank(), 0,
               {.ledger = ledger_, .in_flight = in_flight_}) {}

  template <class T>
  std::vector<T> all_of(const T& mine) {
    std::vector<T> all(static_cast<std::size_t>(size_));
    all[static_cast<std::size_t>(rank_)] = mine;
    if (size_ == 1) return all;
    const Tensor whole{.data = reinterpret_cast<std::byte*>(all.data()),
                       .shape = {static_cast<std::int64_t>(all.size() * sizeof(T))},
                       .dtype = DType::kU8};
    const Where where(ledger_, "links");
    world_.all_gather(whole, whole.flat(rank_ * static_cast<std::int64_t>(sizeof(T)),
                                        static_cast<std::int64_t>(sizeof(T))));
    return all;
  }
  bool all_agree(bool mine) {
    for (const char one : all_of<char>(mine ? 1 : 0)) {
      if (one == 0) return false;
    }
    return true;
  }

 private:
  static std::vector<int> members(int size) {
    std::vector<int> all(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
      all[static_cast<std::size_t>(r)] = r;
    }
    return all;
  }
  int size_;
  int rank_;
  Ledger ledger_;
  InFlight in_flight_;
  StreamCommunicator world_;
};

void require_own_gpus(const std::vector<GpuPlace>& places) {
  for (std::size_t a = 0; a < places.size(); ++a) {
    for (std::size_t b = a + 1; b < places.size(); ++b) {
      if (places[a] != places[b]) continue;
      fail_user(
          "ranks {} and {} are processes on one GPU, {}; start at most as many processes on a host "
          "as it "
          "has GPUs, or run the ranks as threads, without a launcher, which may share them",
          a, b, places[a].bus_id.data());
    }
  }
}

bool are_on_one_host(const std::vector<GpuPlace>& places) {
  return std::all_of(places.begin(), places.end(), [&places](const GpuPlace& place) {
    return place.host == places.front().host;
  });
}

// Of GPUs of one host.
bool can_reach(const std::vector<GpuPlace>& places, int rank) {
  int own = 0;
  ORTHANT_CUDA(cudaGetDevice(&own));
  for (std::size_t r = 0; r < places.size(); ++r) {
    if (static_cast<int>(r) == rank) continue;
    int other = 0;
    int reaches = 0;
    if (cudaDeviceGetByPCIBusId(&other, places[r].bus_id.data()) != cudaSuccess ||
        cudaDeviceCanAccessPeer(&reaches, own, other) != cudaSuccess || reaches == 0) {
      cudaGetLastError();  // it is said by the answer
      return false;
    }
  }
  return true;
}

// What the driver refuses is said by the answer.
template <class Act>
bool works(Act&& act) {
  try {
    act();
    return true;
  } catch (const Error&) {
    cudaGetLastError();
    return false;
  }
}

// Memory that is shared for a try.
class Probe {
 public:
  Probe() { ORTHANT_CUDA(cudaMalloc(&data_, kBytes)); }
  ~Probe() { cudaFree(data_); }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  const std::byte* data() const { return static_cast<const std::byte*>(data_); }

 private:
  static constexpr std::size_t kBytes = std::size_t{2} << 20;
  void* data_ = nullptr;
};

class CudaLinks final : public DeviceLinks {
 public:
  CudaLinks(StreamRank& rank, const CommParts& parts)
      : rank_(rank),
        ops_(static_cast<cudaStream_t>(parts.queue)),
        watch_(
            rank, [this] { release(); }, [this] { return find_broken(); }) {
    HostTalk talk(rank);
    const std::vector<GpuPlace> places = talk.all_of(own_place());
    require_own_gpus(places);
    if (!parts.prefers_nccl) map_peers(talk, places);
    if (flags_ != nullptr) return;
    auto nccl = make_nccl_world(ops_, watch_, parts.rank_order);
    const std::lock_guard lock(mutex_);
    nccl_ = std::move(nccl);
  }

  std::unique_ptr<DeviceCarrier> carrier(LinkedGroup group) override {
    if (nccl_ != nullptr) return nccl_->carrier(std::move(group));
    return std::make_unique<PeerCarrier>(
        PeerCarrier::Parts{.watch = watch_, .memory = memory_, .flags = *flags_, .ops = ops_},
        std::move(group));
  }
  void close() override {
    ORTHANT_CUDA(cudaDeviceSynchronize());
    HostTalk talk(rank_);
    talk.all_agree(true);  // no GPU reaches for memory of another after this
    memory_.close();
    {
      const std::lock_guard lock(mutex_);
      if (nccl_ != nullptr) nccl_->abort_all();
    }
    talk.all_agree(true);  // nobody maps what goes now
  }

  bool connects_by_calls() const override { return nccl_ != nullptr; }
  std::string text() const override {
    return nccl_ != nullptr ? "NCCL " + nccl_->version() : "mapped memory of peers";
  }

 private:
  // Mapped memory is used when every rank can map that of all others.
  void map_peers(HostTalk& talk, const std::vector<GpuPlace>& places) {
    const std::span<std::byte> words = rank_.wires().shared_flags();
    const bool may = are_on_one_host(places) && !words.empty() && can_reach(places, rank_.rank());
    if (!talk.all_agree(may)) return;
    const Probe probe;
    PeerMemory tried;
    SharedPlace mine;
    const bool is_shared = works([&] { mine = tried.place_of(probe.data()); });
    const std::vector<SharedPlace> probes = talk.all_of(mine);
    const bool is_mapped = is_shared && works([&] {
                             for (int r = 0; r < rank_.size(); ++r) {
                               if (r != rank_.rank())
                                 tried.open(r, probes[static_cast<std::size_t>(r)]);
                             }
                           });
    tried.close();
    // The probes go when nobody has them mapped any more.
    if (!talk.all_agree(is_mapped)) return;
    ORTHANT_CUDA(
        cudaDeviceSynchronize());  // nothing that an earlier world has queued writes a flag
    auto flags = std::make_unique<SharedFlags>(words, rank_.rank(), rank_.size());
    talk.all_agree(true);  // all words are zero before one is written
    const std::lock_guard lock(mutex_);
    flags_ = std::move(flags);
  }

  void release() {
    const std::lock_guard lock(mutex_);
    if (flags_ != nullptr) flags_->release_all();
    if (nccl_ != nullptr) nccl_->abort_all();
  }

  std::optional<BrokenLink> find_broken() {
    const std::lock_guard lock(mutex_);
    return nccl_ != nullptr ? nccl_->find_broken() : std::nullopt;
  }

  StreamRank& rank_;
  cudaStream_t ops_;
  std::mutex mutex_;  // of what the watch looks at and lets go
  PeerMemory memory_;
  std::unique_ptr<SharedFlags> flags_;  // null: by NCCL
  std::unique_ptr<NcclWorld> nccl_;
  QueueWatch watch_;
};

}  // namespace

std::unique_ptr<DeviceLinks> make_cuda_links(StreamRank& rank, const CommParts& parts) {
  return std::make_unique<CudaLinks>(rank, parts);
}

}  // namespace orthant
