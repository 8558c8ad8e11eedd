// Threads that turn inputs into results; results come back in the order in which the inputs came.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace orthant {

// One thread owns it: puts and takes. `work` is called by several at once.
template <class In, class Out>
class OrderedWorkers {
 public:
  OrderedWorkers(std::function<Out(In&)> work, int num_threads) : work_(std::move(work)) {
    for (int i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this] { run(); });
    }
  }
  ~OrderedWorkers() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    is_waiting_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  OrderedWorkers(const OrderedWorkers&) = delete;
  OrderedWorkers& operator=(const OrderedWorkers&) = delete;

  void put(In input) {
    jobs_.push_back(std::make_unique<Job>(std::move(input)));
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(jobs_.back().get());
    }
    is_waiting_.notify_one();
  }

  // The oldest input and its result; waits for it. What failed in it is thrown.
  std::pair<In, Out> take() {
    const std::unique_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    {
      std::unique_lock lock(mutex_);
      is_done_.wait(lock, [&job] { return job->is_done; });
    }
    if (job->failure != nullptr) std::rethrow_exception(job->failure);
    return {std::move(job->input), std::move(job->result)};
  }

  std::size_t num_jobs() const { return jobs_.size(); }

 private:
  struct Job {
    explicit Job(In given) : input(std::move(given)) {}
    In input;
    Out result;
    std::exception_ptr failure;
    bool is_done = false;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      is_waiting_.wait(lock, [this] { return is_stopping_ || !waiting_.empty(); });
      if (is_stopping_) return;
      Job& job = *waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      try {
        job.result = work_(job.input);
      } catch (...) {
        job.failure = std::current_exception();
      }
      lock.lock();
      job.is_done = true;
      is_done_.notify_one();
    }
  }

  std::function<Out(In&)> work_;
  std::mutex mutex_;
  std::condition_variable is_waiting_;
  std::condition_variable is_done_;
  std::deque<std::unique_ptr<Job>> jobs_;  // put and not taken; the owner's alone
  std::deque<Job*> waiting_;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace orthant
