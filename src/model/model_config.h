// ModelConfig: GPT-2, BLOOM, LLaMA and Qwen2 as values of one struct.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orthant {

struct ModelConfig {
  std::string family = "gpt";  // gpt, bloom, llama: sets the defaults of the rest
  std::int64_t layers = 12;
  std::int64_t hidden = 768;
  std::int64_t heads = 12;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden / heads
  std::int64_t ffn = 0;       // 0: 4 * hidden
  std::int64_t vocab = 50257;
  std::int64_t max_positions =
      1024;  // rows of the learned table; for others the longest sequence meant
  std::string position = "learned";  // learned, alibi, rope
  double rope_base = 10000;
  std::string rope_scaling = "none";  // none, llama3
  double rope_factor = 8;             // of llama3's scaling, as the next three
  double rope_low_freq_factor = 1;
  double rope_high_freq_factor = 4;
  std::int64_t rope_original_positions = 8192;
  std::string norm = "layernorm";  // layernorm, rmsnorm
  double norm_eps = 1e-5;
  std::string activation = "gelu";  // gelu (tanh form), swiglu
  bool tie_embeddings = true;
  bool embedding_norm = false;  // LayerNorm after the embedding
  bool qkv_bias = true;
  bool proj_bias = true;  // of the attention's output projection
  bool mlp_bias = true;
  double dropout = 0;      // embeddings, attention probabilities, residual branches
  double init_std = 0.02;  // residual projections: init_std / sqrt(2 * layers)

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;

  template <class Visitor>
  void fields(Visitor&& v) {
    v("family", family, "gpt, bloom or llama: sets the defaults of the rest");
    v("layers", layers, "transformer blocks");
    v("hidden", hidden, "model width");
    v("heads", heads, "query heads");
    v("kv_heads", kv_heads, "key-value heads; 0: as many as heads");
    v("head_dim", head_dim, "width of a head; 0: hidden / heads");
    v("ffn", ffn, "width of the feed-forward layer; 0: 4 * hidden");
    v("vocab", vocab, "tokens of the vocabulary, without padding");
    v("max_positions", max_positions,
      "rows of the learned position table; otherwise the longest sequence");
    v("position", position, "learned, alibi or rope");
    v("rope_base", rope_base, "base of the rotary frequencies");
    v("rope_scaling", rope_scaling, "none or llama3");
    v("rope_factor", rope_factor, "llama3 scaling: factor of the low frequencies");
    v("rope_low_freq_factor", rope_low_freq_factor, "llama3 scaling: lower bound of the blend");
    v("rope_high_freq_factor", rope_high_freq_factor, "llama3 scaling: upper bound of the blend");
    v("rope_original_positions", rope_original_positions,
      "llama3 scaling: positions before scaling");
    v("norm", norm, "layernorm or rmsnorm");
    v("norm_eps", norm_eps, "added to the variance");
    v("activation", activation, "gelu (tanh form) or swiglu");
    v("tie_embeddings", tie_embeddings, "the head uses the token embedding's table");
    v("embedding_norm", embedding_norm, "LayerNorm after the embedding");
    v("qkv_bias", qkv_bias, "bias of the query, key and value projections");
    v("proj_bias", proj_bias, "bias of the attention's output projection");
    v("mlp_bias", mlp_bias, "biases of the feed-forward layer");
    v("dropout", dropout,
      "probability of dropping embeddings, attention probabilities and residual branches");
    v("init_std", init_std, "standard deviation of initial weights");
  }
};

// The family's defaults ("gpt", "bloom", "llama"); a user error names the nearest.
ModelConfig family_defaults(const std::string& family);

// Fills what is 0 from the rest (kv_heads, head_dim, ffn) and refuses what does not fit together,
// by name.
void complete(ModelConfig& config);

// Parameters, each logical element once. Closed form: a check on the layers, which must agree.
std::int64_t count_parameters(const ModelConfig& config);

// Model FLOPs of one sequence, forward and backward, causal attention at half, no recompute.
double sequence_flops(const ModelConfig& config, std::int64_t seq_length);

std::vector<std::string> preset_names();
ModelConfig preset(const std::string& name);  // user error with the nearest name

}  // namespace orthant
