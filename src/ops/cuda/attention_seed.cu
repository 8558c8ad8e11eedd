#include "ops/cuda/attention_seed.h"
#include "ops/cuda/kernel.cuh"
#include "ops/cuda/philox.cuh"

namespace orthant::cuda {
namespace {

__global__ void seed_kernel(DropoutRule rule, const std::int64_t* sample_ids,
                            std::int64_t num_all_heads, std::int64_t first_head,
                            AttentionSeed* seed) {
  const DropoutRule::Step step = rule.of_step();
  const auto first = static_cast<std::uint64_t>(sample_ids[0] * num_all_heads + first_head);
  const uint4 words = philox_words(step.seed, step.stream, first);
  seed->seed =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(words.y) << 32 | std::uint64_t{words.x});
  seed->offset = 0;
}

}  // namespace

void write_attention_seed(cudaStream_t stream, const AttentionShape& n, const Tensor& sample_ids,
                          const Tensor& step_state, AttentionSeed* seed) {
  seed_kernel<<<1, 1, 0, stream>>>(make_dropout_rule(step_state, n.site, n.dropout),
                                   sample_ids.ptr<const std::int64_t>(), n.num_all_heads,
                                   n.first_head, seed);
  check_launch("attention's seed");
}

}  // namespace orthant::cuda
