// BatchLoader: brings the tokens of a micro-batch from the host into its slot. Every stage loads
// them by itself: all ranks read the same data plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers/context.h"
#include "layers/stash.h"

namespace orthant {

// Token ids of one micro-batch on the host: B rows of S+1. Empty spans in a dry run.
struct HostMicro {
  std::span<const std::int32_t> tokens;
  std::span<const std::int64_t> sample_ids;  // [B]
};

class BatchLoader {
 public:
  BatchLoader(Device& device, std::int64_t B, std::int64_t S);
  // Takes memory from the stash. `host` is null in a dry run: nothing is copied then.
  MicroBatch load(Stash& stash, const HostMicro* host);

 private:
  Device& device_;
  std::int64_t B_;
  std::int64_t S_;
  std::vector<std::int32_t> staging_;  // [T]
};

}  // namespace orthant
