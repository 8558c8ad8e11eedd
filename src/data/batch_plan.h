// Which sample every row of every micro-batch reads: pure arithmetic on global positions.
#pragma once

#include <cstdint>

namespace orthant {

// A rank's part of the global batches.
struct BatchGeometry {
  std::int64_t global_batch = 1;  // sequences a step
  std::int64_t micro_batch = 1;
  std::int64_t dp = 1;
  std::int64_t dp_rank = 0;
  std::int64_t seq_length = 0;
  // Position of step 0 as if every step had this global batch. A batch ramp makes it differ from 0:
  // samples before the step at which the geometry begins, minus that step * global_batch.
  std::int64_t origin = 0;
  bool by_document = false;  // whether the documents of a sequence are told apart

  std::int64_t num_micros() const { return global_batch / (micro_batch * dp); }
};

// global_batch must be a multiple of micro_batch * dp.
void check_geometry(const BatchGeometry& geometry);

// The global sample position of a row of micro-batch `micro` in `step`, both from 0. Over all
// ranks, micro-batches and rows, a step has origin + step * global_batch and the global_batch - 1
// positions after it, whatever the layout.
inline std::int64_t sample_position(const BatchGeometry& geometry, std::int64_t step,
                                    std::int64_t micro, std::int64_t row) {
  return geometry.origin + step * geometry.global_batch +
         (micro * geometry.dp + geometry.dp_rank) * geometry.micro_batch + row;
}

// A bijection of [0, count), a function of (seed, epoch, count) alone: a Feistel network over the
// next even number of bits, walked until it lands inside. Needs no memory.
std::int64_t shuffled_index(std::int64_t index, std::int64_t count, std::uint64_t seed,
                            std::int64_t epoch);

// The sample of [0, num_samples) that a global position reads. Positions beyond the first epoch
// begin again; shuffled, every epoch has a permutation of its own.
std::int64_t sample_at(std::int64_t position, std::int64_t num_samples, bool is_shuffled,
                       std::uint64_t seed);

}  // namespace orthant
