// Communicator: the part that all backends share. A call is checked, numbered, recorded, then
// started; a blocking call is a start and a wait, so its ledger entries are those of the two.
#include "comm/communicator.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace orthant {
namespace {

using Kind = Call::Kind;

// The larger tensor of the two: what message_bytes of a ledger entry counts.
const Tensor& payload(const Call& call) {
  return call.kind == Kind::kReduceScatter || call.kind == Kind::kSend ? call.in : call.out;
}

bool can_reduce(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16 ||
         dtype == DType::kF16 || dtype == DType::kI64;
}

// FNV-1a over what all sides of a call agree on: equal for a send and its receive.
std::uint64_t fingerprint(const Call& call) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  const auto mix = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0x100000001b3ull;
  };
  const auto mix_tensor = [&mix](const Tensor& tensor) {
    mix(static_cast<std::uint64_t>(tensor.dtype) + 1);
    for (int i = 0; i < tensor.shape.rank(); ++i) {
      mix(static_cast<std::uint64_t>(tensor.shape[i]));
    }
  };
  if (writes_out(call.kind)) mix_tensor(call.out);
  if (reads_in(call.kind)) mix_tensor(call.in);
  mix(static_cast<std::uint64_t>(call.reduce));
  mix(static_cast<std::uint64_t>(call.identity));
  return hash;
}

}  // namespace

Communicator::Communicator(std::string name, std::vector<int> members, int rank, int lane,
                           const CommParts& parts)
    : name_(std::move(name)),
      members_(std::move(members)),
      rank_(rank),
      lane_(lane),
      parts_(parts),
      sent_(members_.size()),
      received_(members_.size()) {
  ORTHANT_CHECK(rank >= 0 && rank < size(), "group '{}': rank {} is not one of its {} ranks", name_,
                rank, size());
  started_.reserve(16);
}

int Communicator::position_of(const std::vector<int>& members) const {
  int position = -1;
  for (std::size_t i = 0; i < members.size(); ++i) {
    ORTHANT_CHECK(i == 0 || members[i - 1] < members[i],
                  "subgroup of '{}': member {} follows {}; list each once, ascending", name_,
                  members[i], members[i - 1]);
    ORTHANT_CHECK(std::binary_search(members_.begin(), members_.end(), members[i]),
                  "subgroup of '{}': rank {} is not in that group", name_, members[i]);
    if (members[i] == world_rank()) position = static_cast<int>(i);
  }
  ORTHANT_CHECK(position >= 0, "subgroup of '{}': rank {} makes a group that it is not in", name_,
                world_rank());
  return position;
}

void Communicator::reserve_scratch(std::int64_t bytes) {
  if (parts_.scratch == nullptr || size() == 1) return;
  scratch_ = parts_.scratch->alloc({bytes}, DType::kU8, MemClass::kCommunication);
}

std::string Communicator::title() const {
  constexpr std::size_t kMostListed = 16;
  const std::string list =
      members_.size() <= kMostListed
          ? fmt::format("{}", fmt::join(members_, ","))
          : fmt::format("of {}, {}..{}", members_.size(), members_.front(), members_.back());
  return fmt::format("rank {} ({} group {})", world_rank(), name_, list);
}

std::string Communicator::title(const Call& call) const {
  const std::string_view where = parts_.ledger.where();
  return where.empty() ? fmt::format("{} in group '{}'", name_of(call.kind), name_)
                       : fmt::format("{} '{}' in group '{}'", name_of(call.kind), where, name_);
}

void Communicator::check(const Call& call) const {
  for (const Tensor* tensor :
       {writes_out(call.kind) ? &call.out : nullptr, reads_in(call.kind) ? &call.in : nullptr}) {
    ORTHANT_CHECK(tensor == nullptr || tensor->present() || tensor->count() == 0,
                  "{}: a tensor is absent", title(call));
  }
  if (call.kind == Kind::kAllReduce || call.kind == Kind::kReduceScatter) {
    ORTHANT_CHECK(can_reduce(call.out.dtype),
                  "{}: the tensor is {}, which has no sum; use f32, f64, bf16, f16 or i64",
                  title(call), name_of(call.out.dtype));
  }
  if (call.kind == Kind::kAllGather) check_runs(call, call.out, call.in);
  if (call.kind == Kind::kReduceScatter) check_runs(call, call.in, call.out);
  if (call.kind == Kind::kBroadcast) {
    ORTHANT_CHECK(call.peer >= 0 && call.peer < size(),
                  "{}: root {} is not a rank of the group; use 0..{}", title(call), call.peer,
                  size() - 1);
  }
  if (is_message(call.kind)) {
    ORTHANT_CHECK(call.peer >= 0 && call.peer < size() && call.peer != rank_,
                  "{}: peer {} is not another rank of the group of {}; this is rank {}",
                  title(call), call.peer, size(), rank_);
  }
}

// `whole` is one run of part's length for each rank; `part` lies outside of it or is this rank's.
void Communicator::check_runs(const Call& call, const Tensor& whole, const Tensor& part) const {
  ORTHANT_CHECK(whole.dtype == part.dtype, "{}: whole is {}, part is {}; use one type", title(call),
                name_of(whole.dtype), name_of(part.dtype));
  ORTHANT_CHECK(whole.count() == part.count() * size(),
                "{}: whole is {}, part is {}; {} parts must fill the whole", title(call),
                whole.shape.text(), part.shape.text(), size());
  const bool apart =
      whole.data + whole.bytes() <= part.data || part.data + part.bytes() <= whole.data;
  const bool own_run = part.data == whole.data + rank_ * part.bytes();
  ORTHANT_CHECK(own_run || (apart && size() > 1) || part.count() == 0,
                "{}: part lies neither at run {} of whole{}", title(call), rank_,
                size() > 1 ? " nor outside of it" : ", and a group of one moves nothing");
}

void Communicator::number(Call& call) {
  const auto peer = static_cast<std::size_t>(std::max(call.peer, 0));
  call.sequence = call.kind == Kind::kSend   ? sent_[peer]++
                  : call.kind == Kind::kRecv ? received_[peer]++
                                             : collectives_++;
}

void Communicator::record_start(const Call& call, Token token) {
  // The root of a broadcast only reads.
  const bool writes =
      writes_out(call.kind) && (call.kind != Kind::kBroadcast || call.peer != rank_);
  const Tensor read = reads_in(call.kind) ? call.in : writes ? Tensor() : call.out;
  const Tensor written = writes ? call.out : Tensor();
  const std::string_view what = name_of(call.kind);
  parts_.in_flight.check_read(read, what);
  parts_.in_flight.check_write(written, what);
  parts_.in_flight.own_read(token, read, what);
  parts_.in_flight.own_written(token, written, what);
  parts_.ledger.add({.what = what,
                     .where = {},
                     .lane = static_cast<Lane>(static_cast<int>(Lane::kFirstComm) + lane_),
                     .cost = {},
                     .fingerprint = fingerprint(call),
                     .message_bytes = payload(call).bytes(),
                     .group_size = size(),
                     .peer = call.peer,
                     .starts = token,
                     .waits_for = {}});
}

Token Communicator::start(Call call) {
  check(call);
  if (size() == 1) return {};
  number(call);
  call.where = Place(parts_.ledger.where());
  const Token token = parts_.ledger.next_token();
  record_start(call, token);
  do_start(call, token);
  started_.push_back({token, call});
  return token;
}

void Communicator::run(const Call& call) {
  if (!start(call).done()) finish(started_.size() - 1);
}

void Communicator::finish(std::size_t index) {
  const auto [token, call] = started_[index];
  do_wait(call, token);
  started_.erase(started_.begin() + static_cast<std::ptrdiff_t>(index));
  parts_.in_flight.release(token);
  parts_.ledger.add({.what = name_of(call.kind),
                     .where = {},
                     .lane = static_cast<Lane>(static_cast<int>(Lane::kFirstComm) + lane_),
                     .cost = {},
                     .group_size = size(),
                     .peer = call.peer,
                     .starts = {},
                     .waits_for = token});
}

void Communicator::wait(Token token) {
  if (token.done()) return;
  if (give_turn_) {
    constexpr int kMostTurns = 10000;  // more than any work has waits
    bool goes_on = give_turn_();
    for (int i = 0; i < kMostTurns && goes_on && earlier_than(started(token)) != nullptr; ++i) {
      goes_on = give_turn_();
    }
  }
  const Started& mine = started(token);
  const Started* earlier = earlier_than(mine);
  ORTHANT_CHECK(earlier == nullptr,
                "{}: call {} is waited for before the earlier {} {}; keep the order",
                title(mine.call), token.id, name_of(earlier->call.kind), earlier->token.id);
  finish(static_cast<std::size_t>(&mine - started_.data()));
}

const Communicator::Started& Communicator::started(Token token) const {
  const auto found = std::find_if(started_.begin(), started_.end(),
                                  [token](const Started& s) { return s.token == token; });
  ORTHANT_CHECK(found != started_.end(),
                "wait in group '{}': call {} was not started here or has been waited for", name_,
                token.id);
  return *found;
}

// The first of those that must be waited for before this one; null: none.
const Communicator::Started* Communicator::earlier_than(const Started& one) const {
  const Call& call = one.call;
  const Started* const end = &one;
  const Started* const first = std::find_if(started_.data(), end, [&call](const Started& s) {
    return is_message(call.kind) ? s.call.kind == call.kind && s.call.peer == call.peer
                                 : !is_message(s.call.kind);
  });
  return first == end ? nullptr : first;
}

void Communicator::all_reduce(const Tensor& t, Reduce reduce) {
  run({.kind = Kind::kAllReduce, .out = t, .in = {}, .reduce = reduce});
}

void Communicator::all_gather(const Tensor& whole, const Tensor& part) {
  run({.kind = Kind::kAllGather, .out = whole, .in = part});
}

void Communicator::reduce_scatter(const Tensor& part, const Tensor& whole) {
  run({.kind = Kind::kReduceScatter, .out = part, .in = whole});
}

void Communicator::broadcast(const Tensor& t, int root) {
  run({.kind = Kind::kBroadcast, .out = t, .in = {}, .peer = root});
}

void Communicator::barrier() {
  if (size() == 1) return;
  Call call{.kind = Kind::kBarrier, .out = {}, .in = {}};
  number(call);
  call.where = Place(parts_.ledger.where());
  do_start(call, {});
  do_wait(call, {});
}

Token Communicator::start_all_reduce(const Tensor& t, Reduce reduce) {
  return start({.kind = Kind::kAllReduce, .out = t, .in = {}, .reduce = reduce});
}

Token Communicator::start_all_gather(const Tensor& whole, const Tensor& part) {
  return start({.kind = Kind::kAllGather, .out = whole, .in = part});
}

Token Communicator::start_reduce_scatter(const Tensor& part, const Tensor& whole) {
  return start({.kind = Kind::kReduceScatter, .out = part, .in = whole});
}

Token Communicator::start_send(const Tensor& t, int peer, std::int64_t identity) {
  return start({.kind = Kind::kSend, .out = {}, .in = t, .peer = peer, .identity = identity});
}

Token Communicator::start_recv(const Tensor& t, int peer, std::int64_t identity) {
  return start({.kind = Kind::kRecv, .out = t, .in = {}, .peer = peer, .identity = identity});
}

}  // namespace orthant
