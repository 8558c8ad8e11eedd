// ThreadWorld and the threads of its ranks.
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "comm/backends.h"
#include "comm/thread/thread_communicator.h"

namespace orthant {

struct ThreadWorld::State : SharedState {
  using SharedState::SharedState;
};

namespace {

// The error to report: the first that is not about another rank.
class FirstError {
 public:
  void add(std::exception_ptr error, bool is_about_peer) {
    const std::lock_guard lock(mutex_);
    if (error_ == nullptr || (is_about_peer_ && !is_about_peer)) {
      error_ = std::move(error);
      is_about_peer_ = is_about_peer;
    }
  }
  void rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  bool is_about_peer_ = false;
};

void run_rank(ThreadWorld& world, const std::function<void(int)>& body, int rank,
              FirstError& first) {
  try {
    body(rank);
  } catch (const PeerFailed&) {
    first.add(std::current_exception(), true);
  } catch (const std::exception& error) {
    first.add(std::current_exception(), false);
    world.poison(rank, error.what());
  } catch (...) {
    first.add(std::current_exception(), false);
    world.poison(rank, "an unknown exception");
  }
}

}  // namespace

ThreadWorld::ThreadWorld(int size, double deadline_s)
    : state_(std::make_unique<State>(size, deadline_s)) {
  ORTHANT_CHECK(size >= 1, "a world of {} ranks; it needs one or more", size);
}

ThreadWorld::~ThreadWorld() = default;

int ThreadWorld::size() const {
  return state_->size();
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
  FirstError first;
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(world.size()));
    for (int rank = 0; rank < world.size(); ++rank) {
      try {
        threads.emplace_back([&world, &body, &first, rank] { run_rank(world, body, rank, first); });
      } catch (const std::exception& error) {
        first.add(std::current_exception(), false);
        world.poison(rank, error.what());
        break;
      }
    }
  }
  first.rethrow();
}

}  // namespace orthant
