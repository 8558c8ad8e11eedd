// Parameters and FLOPs of a model in closed form.
#include "model/model_config.h"

namespace orthant {
namespace {

// Elements of the matrices of one block that activations are multiplied with.
std::int64_t block_matrices(const ModelConfig& config) {
  const std::int64_t attention =
      2 * config.hidden * config.head_dim * (config.heads + config.kv_heads);
  const std::int64_t num_mlp_matrices = config.activation == "swiglu" ? 3 : 2;
  return attention + num_mlp_matrices * config.hidden * config.ffn;
}

std::int64_t block_biases(const ModelConfig& config) {
  const std::int64_t num_up = config.activation == "swiglu" ? 2 : 1;
  std::int64_t count = 0;
  if (config.qkv_bias) count += config.head_dim * (config.heads + 2 * config.kv_heads);
  if (config.proj_bias) count += config.hidden;
  if (config.mlp_bias) count += num_up * config.ffn + config.hidden;
  return count;
}

}  // namespace

std::int64_t count_parameters(const ModelConfig& config) {
  const std::int64_t norm = config.norm == "layernorm" ? 2 * config.hidden : config.hidden;
  const std::int64_t table = config.vocab * config.hidden;
  std::int64_t count = config.tie_embeddings ? table : 2 * table;
  if (config.position == "learned") count += config.max_positions * config.hidden;
  if (config.embedding_norm) count += 2 * config.hidden;
  return count + config.layers * (block_matrices(config) + block_biases(config) + 2 * norm) + norm;
}

double sequence_flops(const ModelConfig& config, std::int64_t seq_length) {
  const auto S = static_cast<double>(seq_length);
  const auto layers = static_cast<double>(config.layers);
  const double matrices = layers * static_cast<double>(block_matrices(config)) +
                          static_cast<double>(config.vocab * config.hidden);
  // Two products of S * S * H * D multiply-adds, half of them masked; backward takes twice forward.
  const double attention = 6 * layers * S * S * static_cast<double>(config.heads * config.head_dim);
  return 6 * matrices * S + attention;
}

}  // namespace orthant
