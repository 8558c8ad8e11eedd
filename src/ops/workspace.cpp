#include "ops/workspace.h"

#include <algorithm>

namespace orthant {
namespace {

constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));

template <class Op>
bool cudnn_has(const Op& a, Target target) {
  const AttentionShape& n = a.shape;
  const bool has_masks = n.dropout == 0 || target != Target::kCudaDeterministic;
  const bool has_type = a.qkv.dtype == DType::kBF16 || a.qkv.dtype == DType::kF16;
  return has_type && n.D % 8 == 0 && n.D <= 256 && n.S > 1 && has_masks;
}

}  // namespace

namespace cuda {

std::int64_t column_sum_parts(std::int64_t T, std::int64_t O) {
  constexpr std::int64_t kColumns = 256;  // of a block of threads
  constexpr std::int64_t kBlocks = 528;   // four for each multiprocessor of an H100
  constexpr std::int64_t kRows = 64;
  const std::int64_t across = (O + kColumns - 1) / kColumns;
  const std::int64_t most = std::max<std::int64_t>(1, kBlocks / across);
  return std::clamp<std::int64_t>((T + kRows - 1) / kRows, 1, most);
}

std::int64_t norm_bwd_blocks(std::int64_t T) {
  constexpr std::int64_t kBlocks = 264;  // two for each multiprocessor of an H100
  return std::clamp<std::int64_t>((T + 7) / 8, 1, kBlocks);
}

bool is_fused(const AttentionFwd& a, Target target) {
  return cudnn_has(a, target);
}

bool is_fused(const AttentionBwd& a, Target target) {
  return cudnn_has(a, target);
}

std::int64_t fused_bwd_bytes(const AttentionShape& n, Target target) {
  const std::int64_t rows = n.B * n.H * n.S;
  const std::int64_t all_heads = n.H == n.G ? 0 : 2 * rows * n.D * 2;
  constexpr std::int64_t kSlack = std::int64_t{1} << 20;  // alignment, and cuDNN's own few bytes
  const std::int64_t padded = (n.S + 127) / 128 * 128;    // cuDNN's blocks
  const std::int64_t dq = target == Target::kCudaDeterministic
                              ? n.B * n.H * padded * padded * 2 + n.B * n.S * n.G * n.D * 2
                              : rows * n.D * kFloat;
  return kSeedBytes + dq + rows * kFloat + all_heads + kSlack;
}

}  // namespace cuda

std::int64_t cuda_workspace_bytes(const LinearFwd& /*a*/, Target /*target*/) {
  return cuda::kProductBytes;
}

std::int64_t cuda_workspace_bytes(const LinearBwdInput& /*a*/, Target /*target*/) {
  return cuda::kProductBytes;
}

// The partial sums of db lie where the product's workspace was: at most 1056 of 256 columns.
std::int64_t cuda_workspace_bytes(const LinearBwdWeight& a, Target /*target*/) {
  const std::int64_t O = a.dy.shape[1];
  return std::max(cuda::kProductBytes, cuda::column_sum_parts(a.dy.shape[0], O) * O * kFloat);
}

std::int64_t cuda_workspace_bytes(const NormBwd& a, Target /*target*/) {
  return cuda::norm_bwd_blocks(a.x.shape[0]) * a.x.shape[1] * 2 * kFloat;
}

// For each row of the table where its tokens begin and how many have been placed; the tokens by
// row, then in order.
std::int64_t cuda_workspace_bytes(const EmbeddingBwd& a, Target /*target*/) {
  return (2 * (a.dtable.shape[0] + 1) + 2 * a.dy.shape[0]) *
         static_cast<std::int64_t>(sizeof(std::int32_t));
}

std::int64_t cuda_workspace_bytes(const AttentionFwd& a, Target target) {
  return cuda::is_fused(a, target) ? cuda::kFusedFwdBytes : 0;
}

std::int64_t cuda_workspace_bytes(const AttentionBwd& a, Target target) {
  return cuda::is_fused(a, target) ? cuda::fused_bwd_bytes(a.shape, target) : workspace_bytes(a);
}

}  // namespace orthant
