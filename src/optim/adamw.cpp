#include "optim/adamw.h"

namespace orthant {

void compute_clip_factor(Ops& ops, const ParamStore& store, const Tensor& norm_sum,
                         const Tensor& step_state) {
  ops.run(Zero{.y = norm_sum});
  for (const ParamStore::Segment& segment : store.segments()) {
    if (segment.counted) ops.run(SquaredNorm{.sum = norm_sum, .g = segment.grad});
  }
  store.norm_group().all_reduce(norm_sum, Reduce::kSum);
  ops.run(ClipFactor{.step_state = step_state, .sum = norm_sum});
}

void update_parameters(Ops& ops, const ParamStore& store, const AdamWConfig& config,
                       const Tensor& step_state) {
  for (const ParamStore::Segment& segment : store.segments()) {
    ops.run(AdamW{.master = segment.master,
                  .m = segment.m,
                  .v = segment.v,
                  .value = segment.value,
                  .grad = segment.grad,
                  .step_state = step_state,
                  .beta1 = config.beta1,
                  .beta2 = config.beta2,
                  .eps = config.eps,
                  .weight_decay = segment.decays ? config.weight_decay : 0.0});
  }
}

}  // namespace orthant
