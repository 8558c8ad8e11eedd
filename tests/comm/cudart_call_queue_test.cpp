// Which call a GPU is in, where its host has posted and waited for many more.
#include <atomic>
#include <chrono>
#include <thread>

#include <cuda_runtime_api.h>

#include "comm/cuda/call_queue.h"
#include "tests/comm/gpu_bed.h"

namespace orthant {
namespace {

constexpr int kCalls = 100;

Call call_number(int number) {
  return {.kind = Call::Kind::kAllReduce, .out = {}, .in = {}, .sequence = number};
}

// Looks until `is_seen` says so, for a while.
template <class IsSeen>
bool look_until(CallQueue& queue, const IsSeen& is_seen) {
  for (int i = 0; i < 1000; ++i) {
    if (is_seen(queue.look())) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

void a_late_call_is_seen() {
  cudaStream_t ops = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&ops, cudaStreamNonBlocking), cudaSuccess);
  std::atomic<bool> may_end{false};
  {
    CallQueue queue(ops, {1}, "rank 0");
    for (int number = 0; number < kCalls; ++number) {
      queue.post(call_number(number));
      queue.begin();
      if (number == 3) {
        const auto hold = [](void* flag) {
          while (!static_cast<std::atomic<bool>*>(flag)->load())
            std::this_thread::yield();
        };
        ASSERT_EQ(cudaLaunchHostFunc(queue.stream(), hold, &may_end), cudaSuccess);
      }
      queue.end();
      queue.wait(call_number(number));
    }
    EXPECT_TRUE(look_until(queue, [](const CallQueue::Look& seen) {
      return seen.at_work && seen.at_work->sequence == 3;
    })) << "call 3 is the one that the GPU is in";
    EXPECT_FALSE(queue.look().has_moved);
    may_end = true;
    EXPECT_TRUE(look_until(queue, [](const CallQueue::Look& seen) { return seen.has_moved; }));
    EXPECT_TRUE(look_until(queue, [](const CallQueue::Look& seen) { return !seen.at_work; }));
  }
  cudaStreamDestroy(ops);
}

TEST(OnOneGpu, ACallThatManyWaitForIsSeen) {
  if (num_gpus_here() < 1) GTEST_SKIP() << "no GPU is here";
  run_processes(1, 60, [](ProcessWorld&) {
    const auto device = make_gpu_of_process(0);
    a_late_call_is_seen();
  });
}

}  // namespace
}  // namespace orthant
