#include "train/run_limits.h"

#include "base/check.h"

namespace orthant {
namespace {

struct Limit {
  bool is_asked;
  std::string option;
  const char* instead;
};

}  // namespace

void check_built(const RunConfig& config) {
  const LayoutConfig& layout = config.layout;
  const auto text = [](const char* name, const std::string& value) {
    return fmt::format("{}='{}'", name, value);
  };
  const bool is_cuda = config.device.kind == "cuda";
  const Limit limits[] = {
      {layout.sequence_parallel && layout.tp > 1, "layout.sequence_parallel=true with tp above 1",
       "false"},
      {layout.recompute != "none", text("layout.recompute", layout.recompute), "'none'"},
      {layout.offload == "stash", text("layout.offload", layout.offload), "'optimizer' or 'none'"},
      {is_cuda && config.optimizer.moments == "bf16",
       "optimizer.moments='bf16' with device.kind='cuda'", "'fp32'"},
      {is_cuda && config.precision.grad_accum == "bf16",
       "precision.grad_accum='bf16' with device.kind='cuda'", "'fp32'"},
      {config.data.order == "megatron", "data.order='megatron'", "'shuffled' or 'sequential'"},
      {!config.data.weights.empty(), "data.weights",
       "data.train alone: prefixes one after another"},
      {layout.recompute_blocks > 0,
       fmt::format("layout.recompute_blocks={}", layout.recompute_blocks), "0"},
      {config.data.max_documents > 0,
       fmt::format("data.max_documents={}", config.data.max_documents), "0"},
  };
  for (const Limit& limit : limits) {
    if (limit.is_asked) {
      fail_user("{} is not built into this version; use {}", limit.option, limit.instead);
    }
  }
}

}  // namespace orthant
