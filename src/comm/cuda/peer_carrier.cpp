#include "comm/cuda/peer_carrier.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "comm/cuda/reduce_kernel.h"
#include "comm/cuda/split.h"
#include "mem/cuda_check.h"

namespace orthant {
namespace {

using Kind = Call::Kind;
using What = SharedFlags::What;

// Up to this size one kernel reads what it adds from the other GPUs: it is at work for less time
// than copies take to begin.
constexpr std::int64_t kDirectBytes = std::int64_t{1} << 20;

static_assert(sizeof(SharedPlace) <= sizeof(Posting));

// The tensor of a call that other ranks read or write.
const Tensor& reached(const Call& call) {
  return call.kind == Kind::kReduceScatter ? call.in : call.out;
}

// From here on a copy is made in two halves.
constexpr std::int64_t kWideBytes = std::int64_t{4} << 20;

void copy_by_one(std::byte* to, const std::byte* from, std::int64_t bytes, cudaStream_t stream) {
  if (to == from || bytes == 0) return;
  ORTHANT_CUDA(
      cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream));
}

class Event {
 public:
  Event() { ORTHANT_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) { ORTHANT_CUDA(cudaEventRecord(event_, stream)); }
  void wait(cudaStream_t stream) { ORTHANT_CUDA(cudaStreamWaitEvent(stream, event_, 0)); }

 private:
  cudaEvent_t event_ = nullptr;
};

class Stream {
 public:
  Stream() { ORTHANT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace

// Copies of a stream by two copy engines, where it is worth it.
class PeerCarrier::Halves {
 public:
  void copy(std::byte* to, const std::byte* from, std::int64_t bytes, cudaStream_t stream) {
    const std::int64_t half = bytes / 2 / Split::kLine * Split::kLine;
    begun_.record(stream);
    begun_.wait(second_.get());
    copy_by_one(to, from, half, stream);
    copy_by_one(to + half, from + half, bytes - half, second_.get());
    ended_.record(second_.get());
    ended_.wait(stream);
  }

 private:
  Stream second_;
  Event begun_;
  Event ended_;
};

struct PeerCarrier::Helpers {
  static constexpr std::size_t kBuffers = 2;
  Halves messages;
  Halves puts;
  Halves gets;
  // The next piece of a sum comes while this one is added.
  Stream fetches;
  std::array<Event, kBuffers> filled;
  std::array<Event, kBuffers> summed;
};

PeerCarrier::PeerCarrier(const Parts& parts, LinkedGroup group)
    : parts_(parts),
      group_(std::move(group)),
      sends_(size()),
      receives_(size()),
      places_(size()),
      inputs_(size()) {}

PeerCarrier::~PeerCarrier() = default;

WatchedQueue& PeerCarrier::queue_of(const Call& call) {
  const auto peer = static_cast<std::size_t>(std::max(call.peer, 0));
  std::unique_ptr<WatchedQueue>& queue = call.kind == Kind::kSend   ? sends_[peer]
                                         : call.kind == Kind::kRecv ? receives_[peer]
                                                                    : calls_;
  if (queue == nullptr) {
    std::vector<int> peers = {group_.members[peer]};
    if (!is_message(call.kind)) {
      peers = group_.members;
      peers.erase(peers.begin() + group_.rank);
    }
    queue =
        std::make_unique<WatchedQueue>(parts_.watch, parts_.ops, std::move(peers), group_.title);
  }
  return *queue;
}

void PeerCarrier::post(const Call& call, Posting& mine) {
  queue_of(call)->post(call);
  const Tensor& tensor = reached(call);
  if (call.kind == Kind::kSend || tensor.bytes() == 0) return;
  const SharedPlace place = parts_.memory.place_of(tensor.data);
  std::memcpy(mine.bytes.data(), &place, sizeof(place));
}

void PeerCarrier::wait(const Call& call) {
  queue_of(call)->wait(call);
}

bool PeerCarrier::queue(const Call& call, std::span<const Posting> postings) {
  CallQueue& queue = *queue_of(call);
  queue.begin();
  if (call.kind == Kind::kSend) {
    send(call, postings[static_cast<std::size_t>(call.peer)]);
  } else if (call.kind == Kind::kRecv) {
    receive(call);
  } else {
    exchange(call, postings);
  }
  queue.end();
  return true;
}

// The sender writes where the receiver has room.
void PeerCarrier::send(const Call& call, const Posting& theirs) {
  const cudaStream_t stream = queue_of(call)->stream();
  const int from = group_.members[static_cast<std::size_t>(group_.rank)];
  const int to = group_.members[static_cast<std::size_t>(call.peer)];
  const auto word = [&](What what) {
    return parts_.flags.of_messages(group_.lane, from, to, what);
  };
  SharedFlags::wait(stream, word(What::kReady), call.sequence + 1);
  if (call.in.bytes() > 0) {
    SharedPlace place;
    std::memcpy(&place, theirs.bytes.data(), sizeof(place));
    copy(&Helpers::messages, parts_.memory.open(to, place), call.in.data, call.in.bytes(), stream);
  }
  SharedFlags::write(stream, word(What::kDone), call.sequence + 1);
}

void PeerCarrier::receive(const Call& call) {
  const cudaStream_t stream = queue_of(call)->stream();
  const int from = group_.members[static_cast<std::size_t>(call.peer)];
  const int to = group_.members[static_cast<std::size_t>(group_.rank)];
  const auto word = [&](What what) {
    return parts_.flags.of_messages(group_.lane, from, to, what);
  };
  SharedFlags::write(stream, word(What::kReady), call.sequence + 1);
  SharedFlags::wait(stream, word(What::kDone), call.sequence + 1);
}

// All are there; then each reaches into the memory of others; then all have done so.
void PeerCarrier::exchange(const Call& call, std::span<const Posting> postings) {
  const cudaStream_t stream = queue_of(call)->stream();
  const Tensor& tensor = reached(call);
  for (std::size_t r = 0; r < size() && tensor.bytes() > 0; ++r) {
    SharedPlace place;
    std::memcpy(&place, postings[r].bytes.data(), sizeof(place));
    places_[r] = static_cast<int>(r) == group_.rank ? tensor.data
                                                    : parts_.memory.open(group_.members[r], place);
  }
  const auto meet = [&](What what) {
    const auto word = [&](int rank) {
      return parts_.flags.of_calls(group_.lane, group_.members[static_cast<std::size_t>(rank)],
                                   what);
    };
    SharedFlags::write(stream, word(group_.rank), call.sequence + 1);
    for (int r = 0; r < static_cast<int>(size()); ++r) {
      if (r != group_.rank) SharedFlags::wait(stream, word(r), call.sequence + 1);
    }
  };
  meet(What::kReady);
  if (tensor.bytes() > 0) move(call, stream);
  meet(What::kDone);
}

void PeerCarrier::move(const Call& call, cudaStream_t stream) {
  switch (call.kind) {
    case Kind::kAllGather: {
      const std::int64_t offset = group_.rank * call.in.bytes();
      copy_by_one(call.out.data + offset, call.in.data, call.in.bytes(), stream);
      put(call.in.data, offset, call.in.bytes(), stream);
      break;
    }
    case Kind::kBroadcast:
      if (call.peer == group_.rank) put(call.out.data, 0, call.out.bytes(), stream);
      break;
    case Kind::kReduceScatter:
      sum(call, group_.rank * call.out.count(), call.out.count(), call.out.data, stream);
      break;
    case Kind::kAllReduce: {
      const Split split(call.out.count(), static_cast<int>(size()), Split::Parts::kLines);
      const std::int64_t offset = split.first(group_.rank) * size_of(call.out.dtype);
      const std::int64_t count = split.count(group_.rank);
      sum(call, split.first(group_.rank), count, call.out.data + offset, stream);
      put(call.out.data + offset, offset, count * size_of(call.out.dtype), stream);
      break;
    }
    default: ORTHANT_CHECK(false, "{} is no call of GPUs", text_of(call.kind, call.where));
  }
}

// Made when they are used: a GPU has few connections for streams.
PeerCarrier::Helpers& PeerCarrier::helpers() {
  if (helpers_ == nullptr) helpers_ = std::make_unique<Helpers>();
  return *helpers_;
}

// Into the others' tensors, beginning with the next rank's, so that not all write to one.
void PeerCarrier::put(std::byte* local, std::int64_t offset, std::int64_t bytes,
                      cudaStream_t stream) {
  for (std::size_t step = 1; step < size(); ++step) {
    const std::size_t peer = (static_cast<std::size_t>(group_.rank) + step) % size();
    copy(&Helpers::puts, places_[peer] + offset, local, bytes, stream);
  }
}

void PeerCarrier::copy(Halves Helpers::*by, std::byte* to, const std::byte* from,
                       std::int64_t bytes, cudaStream_t stream) {
  if (bytes < kWideBytes) return copy_by_one(to, from, bytes, stream);
  (helpers().*by).copy(to, from, bytes, stream);
}

// Elements first .. first + count of all ranks' tensors.
void PeerCarrier::sum(const Call& call, std::int64_t first, std::int64_t count, std::byte* to,
                      cudaStream_t stream) {
  const DType dtype = call.out.dtype;
  const std::int64_t width = size_of(dtype);
  if (count == 0) return;
  if (count * width <= kDirectBytes || group_.scratch.absent()) {
    for (std::size_t r = 0; r < size(); ++r) {
      inputs_[r] = places_[r] + first * width;
    }
    return reduce_on_gpu(stream, dtype, call.reduce, inputs_, std::span(&to, 1), count);
  }
  const auto others = static_cast<std::int64_t>(size()) - 1;
  const std::int64_t buffer_bytes =
      group_.scratch.bytes() / static_cast<std::int64_t>(Helpers::kBuffers);
  const std::int64_t room = buffer_bytes / others / Split::kLine * Split::kLine;
  const cudaStream_t fetching = helpers().fetches.get();
  // The buffers are free when the sums of the call before have been made.
  for (Event& summed : helpers().summed) {
    summed.record(stream);
  }
  std::size_t buffer = 0;
  for (std::int64_t done = 0; done < count; done += room / width) {
    const std::int64_t piece = std::min(room / width, count - done);
    const std::int64_t at = (first + done) * width;
    std::byte* fetched = group_.scratch.data + static_cast<std::int64_t>(buffer) * buffer_bytes;
    helpers().summed[buffer].wait(fetching);
    for (std::size_t step = 0; step < size(); ++step) {
      const std::size_t r = (static_cast<std::size_t>(group_.rank) + step) % size();
      inputs_[r] = places_[r] + at;
      if (step == 0) continue;
      helpers().gets.copy(fetched, inputs_[r], piece * width, fetching);
      inputs_[r] = fetched;
      fetched += room;
    }
    helpers().filled[buffer].record(fetching);
    helpers().filled[buffer].wait(stream);
    std::byte* const into = to + done * width;
    reduce_on_gpu(stream, dtype, call.reduce, inputs_, std::span(&into, 1), piece);
    helpers().summed[buffer].record(stream);
    buffer = (buffer + 1) % Helpers::kBuffers;
  }
}

}  // namespace orthant
