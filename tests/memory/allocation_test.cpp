// After start nothing is allocated outside arenas: from step 2 on no heap block above 4 KiB, no
// mapping, no growth. This program replaces malloc and mmap by counting ones.
#include <atomic>
#include <cstddef>

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/fixture.h"

namespace {

struct Counts {
  std::atomic<bool> watching = false;
  std::atomic<std::int64_t> large_blocks = 0;  // above 4 KiB
  std::atomic<std::int64_t> mappings = 0;
  std::atomic<std::int64_t> live_bytes = 0;  // of all blocks, whenever they were made
};
Counts counts;  // NOLINT: the replaced functions have no other place for it

void note_block(void* block) {
  if (block == nullptr) return;
  const auto bytes = static_cast<std::int64_t>(malloc_usable_size(block));
  counts.live_bytes += bytes;
  if (counts.watching && bytes > 4096 + 64) ++counts.large_blocks;
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): names of the C library.
// NOLINTBEGIN(performance-no-int-to-ptr): what a system call returns.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* block);

void* malloc(std::size_t bytes) {
  void* block = __libc_malloc(bytes);
  note_block(block);
  return block;
}
void* calloc(std::size_t count, std::size_t bytes) {
  void* block = __libc_calloc(count, bytes);
  note_block(block);
  return block;
}
void* realloc(void* block, std::size_t bytes) {
  if (block != nullptr) counts.live_bytes -= static_cast<std::int64_t>(malloc_usable_size(block));
  void* moved = __libc_realloc(block, bytes);
  note_block(moved);
  return moved;
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  void* block = __libc_memalign(alignment, bytes);
  note_block(block);
  return block;
}
void free(void* block) {
  if (block != nullptr) counts.live_bytes -= static_cast<std::int64_t>(malloc_usable_size(block));
  __libc_free(block);
}
void* mmap(void* address, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  if (counts.watching) ++counts.mappings;
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
}
}
// NOLINTEND(performance-no-int-to-ptr)
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)

namespace orthant::test {
namespace {

void expect_quiet_steps(const ModelConfig& model, int tp, int pp, int dp, DType compute,
                        DType master = DType::kF32) {
  RankConfig config;
  config.model = model;
  config.layout.ranks = tp * pp * dp;
  config.layout.tp = tp;
  config.layout.pp = pp;
  config.seq_length = 32;
  config.compute = compute;
  config.master = master;
  config.max_micros = 4 / dp;
  const std::vector<std::int32_t> stream(4000, 7);
  ThreadWorld world(config.layout.ranks, 60);
  run_rank_threads(world, [&](int r) {
    const DryRun plan = dry_run(config, r, 0);
    const auto device = make_host_device();
    const Backend backend{
        .device = *device,
        .ops = "cpu",
        .join_world = [&](const CommParts& parts) { return world.join(r, parts); },
        .num_threads = config.layout.ranks == 1 ? 2 : 1};
    Rank rank(config, backend, plan.memory);
    rank.store().load(InitSource(1));
    const StepData data(stream, config.layout, rank.mesh().coord(Axis::kDp), 0, 4,
                        config.seq_length);
    const auto step = [&](int number) {
      rank.step(number, 1e-3, data.micros, static_cast<int>(data.micros.size()));
    };
    step(1);
    rank.mesh().world().barrier();
    if (r == 0) counts.watching = true;
    rank.mesh().world().barrier();
    for (int number = 2; number <= 5; ++number) {
      step(number);
    }
    rank.mesh().world().barrier();
    const std::int64_t before = counts.live_bytes;
    rank.mesh().world().barrier();
    for (int number = 6; number <= 105; ++number) {
      step(number);
    }
    rank.mesh().world().barrier();
    if (r == 0) {
      counts.watching = false;
      // Lists of one rank may still settle; a block lost in every step would show.
      EXPECT_LT(counts.live_bytes - before, 1024) << "bytes of growth over 100 steps";
    }
    rank.mesh().world().barrier();
  });
  EXPECT_EQ(counts.large_blocks.exchange(0), 0) << "heap blocks above 4 KiB since step 2";
  EXPECT_EQ(counts.mappings.exchange(0), 0) << "mappings since step 2";
}

TEST(Allocation, NoneAfterTheFirstStep) {
  expect_quiet_steps(preset("tiny-gpt"), 1, 1, 1, DType::kF32);
  expect_quiet_steps(preset("tiny-llama"), 2, 2, 2, DType::kF32);
  expect_quiet_steps(preset("tiny-bloom"), 1, 2, 1, DType::kBF16);
  expect_quiet_steps(preset("tiny-llama"), 1, 1, 2, DType::kBF16, DType::kI16);
}

TEST(Allocation, CountingSeesALargeBlock) {
  counts.watching = true;
  const std::vector<char> block(10000);
  counts.watching = false;
  EXPECT_EQ(counts.large_blocks.exchange(0), 1);
  EXPECT_NE(block.data(), nullptr);
}

}  // namespace
}  // namespace orthant::test
