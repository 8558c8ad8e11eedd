#include "infer/kv_cache.h"

#include "base/check.h"

namespace orthant {

CacheMemory::CacheMemory(const Sizes& sizes, DType dtype, Arena& arena) : capacity_(sizes.M) {
  const Shape shape = {sizes.B, sizes.M, sizes.G, sizes.D};
  for (std::int64_t block = 0; block < sizes.blocks; ++block) {
    const Tensor k = arena.alloc(shape, dtype, MemClass::kActivations);
    const Tensor v = arena.alloc(shape, dtype, MemClass::kActivations);
    blocks_.push_back({.k = k, .v = v});
  }
  view_.blocks = blocks_;
}

void CacheMemory::advance(std::int64_t num_tokens) {
  ORTHANT_CHECK(view_.length + num_tokens <= capacity_,
                "the cache holds {} of {} tokens; {} more do not fit", view_.length, capacity_,
                num_tokens);
  view_.length += num_tokens;
}

void CacheMemory::rewind(std::int64_t length) {
  ORTHANT_CHECK(length >= 0 && length <= view_.length, "the cache has {} tokens, {} were to stay",
                view_.length, length);
  view_.length = length;
}

}  // namespace orthant
