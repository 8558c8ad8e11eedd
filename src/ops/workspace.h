// What ops take of the work arena where the arithmetic is a GPU's: pure functions of shapes, so
// that a dry run plans them where no GPU is.
#pragma once

#include <cstdint>
#include <string_view>

#include "ops/attention.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace orthant {

// Whose workspaces are taken; a dry run takes those of the run that it plans.
enum class Target : std::uint8_t {
  kHost,
  kCuda,
  kCudaDeterministic  // the same bits in every run, for more memory and time
};
inline Target target_of(std::string_view ops, bool is_deterministic = false) {
  if (ops != "cuda") return Target::kHost;
  return is_deterministic ? Target::kCudaDeterministic : Target::kCuda;
}

namespace cuda {

// What a matrix product may take: enough for every algorithm that adds partial products.
inline constexpr std::int64_t kProductBytes = std::int64_t{32} << 20;

// Column sums over T rows of O columns are made of so many partial sums, each of 64 rows or more.
std::int64_t column_sum_parts(std::int64_t T, std::int64_t O);

// Blocks of rows whose terms of dw and db are added before they meet those of other blocks.
std::int64_t norm_bwd_blocks(std::int64_t T);

// Whether cuDNN computes this attention: 16-bit types, head widths of whole 16 bytes up to 256, and
// where bits count no dropout, whose masks are then those of ops/dropout.h. Our own kernel does the
// rest.
bool is_fused(const AttentionFwd& a, Target target);
bool is_fused(const AttentionBwd& a, Target target);
// Of a workspace dropout's seed comes first.
inline constexpr std::int64_t kSeedBytes = 256;
// What the fused forward may take: the seed, and the few bytes that cuDNN wants.
inline constexpr std::int64_t kFusedFwdBytes = std::int64_t{64} << 10;
// Scratch of the fused backward: the seed, an f32 sum of dq (where deterministic: 16-bit gradients
// of all scores, and the keys), rowsum(do * o), and with grouped heads dk and dv of every query
// head.
std::int64_t fused_bwd_bytes(const AttentionShape& n, Target target);

}  // namespace cuda

template <class A>
std::int64_t cuda_workspace_bytes(const A& /*a*/, Target /*target*/) {
  return 0;
}
std::int64_t cuda_workspace_bytes(const LinearFwd& a, Target target);
std::int64_t cuda_workspace_bytes(const LinearBwdInput& a, Target target);
std::int64_t cuda_workspace_bytes(const LinearBwdWeight& a, Target target);
std::int64_t cuda_workspace_bytes(const NormBwd& a, Target target);
std::int64_t cuda_workspace_bytes(const EmbeddingBwd& a, Target target);
std::int64_t cuda_workspace_bytes(const AttentionFwd& a, Target target);
std::int64_t cuda_workspace_bytes(const AttentionBwd& a, Target target);

}  // namespace orthant
