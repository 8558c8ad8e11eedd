// BatchLoader: brings the tokens of a micro-batch from the host into its slot. Every stage loads
// them by itself: all ranks read the same data plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers/context.h"
#include "layers/stash.h"

namespace orthant {

// One micro-batch on the host.
struct HostMicro {
  std::span<const std::int32_t> tokens;      // [B,S+1]
  std::span<const std::int64_t> sample_ids;  // [B]
  // [B,S+1]: of each token in its document, 0 where one begins; empty: a row is one document.
  std::span<const std::int32_t> places = {};
  // Where there are places: tokens of this micro-batch on all dp ranks whose next one is of the
  // same document.
  std::int64_t num_targets = 0;
};

class BatchLoader {
 public:
  // `by_document`: attention is to end where documents do.
  BatchLoader(Device& device, std::int64_t B, std::int64_t S, bool by_document);
  // Takes memory from the stash. `host` is null in a dry run: nothing is copied then.
  MicroBatch load(Stash& stash, const HostMicro* host);

 private:
  Device& device_;
  std::int64_t B_;
  std::int64_t S_;
  bool by_document_;
  std::vector<std::int32_t> staging_;  // [T]
};

}  // namespace orthant
