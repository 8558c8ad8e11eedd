#include "comm/stream/stream_communicator.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "comm/rank_order.h"

namespace orthant {
namespace {

using Kind = Call::Kind;
using Bytes = std::span<std::byte>;

// What fills a frame up to the grain.
constexpr std::array<std::byte, Wires::kGrain> kPadding{};

std::int64_t padded(std::int64_t bytes) {
  constexpr auto kGrain = static_cast<std::int64_t>(Wires::kGrain);
  return (bytes + kGrain - 1) / kGrain * kGrain;
}

}  // namespace

std::int64_t StreamCommunicator::Exchange::out_bytes() const {
  if (!has_out) return 0;
  return kHeadBytes + padded(static_cast<std::int64_t>(first_out.size() + second_out.size()));
}

std::int64_t StreamCommunicator::Exchange::in_bytes() const {
  if (!has_in) return 0;
  return kHeadBytes +
         padded(static_cast<std::int64_t>(first_in.size() + second_in.size()) + sums_in);
}

StreamCommunicator::StreamCommunicator(StreamRank& stream_rank, std::string name,
                                       std::vector<int> members, int rank, int lane,
                                       const CommParts& parts)
    : Communicator(std::move(name), std::move(members), rank, lane, parts),
      stream_rank_(stream_rank),
      lane_(lane),
      exceptions_(std::uncaught_exceptions()),
      inputs_(this->members().size()) {
  for (std::size_t channel = 0; channel < kNumChannels; ++channel) {
    links_[channel].resize(this->members().size());
    is_sending_[channel].resize(this->members().size());
    is_receiving_[channel].resize(this->members().size());
    is_connecting_[channel].resize(this->members().size());
  }
  stream_rank_.add(*this);
}

StreamCommunicator::~StreamCommunicator() {
  stream_rank_.remove(*this);
  if (active_.empty() || std::uncaught_exceptions() != exceptions_) return;
  stream_rank_.wires().board().fail(
      world_rank(), fmt::format("it stopped before its {} started calls in group '{}' were waited "
                                "for",
                                active_.size(), name()));
  stream_rank_.wires().announce_failure(Fault::kRun);
}

std::unique_ptr<Communicator> StreamCommunicator::subgroup(std::string name,
                                                           std::vector<int> members, int lane) {
  const int position = position_of(members);
  return std::make_unique<StreamCommunicator>(stream_rank_, std::move(name), std::move(members),
                                              position, lane, parts());
}

Link& StreamCommunicator::link(std::size_t channel, std::size_t peer) {
  std::unique_ptr<Link>& link = links_[channel][peer];
  if (link == nullptr) {
    const int number = static_cast<int>(kNumChannels) * lane_ + static_cast<int>(channel);
    link = stream_rank_.wires().link(members()[peer], number, size() - 1);
  }
  return *link;
}

void StreamCommunicator::do_start(const Call& call, Token /*token*/) {
  stream_rank_.throw_if_failed();
  stream_rank_.note(*this, call, -1);
  if (free_.empty()) {
    free_.push_back(std::make_unique<Active>());
    free_.back()->exchanges.resize(members().size());
  }
  active_.push_back(std::move(free_.back()));
  free_.pop_back();
  Active& active = *active_.back();
  active.mine = {.call = call, .group = Place(name())};
  active.summed = 0;
  active.is_in_place = false;
  active.sum_from = {};
  active.sum_to = {};
  active.is_queued = false;
  if (is_linked(call)) {
    if (carrier_ == nullptr) carrier_ = make_carrier();
    carrier_->post(call, active.posted);
    active.postings.resize(members().size());
    active.postings[static_cast<std::size_t>(rank())] = active.posted;
  }
  plan(active);
  stream_rank_.progress();
}

std::unique_ptr<DeviceCarrier> StreamCommunicator::make_carrier() {
  LinkedGroup group{.title = {},
                    .members = {},
                    .rank = rank(),
                    .lane = lane_,
                    .scratch = scratch(),
                    .has_few_values = has_few_values()};
  group.title = title();
  group.members = members();
  return parts().links->carrier(std::move(group));
}

void StreamCommunicator::do_wait(const Call& call, Token /*token*/) {
  stream_rank_.wait(*this, call);
  if (is_linked(call)) carrier_->wait(call);
  const Active* done = &find(call);
  const auto found = std::find_if(active_.begin(), active_.end(),
                                  [done](const auto& active) { return active.get() == done; });
  free_.push_back(std::move(*found));
  active_.erase(found);
}

void StreamCommunicator::connect() {
  if (parts().links == nullptr || !parts().links->connects_by_calls() || size() == 1) return;
  ORTHANT_CHECK(scratch().present(), "{} has no memory to connect with", title());
  all_reduce({.data = scratch().data, .shape = {1}, .dtype = DType::kI64}, Reduce::kMax);
}

// One ordered pair after another, the same way on all ranks, so that none waits for one that waits.
void StreamCommunicator::connect_ring() {
  if (parts().links == nullptr || !parts().links->connects_by_calls()) return;
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      const bool are_neighbours = (from + 1) % size() == to || (to + 1) % size() == from;
      if (from == to || !are_neighbours || (rank() != from && rank() != to)) continue;
      ORTHANT_CHECK(scratch().present(), "{} has no memory to connect with", title());
      const Tensor word = scratch().flat(0, 1);
      wait(rank() == from ? start_send(word, to, 0) : start_recv(word, from, 0));
    }
  }
}

bool StreamCommunicator::progress() {
  bool moved = false;
  for (std::size_t channel = 0; channel < kNumChannels; ++channel) {
    std::fill(is_sending_[channel].begin(), is_sending_[channel].end(), 0);
    std::fill(is_receiving_[channel].begin(), is_receiving_[channel].end(), 0);
    std::fill(is_connecting_[channel].begin(), is_connecting_[channel].end(), 0);
  }
  for (const auto& active : active_) {
    const Call& call = active->mine.call;
    while (step(*active)) {
      moved = true;
    }
    if (queue(*active)) moved = true;
    for (std::size_t peer = 0; peer < active->exchanges.size(); ++peer) {
      const Exchange& exchange = active->exchanges[peer];
      if (exchange.sent < exchange.out_bytes()) is_sending_[channel_out(call)][peer] = 1;
      if (exchange.received < exchange.in_bytes()) is_receiving_[channel_in(call)][peer] = 1;
    }
  }
  return moved;
}

bool StreamCommunicator::step(Active& active) {
  const std::size_t out = channel_out(active.mine.call);
  const std::size_t in = channel_in(active.mine.call);
  bool moved = false;
  for (std::size_t peer = 0; peer < active.exchanges.size(); ++peer) {
    const Exchange& exchange = active.exchanges[peer];
    if (exchange.is_done()) continue;
    if (is_sending_[out][peer] == 0 && send(active, peer, link(out, peer))) moved = true;
    if (is_receiving_[in][peer] == 0 && receive(active, peer, link(in, peer))) moved = true;
  }
  if (active.summed < static_cast<std::int64_t>(active.sum_to.size()) && sum(active)) moved = true;
  return moved;
}

// Once all sides have posted the call, and those before it are queued.
bool StreamCommunicator::queue(Active& active) {
  const Call& call = active.mine.call;
  if (!is_linked(call) || active.is_queued) return false;
  const auto peer = static_cast<std::size_t>(is_message(call.kind) ? call.peer : 0);
  char& is_held = is_connecting_[channel_out(call)][peer];
  if (is_held == 0 && has_exchanged(active)) {
    active.is_queued = carrier_->queue(call, active.postings);
  }
  if (!active.is_queued) is_held = 1;
  return active.is_queued;
}

// The next bytes of a frame that can be sent now.
std::span<const std::byte> StreamCommunicator::outgoing(const Active& active,
                                                        const Exchange& exchange) const {
  std::int64_t at = exchange.sent;
  const auto rest = [&at](std::span<const std::byte> bytes) {
    return bytes.subspan(static_cast<std::size_t>(at));
  };
  if (at < kHeadBytes) return rest(std::as_bytes(std::span(&active.mine, 1)));
  at -= kHeadBytes;
  const auto first = static_cast<std::int64_t>(exchange.first_out.size());
  if (at < first) return rest(exchange.first_out);
  at -= first;
  const auto second = static_cast<std::int64_t>(exchange.second_out.size());
  if (at < second) return rest(exchange.second_out.first(static_cast<std::size_t>(active.summed)));
  return std::span(kPadding).first(static_cast<std::size_t>(exchange.out_bytes() - exchange.sent));
}

bool StreamCommunicator::send(Active& active, std::size_t peer, Link& link) {
  Exchange& exchange = active.exchanges[peer];
  bool moved = false;
  while (exchange.sent < exchange.out_bytes()) {
    const Bytes room = link.room();
    std::size_t filled = 0;
    while (filled < room.size() && exchange.sent < exchange.out_bytes()) {
      const std::span<const std::byte> from = outgoing(active, exchange);
      const std::size_t count = std::min(from.size(), room.size() - filled);
      if (count == 0) break;
      std::memcpy(room.data() + filled, from.data(), count);
      filled += count;
      exchange.sent += static_cast<std::int64_t>(count);
    }
    if (filled == 0) break;
    link.push(filled);
    moved = true;
  }
  return moved;
}

// All but what sum() takes.
bool StreamCommunicator::receive(Active& active, std::size_t peer, Link& link) {
  Exchange& exchange = active.exchanges[peer];
  bool moved = false;
  while (exchange.received < exchange.in_bytes()) {
    std::int64_t at = exchange.received;
    Bytes to;
    const auto rest = [&at](Bytes bytes) {
      return bytes.subspan(static_cast<std::size_t>(at));
    };
    const auto first = static_cast<std::int64_t>(exchange.first_in.size());
    const auto second = static_cast<std::int64_t>(exchange.second_in.size());
    if (at < kHeadBytes) {
      to = rest(std::as_writable_bytes(std::span(&exchange.theirs, 1)));
    } else if ((at -= kHeadBytes) < exchange.sums_in) {
      break;
    } else if ((at -= exchange.sums_in) < first) {
      to = rest(exchange.first_in);
    } else if ((at -= first) < second) {
      to = rest(exchange.second_in);
    }
    const std::span<const std::byte> front = link.front();
    const bool is_padding = to.empty();
    const std::size_t wanted =
        is_padding ? static_cast<std::size_t>(exchange.in_bytes() - exchange.received) : to.size();
    const std::size_t count = std::min(wanted, front.size());
    if (count == 0) break;
    if (!is_padding) std::memcpy(to.data(), front.data(), count);
    link.pop(count);
    exchange.received += static_cast<std::int64_t>(count);
    moved = true;
    if (exchange.received == kHeadBytes) check_head(active, peer);
  }
  return moved;
}

// As many elements as all others have sent.
bool StreamCommunicator::sum(Active& active) {
  const Call& call = active.mine.call;
  const auto me = static_cast<std::size_t>(rank());
  bool moved = false;
  for (;;) {
    auto count = static_cast<std::int64_t>(active.sum_to.size()) - active.summed;
    for (std::size_t peer = 0; peer < active.exchanges.size() && count > 0; ++peer) {
      if (peer == me) continue;
      const Exchange& exchange = active.exchanges[peer];
      if (is_receiving_[0][peer] != 0 || exchange.received < kHeadBytes) return moved;
      const std::span<const std::byte> front = link(0, peer).front();
      inputs_[peer] = front.data();
      count = std::min(count, static_cast<std::int64_t>(front.size()));
      if (active.is_in_place) count = std::min(count, exchange.sent - kHeadBytes - active.summed);
    }
    count -= count % size_of(call.out.dtype);
    if (count <= 0) return moved;
    inputs_[me] = active.sum_from.data() + active.summed;
    std::byte* const to = active.sum_to.data() + active.summed;
    reduce_in_rank_order(call.out.dtype, call.reduce, inputs_, std::span(&to, 1),
                         count / size_of(call.out.dtype));
    for (std::size_t peer = 0; peer < active.exchanges.size(); ++peer) {
      if (peer == me) continue;
      link(0, peer).pop(static_cast<std::size_t>(count));
      active.exchanges[peer].received += count;
    }
    active.summed += count;
    moved = true;
  }
}

void StreamCommunicator::check_head(const Active& active, std::size_t peer) {
  const Call& mine = active.mine.call;
  const Head& theirs = active.exchanges[peer].theirs;
  const bool is_same = mine.kind == Kind::kSend   ? match(mine, theirs.call)
                       : mine.kind == Kind::kRecv ? match(theirs.call, mine)
                                                  : agree(mine, theirs.call);
  if (is_same && theirs.group == active.mine.group) return;
  const std::string other_group =
      theirs.group == active.mine.group ? "" : fmt::format(" in group '{}'", theirs.group.text());
  stream_rank_.fail(
      fmt::format("{} is in {}, but rank {} is in {}{}: they are number {} and {} of their kind, "
                  "so the ranks have diverged; please report",
                  title(), details_of(mine), members()[peer], details_of(theirs.call), other_group,
                  mine.sequence, theirs.call.sequence));
}

const StreamCommunicator::Active& StreamCommunicator::find(const Call& call) const {
  const auto found = std::find_if(active_.begin(), active_.end(), [&call](const auto& active) {
    const Call& mine = active->mine.call;
    return is_message(mine.kind) == is_message(call.kind) && mine.sequence == call.sequence &&
           mine.peer == call.peer && mine.kind == call.kind;
  });
  ORTHANT_CHECK(found != active_.end(), "{} is not at work in group '{}'",
                text_of(call.kind, call.where), name());
  return **found;
}

bool StreamCommunicator::has_exchanged(const Active& active) const {
  return std::all_of(active.exchanges.begin(), active.exchanges.end(),
                     [](const Exchange& exchange) { return exchange.is_done(); });
}

bool StreamCommunicator::is_done(const Call& call) const {
  const Active& active = find(call);
  return has_exchanged(active) && (active.is_queued || !is_linked(call));
}

// A later call of the same kind and peer waits behind an earlier one.
bool StreamCommunicator::is_before(const Call& earlier, const Call& call) const {
  return channel_out(earlier) == channel_out(call) &&
         (!is_message(call.kind) || earlier.peer == call.peer) && earlier.sequence <= call.sequence;
}

bool StreamCommunicator::is_connecting(const Call& call) const {
  return is_linked(call) && std::any_of(active_.begin(), active_.end(), [&](const auto& active) {
           return is_before(active->mine.call, call) && has_exchanged(*active) &&
                  !active->is_queued;
         });
}

// Of the first call that has not ended.
std::vector<int> StreamCommunicator::missing(const Call& call) {
  std::vector<int> missing;
  for (const auto& active : active_) {
    if (is_before(active->mine.call, call)) append_missing(*active, missing);
    if (!missing.empty()) break;
  }
  return missing;
}

// Those whose bytes have not come, or who have not made room. What others have sent may lie in
// their streams until the last has come.
void StreamCommunicator::append_missing(const Active& active, std::vector<int>& missing) {
  const std::size_t out = channel_out(active.mine.call);
  const std::size_t in = channel_in(active.mine.call);
  for (std::size_t peer = 0; peer < active.exchanges.size(); ++peer) {
    const Exchange& exchange = active.exchanges[peer];
    if (exchange.is_done()) continue;
    const bool must_come =
        exchange.received < exchange.in_bytes() && link(in, peer).front().empty();
    const bool must_go = exchange.sent < exchange.out_bytes() &&
                         !outgoing(active, exchange).empty() && link(out, peer).room().empty();
    if (must_come || must_go) missing.push_back(members()[peer]);
  }
}

}  // namespace orthant
