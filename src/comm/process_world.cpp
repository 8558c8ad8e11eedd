#include "comm/process_world.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/stream/stream_communicator.h"

namespace orthant {
namespace {

// A tensor of host memory that is not an arena's.
template <class Values>
Tensor tensor_of(Values& values, DType dtype) {
  return {.data = reinterpret_cast<std::byte*>(values.data()),
          .shape = {static_cast<std::int64_t>(values.size())},
          .dtype = dtype};
}

}  // namespace

ProcessWorld::ProcessWorld(std::unique_ptr<Wires> wires, double deadline_s, int local_rank)
    : rank_(std::move(wires), deadline_s),
      local_rank_(local_rank >= 0 ? local_rank : rank_.rank() % rank_.wires().num_local()) {}

ProcessWorld::~ProcessWorld() {
  links_.reset();
  rank_.end();
}

int ProcessWorld::num_threads() {
  const auto own = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, std::min(own, rank_.wires().num_cores() / num_local()));
}

std::unique_ptr<Communicator> ProcessWorld::join(const CommParts& parts) {
  std::vector<int> members(static_cast<std::size_t>(size()));
  std::iota(members.begin(), members.end(), 0);
  CommParts linked = parts;
  if (parts.queue != nullptr) {
    links_.reset();
    links_ = make_device_links(rank_, parts);
    linked.links = links_.get();
  }
  return std::make_unique<StreamCommunicator>(rank_, "world", std::move(members), rank(), 0,
                                              linked);
}

void ProcessWorld::close_links() {
  if (links_ != nullptr) links_->close();
}

std::string ProcessWorld::links() const {
  return links_ == nullptr ? "" : links_->text();
}

void ProcessWorld::agree(const std::function<void()>& act) {
  Fault fault = Fault::kRun;
  std::string message;
  bool has_failed = true;
  try {
    act();
    has_failed = false;
  } catch (const Error& error) {
    fault = error.fault();
    message = error.what();
  } catch (const std::exception& error) {
    message = error.what();
  }
  if (size() == 1) {
    if (has_failed) throw Error(fault, message);
    return;
  }
  run([&] {
    Ledger ledger;
    InFlight in_flight;
    const auto world = join({.ledger = ledger, .in_flight = in_flight});
    const Where where(ledger, "agreement");
    std::array<std::int64_t, 1> first = {has_failed ? size() - rank() : 0};
    world->all_reduce(tensor_of(first, DType::kI64), Reduce::kMax);
    if (first[0] == 0) return;
    const int failing = size() - static_cast<int>(first[0]);
    std::array<std::int64_t, 2> form = {static_cast<std::int64_t>(fault),
                                        static_cast<std::int64_t>(message.size())};
    world->broadcast(tensor_of(form, DType::kI64), failing);
    message.resize(static_cast<std::size_t>(form[1]));
    world->broadcast(tensor_of(message, DType::kU8), failing);
    fault = static_cast<Fault>(form[0]);
    if (failing != 0) message = fmt::format("rank {}: {}", failing, message);
    has_failed = true;
    // The others leave when rank 0, which says it, has heard it: whoever has ended counts as lost.
    try {
      world->broadcast(tensor_of(first, DType::kI64), 0);
    } catch (const PeerFailed&) {
      if (!is_first()) throw;
    }
  });
  if (!has_failed) return;
  if (is_first()) throw Error(fault, message);
  throw Reported(fault, message);
}

void ProcessWorld::require_same(std::int64_t value, const std::string& what,
                                const std::string& advice) {
  std::array<std::int64_t, 2> ends = {value, -value};
  run([&] {
    if (size() == 1) return;
    Ledger ledger;
    InFlight in_flight;
    const Where where(ledger, "agreement");
    join({.ledger = ledger, .in_flight = in_flight})
        ->all_reduce(tensor_of(ends, DType::kI64), Reduce::kMax);
  });
  agree([&] {
    if (ends[0] == -ends[1]) return;
    fail_user("{} is {} here, and {} to {} on the ranks; {}", what, value, -ends[1], ends[0],
              advice);
  });
}

void ProcessWorld::tell_others(const std::function<void()>& act) {
  try {
    act();
  } catch (const PeerFailed&) {
    throw;
  } catch (const Error& error) {
    if (rank_.wires().board().fail(rank(), error.what()))
      rank_.wires().announce_failure(error.fault());
    throw;
  } catch (const std::exception& error) {
    if (rank_.wires().board().fail(rank(), error.what()))
      rank_.wires().announce_failure(Fault::kRun);
    throw;
  }
}

void ProcessWorld::run(const std::function<void()>& act) {
  // Where another was first, that one says it.
  const auto stop_others = [this](Fault fault, const char* why) {
    if (rank_.wires().board().fail(rank(), why)) return rank_.wires().announce_failure(fault);
    if (!rank_.wires().board().is_reported_by(rank())) throw Reported(fault, why);
  };
  try {
    act();
    // A group that went before its calls were waited for could not throw.
    const Board& board = rank_.wires().board();
    if (board.has_failed() && board.is_reported_by(rank())) fail_run("{}", board.failure());
  } catch (const PeerFailed& error) {
    throw Reported(error.fault(), error.what());
  } catch (const Error& error) {
    stop_others(error.fault(), error.what());
    const std::string mine = fmt::format("rank {}", rank());
    const bool is_named = is_first() || std::string_view(error.what()).starts_with(mine + " ");
    throw Error(error.fault(), is_named ? error.what() : mine + ": " + error.what());
  } catch (const std::exception& error) {
    stop_others(Fault::kRun, error.what());
    throw;
  }
}

}  // namespace orthant
