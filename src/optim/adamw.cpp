#include "optim/adamw.h"

namespace orthant {

void compute_clip_factor(Ops& ops, const ParamStore& store, const Tensor& norm_sum,
                         const Tensor& step_state) {
  ops.run(Zero{.y = norm_sum});
  for (const ParamStore::Segment& segment : store.segments()) {
    if (!segment.counted) continue;
    ops.run(SquaredNorm{.sum = norm_sum, .g = segment.grad, .start = segment.block_start});
  }
  store.norm_group().all_reduce(norm_sum, Reduce::kSum);
  ops.run(ClipFactor{.step_state = step_state, .sum = norm_sum});
}

AdamW update_of(const Segment& segment, const AdamWConfig& config, const Tensor& step_state) {
  return {.master = segment.master,
          .m = segment.m,
          .v = segment.v,
          .value = segment.value,
          .grad = segment.grad,
          .step_state = step_state,
          .beta1 = config.beta1,
          .beta2 = config.beta2,
          .eps = config.eps,
          .weight_decay = segment.decays ? config.weight_decay : 0.0,
          .places = segment.places,
          .stream = segment.stream};
}

void update_parameters(Ops& ops, const ParamStore& store, const AdamWConfig& config,
                       const Tensor& step_state) {
  for (const Segment& segment : store.segments()) {
    if (!segment.on_host) ops.run(update_of(segment, config, step_state));
  }
}

}  // namespace orthant
