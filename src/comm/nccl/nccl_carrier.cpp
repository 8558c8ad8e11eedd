#include "comm/nccl/nccl_carrier.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "comm/cuda/reduce_kernel.h"
#include "comm/cuda/split.h"
#include "mem/cuda_check.h"

namespace orthant {
namespace {

using Kind = Call::Kind;
using Id = std::array<std::byte, sizeof(ncclUniqueId)>;
using Lock = std::unique_lock<std::mutex>;
static_assert(sizeof(Id) <= sizeof(Posting));

// Messages are short beside the work of a stage, and their kernels take what products could use. Of
// few values NCCL moves all by one channel, and each channel that it may use has memory of its own.
constexpr int kMostCtas = 4;

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return ncclFloat32;
    case DType::kF64: return ncclFloat64;
    case DType::kBF16: return ncclBfloat16;
    case DType::kF16: return ncclFloat16;
    case DType::kI64: return ncclInt64;
    default: return ncclUint8;
  }
}

std::size_t bytes_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.bytes());
}

// Returns when what was asked of the communicator is queued; false: it can do no more.
bool settle(NcclComm& comm, Lock& lock) {
  constexpr std::chrono::microseconds kEvery(20);
  while (!comm.is_ready()) {
    if (comm.is_aborted() || !comm.fault().empty()) return false;
    lock.unlock();
    std::this_thread::sleep_for(kEvery);
    lock.lock();
  }
  return true;
}

}  // namespace

void NcclComms::add(NcclComm& comm, const CallQueue& queue) {
  comms_.push_back({.comm = &comm, .queue = &queue});
}

void NcclComms::remove(NcclComm& comm) {
  std::erase_if(comms_, [&comm](const Entry& entry) { return entry.comm == &comm; });
}

// All at once: each gives its memory back, for which CUDA waits until no kernel of any other is at
// work, and those end when their own is aborted.
void NcclComms::abort_all() {
  const Lock lock(mutex_);
  int gpu = 0;
  cudaGetDevice(&gpu);
  std::vector<std::jthread> threads;
  for (const Entry& entry : comms_) {
    if (entry.comm->is_aborted()) continue;
    threads.emplace_back([&entry, gpu] {
      cudaSetDevice(gpu);  // NCCL goes back to it
      entry.comm->abort();
    });
  }
}

std::optional<BrokenLink> NcclComms::find_broken() {
  const Lock lock(mutex_);
  for (const Entry& entry : comms_) {
    const std::string fault = entry.comm->fault();
    if (fault.empty()) continue;
    const bool is_lost = entry.comm->has_lost_peers();
    return BrokenLink{.title = entry.queue->title(),
                      .peers = is_lost ? entry.queue->peers() : std::vector<int>{},
                      .why = fmt::format(
                          "{}, as NCCL says: {}; NCCL_DEBUG=WARN makes it say more",
                          is_lost ? "has lost its connections on the GPU" : "cannot go on", fault)};
  }
  return std::nullopt;
}

// A communicator and the queue of its calls.
struct NcclCarrier::Line {
  Line(NcclComms& all_comms, QueueWatch& watch, cudaStream_t ops, std::vector<int> peers,
       const std::string& title)
      : comms(all_comms),
        queue(watch, ops, std::move(peers), title) {}
  ~Line() {
    if (comm == nullptr) return;
    cudaStreamSynchronize(queue->stream());
    const Lock lock(comms.mutex());
    comms.remove(*comm);
    comm.reset();
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  // Of a group of calls; nothing is nothing to NCCL.
  void send(int peer, const std::byte* from, std::int64_t bytes) {
    if (bytes == 0) return;
    ORTHANT_NCCL(ncclSend(from, static_cast<std::size_t>(bytes), ncclUint8, peer, comm->get(),
                          queue->stream()));
  }
  void receive(int peer, std::byte* to, std::int64_t bytes) {
    if (bytes == 0) return;
    ORTHANT_NCCL(ncclRecv(to, static_cast<std::size_t>(bytes), ncclUint8, peer, comm->get(),
                          queue->stream()));
  }

  NcclComms& comms;
  Id id{};  // made by group rank 0, of a pair by the sender
  std::unique_ptr<NcclComm> comm;
  WatchedQueue queue;
  bool is_launched = false;  // the next call is, but NCCL may not have queued it yet
};

NcclCarrier::NcclCarrier(const Parts& parts, LinkedGroup group)
    : parts_(parts),
      group_(std::move(group)),
      sends_(group_.members.size()),
      receives_(group_.members.size()) {}

NcclCarrier::~NcclCarrier() = default;

std::unique_ptr<NcclCarrier::Line>& NcclCarrier::line_of(const Call& call) {
  const auto peer = static_cast<std::size_t>(std::max(call.peer, 0));
  if (call.kind == Kind::kSend) return sends_[peer];
  return call.kind == Kind::kRecv ? receives_[peer] : calls_;
}

NcclCarrier::Line& NcclCarrier::make_line(const Call& call) {
  std::vector<int> peers = group_.members;
  peers.erase(peers.begin() + group_.rank);
  if (is_message(call.kind)) peers = {group_.members[static_cast<std::size_t>(call.peer)]};
  std::unique_ptr<Line>& line = line_of(call);
  line = std::make_unique<Line>(parts_.comms, parts_.watch, parts_.ops, std::move(peers),
                                group_.title);
  const bool makes_id = is_message(call.kind) ? call.kind == Kind::kSend : group_.rank == 0;
  if (makes_id) line->id = make_nccl_id();
  return *line;
}

void NcclCarrier::post(const Call& call, Posting& mine) {
  std::unique_ptr<Line>& known = line_of(call);
  Line& line = known == nullptr ? make_line(call) : *known;
  line.queue->post(call);
  std::memcpy(mine.bytes.data(), line.id.data(), line.id.size());
}

void NcclCarrier::wait(const Call& call) {
  line_of(call)->queue->wait(call);
}

bool NcclCarrier::queue(const Call& call, std::span<const Posting> postings) {
  Line& line = *line_of(call);
  Lock lock(parts_.comms.mutex());
  if (line.comm == nullptr) {
    const bool is_pair = is_message(call.kind);
    const std::size_t maker = is_pair ? static_cast<std::size_t>(call.peer) : 0;
    if (call.kind != Kind::kSend && (is_pair || group_.rank != 0)) {
      std::memcpy(line.id.data(), postings[maker].bytes.data(), line.id.size());
    }
    const int rank = is_pair ? (call.kind == Kind::kSend ? 0 : 1) : group_.rank;
    const int most_ctas = is_pair || group_.has_few_values ? kMostCtas : 0;
    line.comm = std::make_unique<NcclComm>(line.id, is_pair ? 2 : size(), rank, most_ctas);
    parts_.comms.add(*line.comm, *line.queue);
  }
  if (!line.comm->is_ready()) return false;
  if (!line.is_launched) {
    line.queue->begin();
    if (!adds_here(call)) {
      launch(call, line);
    } else if (!sum_in_rank_order(call, line, lock)) {
      return false;
    }
    line.is_launched = true;
  }
  if (!line.comm->is_ready()) return false;
  line.is_launched = false;
  line.queue->end();
  return true;
}

// NCCL adds 16-bit types in their own precision, in any order: of two ranks that is the sum rounded
// once.
bool NcclCarrier::adds_here(const Call& call) const {
  if (call.kind != Kind::kAllReduce && call.kind != Kind::kReduceScatter) return false;
  if (call.reduce != Reduce::kSum || call.out.count() == 0) return false;
  return parts_.rank_order || (size_of(call.out.dtype) == 2 && size() > 2);
}

void NcclCarrier::launch(const Call& call, Line& line) {
  const ncclComm_t comm = line.comm->get();
  const cudaStream_t stream = line.queue->stream();
  const ncclRedOp_t op = call.reduce == Reduce::kMax ? ncclMax : ncclSum;
  const auto count = static_cast<std::size_t>(call.out.count());
  if (call.out.bytes() == 0 && call.in.bytes() == 0) return;
  switch (call.kind) {
    case Kind::kAllReduce:
      ORTHANT_NCCL(ncclAllReduce(call.out.data, call.out.data, count, type_of(call.out.dtype), op,
                                 comm, stream));
      break;
    case Kind::kReduceScatter:
      ORTHANT_NCCL(ncclReduceScatter(call.in.data, call.out.data, count, type_of(call.out.dtype),
                                     op, comm, stream));
      break;
    case Kind::kAllGather:
      ORTHANT_NCCL(
          ncclAllGather(call.in.data, call.out.data, bytes_of(call.in), ncclUint8, comm, stream));
      break;
    case Kind::kBroadcast:
      ORTHANT_NCCL(ncclBroadcast(call.out.data, call.out.data, bytes_of(call.out), ncclUint8,
                                 call.peer, comm, stream));
      break;
    case Kind::kSend: line.send(1, call.in.data, call.in.bytes()); break;
    case Kind::kRecv: line.receive(0, call.out.data, call.out.bytes()); break;
    case Kind::kBarrier: ORTHANT_CHECK(false, "a barrier is no call of GPUs");
  }
}

// Every rank gets its part of all tensors, piece by piece, adds it, and of an all_reduce hands the
// sum on.
bool NcclCarrier::sum_in_rank_order(const Call& call, Line& line, Lock& lock) {
  const bool is_scatter = call.kind == Kind::kReduceScatter;
  const Tensor& whole = is_scatter ? call.in : call.out;
  const std::int64_t width = size_of(whole.dtype);
  const cudaStream_t stream = line.queue->stream();
  ORTHANT_CHECK(group_.scratch.present(), "{} has no memory for sums in rank order", group_.title);
  const Split split(whole.count(), size(),
                    is_scatter ? Split::Parts::kEqual : Split::Parts::kLines);
  const std::int64_t room =
      group_.scratch.bytes() / std::max(1, size() - 1) / Split::kLine * Split::kLine / width;
  std::byte* const to = is_scatter ? call.out.data : whole.data + split.first(group_.rank) * width;
  std::vector<const std::byte*> inputs(group_.members.size());
  for (std::int64_t at = 0; at < split.most(); at += room) {
    const auto piece_of = [&](int r) {
      return std::clamp<std::int64_t>(split.count(r) - at, 0, room);
    };
    const std::int64_t mine = piece_of(group_.rank);
    std::byte* fetched = group_.scratch.data;
    ORTHANT_NCCL(ncclGroupStart());
    for (int r = 0; r < size(); ++r) {
      std::byte* const theirs = whole.data + (split.first(r) + at) * width;
      inputs[static_cast<std::size_t>(r)] = theirs;
      if (r == group_.rank) continue;
      line.send(r, theirs, piece_of(r) * width);
      line.receive(r, fetched, mine * width);
      inputs[static_cast<std::size_t>(r)] = fetched;
      fetched += room * width;
    }
    ORTHANT_NCCL(ncclGroupEnd());
    if (!settle(*line.comm, lock)) return false;
    std::byte* const into = to + at * width;
    reduce_on_gpu(stream, whole.dtype, call.reduce, inputs, std::span(&into, 1), mine);
  }
  if (is_scatter) return true;
  ORTHANT_NCCL(ncclGroupStart());
  for (int r = 0; r < size(); ++r) {
    if (r == group_.rank) continue;
    line.send(r, to, split.count(group_.rank) * width);
    line.receive(r, whole.data + split.first(r) * width, split.count(r) * width);
  }
  ORTHANT_NCCL(ncclGroupEnd());
  return true;
}

}  // namespace orthant
