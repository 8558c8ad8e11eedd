#include "mem/transfers.h"

#include <algorithm>

#include "base/check.h"

namespace orthant {
namespace {

std::string_view name_of(Lane lane) {
  return lane == Lane::kCopyOut ? "copy_out" : "copy_in";
}

}  // namespace

Transfers::Transfers(Device& device, Ledger& ledger, InFlight& in_flight)
    : device_(device),
      ledger_(ledger),
      in_flight_(in_flight) {
  started_.reserve(16);
}

Token Transfers::start_out(const Tensor& host, const Tensor& device) {
  return start(Lane::kCopyOut, host, device);
}

Token Transfers::start_in(const Tensor& device, const Tensor& host) {
  return start(Lane::kCopyIn, device, host);
}

Token Transfers::start(Lane lane, const Tensor& to, const Tensor& from) {
  ORTHANT_CHECK(to.dtype == from.dtype && to.count() == from.count(), "{}: {} {} into {} {}",
                name_of(lane), from.shape.text(), name_of(from.dtype), to.shape.text(),
                name_of(to.dtype));
  if (from.count() == 0) return {};
  in_flight_.check_read(from, name_of(lane));
  in_flight_.check_write(to, name_of(lane));
  const Token token = ledger_.next_token();
  in_flight_.own_read(token, from, name_of(lane));
  in_flight_.own_written(token, to, name_of(lane));
  record(lane, from.bytes(), token, {});
  started_.push_back({token, lane, device_.start_copy(lane, to, from), from.bytes()});
  return token;
}

void Transfers::wait(Token token) {
  if (token.done()) return;
  const auto found = std::find_if(started_.begin(), started_.end(),
                                  [token](const Started& s) { return s.token == token; });
  ORTHANT_CHECK(found != started_.end(), "copy {} was not started here or has been waited for",
                token.id);
  device_.wait_copy(found->lane, found->sequence);
  in_flight_.release(token);
  record(found->lane, found->bytes, {}, token);
  started_.erase(found);
}

void Transfers::record(Lane lane, std::int64_t bytes, Token starts, Token waits_for) {
  ledger_.add({.what = name_of(lane),
               .where = {},
               .lane = lane,
               .cost = {.flops = 0, .bytes = static_cast<double>(starts.done() ? 0 : bytes)},
               .fingerprint = static_cast<std::uint64_t>(bytes),
               .message_bytes = starts.done() ? 0 : bytes,
               .starts = starts,
               .waits_for = waits_for});
}

}  // namespace orthant
