// What each call of a StreamCommunicator sends to whom.
#include <algorithm>
#include <cstring>

#include "comm/stream/stream_communicator.h"

namespace orthant {
namespace {

using Kind = Call::Kind;
using Bytes = std::span<std::byte>;

// Up to this size it is faster to send everything to everyone than to sum in parts.
constexpr std::int64_t kSmallBytes = 8192;

Bytes bytes_of(const Tensor& tensor) {
  return {tensor.data, static_cast<std::size_t>(tensor.bytes())};
}

// Run r of `size` equal runs.
Bytes run_of(const Tensor& whole, std::size_t r, int size) {
  const std::size_t bytes =
      static_cast<std::size_t>(whole.bytes()) / static_cast<std::size_t>(size);
  return bytes_of(whole).subspan(r * bytes, bytes);
}

// Part r of `size` parts that differ by an element at most.
Bytes part_of(const Tensor& tensor, std::size_t r, int size) {
  const auto edge = [&](std::size_t i) {
    return static_cast<std::size_t>(tensor.count() * static_cast<std::int64_t>(i) / size *
                                    size_of(tensor.dtype));
  };
  return bytes_of(tensor).subspan(edge(r), edge(r + 1) - edge(r));
}

void copy(Bytes to, std::span<const std::byte> from) {
  if (to.data() != from.data() && !from.empty()) {
    std::memcpy(to.data(), from.data(), from.size());
  }
}

}  // namespace

std::size_t StreamCommunicator::channel_out(const Call& call) {
  if (!is_message(call.kind)) return 0;
  return call.kind == Kind::kSend ? 1 : 2;
}

std::size_t StreamCommunicator::channel_in(const Call& call) {
  if (!is_message(call.kind)) return 0;
  return call.kind == Kind::kSend ? 2 : 1;
}

// With whom there are frames.
void StreamCommunicator::plan_frames(Active& active) {
  const Call& call = active.mine.call;
  const bool both_ways = is_linked(call);
  for (int peer = 0; peer < size(); ++peer) {
    Exchange& exchange = active.exchanges[static_cast<std::size_t>(peer)];
    exchange = {};
    if (peer == rank() || (is_message(call.kind) && peer != call.peer)) continue;
    exchange.has_out = both_ways || call.kind != Kind::kRecv;
    exchange.has_in = both_ways || call.kind != Kind::kSend;
  }
}

// What goes to whom and what comes from whom.
void StreamCommunicator::plan(Active& active) {
  const Call& call = active.mine.call;
  const auto me = static_cast<std::size_t>(rank());
  plan_frames(active);
  for (std::size_t peer = 0; peer < active.exchanges.size(); ++peer) {
    Exchange& exchange = active.exchanges[peer];
    const bool is_named = static_cast<int>(peer) == call.peer;  // the root, or the other side
    if (!exchange.has_out && !exchange.has_in) continue;
    if (is_linked(call)) {
      exchange.first_out = active.posted.bytes;
      exchange.first_in = active.postings[peer].bytes;
      continue;
    }
    switch (call.kind) {
      case Kind::kAllGather:
        exchange.first_out = bytes_of(call.in);
        exchange.first_in = run_of(call.out, peer, size());
        break;
      case Kind::kBroadcast:
        if (rank() == call.peer) exchange.first_out = bytes_of(call.out);
        if (is_named) exchange.first_in = bytes_of(call.out);
        break;
      case Kind::kSend: exchange.first_out = bytes_of(call.in); break;
      case Kind::kRecv: exchange.first_in = bytes_of(call.out); break;
      default: break;
    }
  }
  if (is_linked(call)) return;
  if (call.kind == Kind::kAllGather) copy(run_of(call.out, me, size()), bytes_of(call.in));
  if (call.kind == Kind::kAllReduce || call.kind == Kind::kReduceScatter) plan_reduce(active);
}

void StreamCommunicator::plan_reduce(Active& active) {
  const Call& call = active.mine.call;
  const auto me = static_cast<std::size_t>(rank());
  const bool is_scatter = call.kind == Kind::kReduceScatter;
  // Either everyone sums everything, or each its part, which it then sends to the others.
  const bool is_whole = !is_scatter && (size() == 2 || call.out.bytes() <= kSmallBytes);
  if (is_scatter) {
    active.sum_from = run_of(call.in, me, size());
    active.sum_to = bytes_of(call.out);
  } else {
    active.sum_to = is_whole ? bytes_of(call.out) : part_of(call.out, me, size());
    active.sum_from = active.sum_to;
    active.is_in_place = is_whole;
  }
  for (std::size_t peer = 0; peer < active.exchanges.size(); ++peer) {
    Exchange& exchange = active.exchanges[peer];
    if (peer == me) continue;
    exchange.first_out = is_scatter ? run_of(call.in, peer, size())
                         : is_whole ? bytes_of(call.out)
                                    : part_of(call.out, peer, size());
    exchange.sums_in = static_cast<std::int64_t>(active.sum_to.size());
    if (is_scatter || is_whole) continue;
    exchange.second_out = active.sum_to;
    exchange.second_in = part_of(call.out, peer, size());
  }
}

}  // namespace orthant
