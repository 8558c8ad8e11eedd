#include "mem/transfers.h"

#include <algorithm>

#include "base/check.h"

namespace orthant {
namespace {

std::string_view name_of(Lane lane) {
  return lane == Lane::kCopyOut ? "copy_out" : "copy_in";
}

// Raises each count of `clock` to that of `other`.
template <class Clock>
void join(Clock& clock, const Clock& other) {
  std::transform(clock.begin(), clock.end(), other.begin(), clock.begin(),
                 [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
}

}  // namespace

Transfers::Transfers(Device& device, Ledger& ledger, InFlight& in_flight)
    : device_(device),
      ledger_(ledger),
      in_flight_(in_flight) {
  started_.reserve(16);
}

Token Transfers::start_out(const Tensor& host, const Tensor& device, const After& after) {
  return copy(Lane::kCopyOut, host, device, after);
}

Token Transfers::start_in(const Tensor& device, const Tensor& host, const After& after) {
  return copy(Lane::kCopyIn, device, host, after);
}

Token Transfers::copy(Lane lane, const Tensor& to, const Tensor& from, const After& after) {
  ORTHANT_CHECK(to.dtype == from.dtype && to.count() == from.count(), "{}: {} {} into {} {}",
                name_of(lane), from.shape.text(), name_of(from.dtype), to.shape.text(),
                name_of(to.dtype));
  if (from.count() == 0) return {};
  const Call call{.what = name_of(lane),
                  .lane = lane,
                  .cost = {.flops = 0, .bytes = static_cast<double>(from.bytes())},
                  .bytes = from.bytes()};
  return start(call, std::span(&from, 1), std::span(&to, 1), after,
               [&] { return device_.start_copy(lane, to, from); });
}

Token Transfers::start_work(const Work& work, const After& after) {
  const Call call{.what = work.what, .lane = work.lane, .cost = work.cost, .bytes = 0};
  return start(call, work.reads, work.writes, after,
               [&] { return device_.start_work(work.lane, *work.work); });
}

const Transfers::Started* Transfers::find(Token token) const {
  const auto found =  // tokens ascend
      std::lower_bound(started_.begin(), started_.end(), token.id,
                       [](const Started& s, std::int64_t id) { return s.token.id < id; });
  return found == started_.end() || found->token != token ? nullptr : &*found;
}

// What is queued on `later`, which knows `known` to be over, comes after that call.
void Transfers::order(Lane later, Clock& known, const Started& call) {
  if (of(known, call.lane) <= call.sequence) device_.order(later, call.lane, call.number);
  join(known, call.over);
}

template <class Begin>
Token Transfers::start(const Call& call, std::span<const Tensor> reads,
                       std::span<const Tensor> writes, const After& after, Begin begin) {
  Clock& known = ends_[static_cast<std::size_t>(call.lane)];
  join(known, known_);
  for (const Token token : after) {
    const Started* before = token.done() ? nullptr : find(token);
    if (before != nullptr) order(call.lane, known, *before);
  }
  // Calls that are over when this one begins do not stand in its way.
  const auto is_over = [&](Token token) {
    const Started* owner = find(token);
    return owner != nullptr && owner->sequence < of(known, owner->lane);
  };
  for (const Tensor& tensor : reads) {
    in_flight_.check_read(tensor, call.what, is_over);
  }
  for (const Tensor& tensor : writes) {
    in_flight_.check_write(tensor, call.what, is_over);
  }
  const Token token = ledger_.next_token();
  for (const Tensor& tensor : reads) {
    in_flight_.own_read(token, tensor, call.what);
  }
  for (const Tensor& tensor : writes) {
    in_flight_.own_written(token, tensor, call.what);
  }
  record(call, token, {}, after);
  const std::int64_t sequence = of(counts_, call.lane)++;
  of(known, call.lane) = sequence + 1;
  started_.push_back({.token = token,
                      .what = call.what,
                      .lane = call.lane,
                      .sequence = sequence,
                      .number = begin(),
                      .bytes = call.bytes,
                      .over = known});
  return token;
}

void Transfers::wait(Token token) {
  if (token.done()) return;
  const Started* found = find(token);
  ORTHANT_CHECK(found != nullptr, "copy {} was not started here or has been waited for", token.id);
  order(Lane::kCompute, known_, *found);
  in_flight_.release(token);
  record({.what = found->what, .lane = found->lane, .cost = {}, .bytes = found->bytes}, {}, token,
         {});
  started_.erase(started_.begin() + (found - started_.data()));
}

void Transfers::record(const Call& call, Token starts, Token waits_for, const After& after) {
  ledger_.add({.what = call.what,
               .where = {},
               .lane = call.lane,
               .cost = call.cost,
               .fingerprint = static_cast<std::uint64_t>(call.bytes),
               .message_bytes = starts.done() ? 0 : call.bytes,
               .starts = starts,
               .waits_for = waits_for,
               .after = after});
}

}  // namespace orthant
