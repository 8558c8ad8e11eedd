// CacheMemory: keys and values of the tokens so far, in an arena. It owns the length that layers
// see.
#pragma once

#include <vector>

#include "layers/context.h"

namespace orthant {

class CacheMemory {
 public:
  // Of a rank: one pair of tensors [B,M,G,D] for each of its blocks, G its own key-value heads.
  struct Sizes {
    std::int64_t blocks;
    std::int64_t B;  // sequences
    std::int64_t M;  // tokens of each at most
    std::int64_t G;
    std::int64_t D;
  };
  CacheMemory(const Sizes& sizes, DType dtype, Arena& arena);

  // The cache as the next forward sees it; stays valid until this moves.
  const KvCache& view() const { return view_; }
  std::int64_t length() const { return view_.length; }
  std::int64_t capacity() const { return capacity_; }

  void advance(std::int64_t num_tokens);  // a forward has written them
  void rewind(std::int64_t length);       // the tokens behind it are forgotten
  void clear() { rewind(0); }

 private:
  std::int64_t capacity_;
  std::vector<KvCache::Block> blocks_;
  KvCache view_;
};

}  // namespace orthant
