// ThreadWorld and the threads of its ranks.
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "comm/backends.h"
#include "comm/thread/thread_communicator.h"

namespace orthant {

struct ThreadWorld::State : SharedState {
  using SharedState::SharedState;
};

namespace {

// How long ranks may go on after one has failed, until their next call stops them.
constexpr double kGrace = 10;

// What the threads of the ranks leave: who has ended, and the error to report, which is the first
// that is not about another rank.
class Ends {
 public:
  explicit Ends(int num_ranks) : has_ended_(static_cast<std::size_t>(num_ranks)) {}

  void fail(std::exception_ptr error, bool is_about_peer) {
    const std::lock_guard lock(mutex_);
    if (error_ == nullptr) failed_at_ = Board::Clock::now();
    if (error_ == nullptr || (is_about_peer_ && !is_about_peer)) {
      error_ = std::move(error);
      is_about_peer_ = is_about_peer;
    }
    changed_.notify_all();
  }
  void end(int rank) {
    const std::lock_guard lock(mutex_);
    has_ended_[static_cast<std::size_t>(rank)] = true;
    changed_.notify_all();
  }
  // Returns the ranks that are still at work `grace_s` after the first failure.
  std::vector<int> wait(double grace_s) {
    std::unique_lock lock(mutex_);
    const auto all_ended = [this] {
      return std::find(has_ended_.begin(), has_ended_.end(), false) == has_ended_.end();
    };
    changed_.wait(lock, [&] { return error_ != nullptr || all_ended(); });
    if (error_ != nullptr) changed_.wait_until(lock, after(failed_at_, grace_s), all_ended);
    std::vector<int> at_work;
    for (std::size_t rank = 0; rank < has_ended_.size(); ++rank) {
      if (!has_ended_[rank]) at_work.push_back(static_cast<int>(rank));
    }
    return at_work;
  }
  void rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> has_ended_;
  std::exception_ptr error_;
  bool is_about_peer_ = false;
  Board::Clock::time_point failed_at_;
};

void run_rank(ThreadWorld& world, const std::function<void(int)>& body, int rank, Ends& ends) {
  try {
    body(rank);
  } catch (const PeerFailed&) {
    ends.fail(std::current_exception(), true);
  } catch (const std::exception& error) {
    ends.fail(std::current_exception(), false);
    world.poison(rank, error.what());
  } catch (...) {
    ends.fail(std::current_exception(), false);
    world.poison(rank, "an unknown exception");
  }
  ends.end(rank);
}

// A thread cannot be stopped from outside, and what it uses cannot be freed under it: so the
// process ends here, with the message that main would have given.
[[noreturn]] void end_process(const Ends& ends, const std::string& at_work) {
  Fault fault = Fault::kRun;
  std::string message = "an unknown exception";
  try {
    ends.rethrow();
  } catch (const Error& error) {
    fault = error.fault();
    message = error.what();
  } catch (const std::exception& error) {
    message = error.what();
  } catch (...) {
    fault = Fault::kRun;
  }
  fmt::print(stderr, "orthant: {}; {}, so the process is ended\n", message, at_work);
  std::fflush(stderr);
  std::_Exit(static_cast<int>(fault));
}

}  // namespace

ThreadWorld::ThreadWorld(int size, double deadline_s)
    : state_(std::make_unique<State>(size, deadline_s)) {
  ORTHANT_CHECK(size >= 1, "a world of {} ranks; it needs one or more", size);
}

ThreadWorld::~ThreadWorld() = default;

int ThreadWorld::size() const {
  return state_->board().size();
}

double ThreadWorld::deadline_s() const {
  return state_->deadline_s();
}

std::string ThreadWorld::describe(const std::vector<int>& ranks) const {
  std::vector<std::string> texts;
  texts.reserve(ranks.size());
  for (const int rank : ranks) {
    texts.push_back(state_->board().describe(rank));
  }
  return orthant::join(texts) + " and did not stop";
}

std::unique_ptr<Communicator> ThreadWorld::join(int rank, const CommParts& parts) {
  std::vector<int> members(static_cast<std::size_t>(size()));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<ThreadCommunicator>(*state_, "world", std::move(members), rank, 0, parts);
}

void ThreadWorld::poison(int rank, const std::string& why) {
  state_->fail(rank, why);
}

void run_rank_threads(ThreadWorld& world, const std::function<void(int rank)>& body) {
  Ends ends(world.size());
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank) {
    try {
      threads.emplace_back([&world, &body, &ends, rank] { run_rank(world, body, rank, ends); });
    } catch (const std::exception& error) {
      ends.fail(std::current_exception(), false);
      world.poison(rank, error.what());
      for (; rank < world.size(); ++rank) {
        ends.end(rank);
      }
    }
  }
  const std::vector<int> at_work = ends.wait(std::min(kGrace, world.deadline_s()));
  if (!at_work.empty()) end_process(ends, world.describe(at_work));
  threads.clear();
  ends.rethrow();
}

}  // namespace orthant
