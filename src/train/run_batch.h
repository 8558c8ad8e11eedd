// The identity of a step's batch: global_batch = micro_batch * dp * accumulation. Two of the three
// numbers suffice.
#pragma once

#include "train/run_config.h"

namespace orthant {

// Derives the one that was not given where train.accumulation was. `options` are those of `config`.
void settle_batch(RunConfig& config, const FieldList& options);

// The identity, for train.global_batch and each entry of train.batch_ramp; a user error names the
// nearest values that satisfy it.
void check_batches(const RunConfig& config);

// What micro-batches are multiples of: of 2 where their halves take turns, and of what makes rows
// that tp shares out evenly.
std::int64_t micro_batch_unit(const LayoutConfig& layout, std::int64_t seq_length);

// "6 or 9": the multiples of `unit` around `number`, from `unit` on.
std::string nearest_multiples(std::int64_t number, std::int64_t unit);

}  // namespace orthant
