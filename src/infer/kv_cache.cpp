#include "infer/kv_cache.h"

#include "base/check.h"

namespace orthant {

CacheMemory::CacheMemory(const ModelConfig& model, std::int64_t B, std::int64_t M, DType dtype,
                         Arena& arena)
    : capacity_(M) {
  const Shape shape = {B, M, model.kv_heads, model.head_dim};
  for (std::int64_t block = 0; block < model.layers; ++block) {
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

}  // namespace orthant
