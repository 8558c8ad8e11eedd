// CacheMemory: keys and values of the tokens so far, in an arena. It owns the length that layers
// see.
#pragma once

#include <vector>

#include "layers/context.h"
#include "model/model_config.h"

namespace orthant {

class CacheMemory {
 public:
  // B sequences of at most M tokens; one pair of tensors [B,M,G,D] a block. `model` is complete.
  CacheMemory(const ModelConfig& model, std::int64_t B, std::int64_t M, DType dtype, Arena& arena);

  // The cache as the next forward sees it; stays valid until this moves.
  const KvCache& view() const { return view_; }
  std::int64_t length() const { return view_.length; }
  std::int64_t capacity() const { return capacity_; }

  void advance(std::int64_t num_tokens);  // a forward has written them
  void clear() { view_.length = 0; }

 private:
  std::int64_t capacity_;
  std::vector<KvCache::Block> blocks_;
  KvCache view_;
};

}  // namespace orthant
