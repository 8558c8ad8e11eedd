#include "model/canonical.h"

#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "base/check.h"

namespace orthant {
namespace {

ParamSpec weight(std::string name, const Shape& global, int split_dim, double std) {
  return {.name = std::move(name),
          .global = global,
          .split_dim = split_dim,
          .decays = true,
          .init = {.kind = Init::Kind::kNormal, .std = std}};
}

ParamSpec bias(std::string name, const Shape& global, int split_dim) {
  return {.name = std::move(name), .global = global, .split_dim = split_dim, .init = {}};
}

ParamSpec padded(ParamSpec spec) {
  spec.is_padded = true;
  return spec;
}

ParamSpec following(ParamSpec spec) {
  spec.follows = true;
  return spec;
}

// Key-value heads: with more tp ranks than heads, several ranks hold one.
ParamSpec repeating(ParamSpec spec) {
  spec.repeats = true;
  return following(std::move(spec));
}

void add_norm(std::vector<ParamSpec>& params, const std::string& prefix, std::int64_t hidden,
              bool has_bias) {
  params.push_back({.name = prefix + ".weight",
                    .global = {hidden},
                    .init = {.kind = Init::Kind::kOnes, .std = 0}});
  if (has_bias) params.push_back(bias(prefix + ".bias", {hidden}, -1));
}

void add_attention(std::vector<ParamSpec>& params, const ModelConfig& config,
                   const std::string& prefix, double residual_std) {
  const std::int64_t C = config.hidden;
  const std::int64_t H = config.heads;
  const std::int64_t G = config.kv_heads;
  const std::int64_t D = config.head_dim;
  params.push_back(weight(prefix + ".q.weight", {H, D, C}, 0, config.init_std));
  params.push_back(repeating(weight(prefix + ".kv.weight", {2, G, D, C}, 1, config.init_std)));
  if (config.qkv_bias) {
    params.push_back(bias(prefix + ".q.bias", {H, D}, 0));
    params.push_back(repeating(bias(prefix + ".kv.bias", {2, G, D}, 1)));
  }
  params.push_back(weight(prefix + ".proj.weight", {C, H, D}, 1, residual_std));
  if (config.proj_bias) params.push_back(bias(prefix + ".proj.bias", {C}, -1));
}

void add_mlp(std::vector<ParamSpec>& params, const ModelConfig& config, const std::string& prefix,
             double residual_std) {
  const std::int64_t C = config.hidden;
  const std::int64_t F = config.ffn;
  if (config.activation == "swiglu") {
    params.push_back(weight(prefix + ".gate_up.weight", {2, F, C}, 1, config.init_std));
    if (config.mlp_bias) params.push_back(bias(prefix + ".gate_up.bias", {2, F}, 1));
  } else {
    params.push_back(weight(prefix + ".up.weight", {F, C}, 0, config.init_std));
    if (config.mlp_bias) params.push_back(bias(prefix + ".up.bias", {F}, 0));
  }
  params.push_back(weight(prefix + ".down.weight", {C, F}, 1, residual_std));
  if (config.mlp_bias) params.push_back(bias(prefix + ".down.bias", {C}, -1));
}

void check_complete(const ModelConfig& config) {
  ORTHANT_CHECK(config.kv_heads > 0 && config.head_dim > 0 && config.ffn > 0,
                "model config is used before complete(): kv_heads={}, head_dim={}, ffn={}",
                config.kv_heads, config.head_dim, config.ffn);
}

void append(std::vector<ParamSpec>& params, std::vector<ParamSpec> more) {
  params.insert(params.end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
}

}  // namespace

std::vector<ParamSpec> embedding_params(const ModelConfig& config) {
  check_complete(config);
  const std::int64_t C = config.hidden;
  std::vector<ParamSpec> params;
  params.push_back(padded(weight("embed.tokens.weight", {config.vocab, C}, 0, config.init_std)));
  if (config.position == "learned") {
    params.push_back(
        weight("embed.positions.weight", {config.max_positions, C}, -1, config.init_std));
  }
  if (config.embedding_norm) add_norm(params, "embed.norm", C, true);
  return params;
}

std::vector<ParamSpec> block_params(const ModelConfig& config, std::int64_t layer) {
  check_complete(config);
  const std::string prefix = fmt::format("h.{}", layer);
  const bool norm_bias = config.norm == "layernorm";
  const double residual_std = config.init_std / std::sqrt(2.0 * static_cast<double>(config.layers));
  std::vector<ParamSpec> params;
  add_norm(params, prefix + ".attn.norm", config.hidden, norm_bias);
  add_attention(params, config, prefix + ".attn", residual_std);
  add_norm(params, prefix + ".mlp.norm", config.hidden, norm_bias);
  add_mlp(params, config, prefix + ".mlp", residual_std);
  return params;
}

std::vector<ParamSpec> final_params(const ModelConfig& config) {
  check_complete(config);
  std::vector<ParamSpec> params;
  add_norm(params, "final.norm", config.hidden, config.norm == "layernorm");
  if (!config.tie_embeddings) {
    params.push_back(
        padded(weight("head.weight", {config.vocab, config.hidden}, 0, config.init_std)));
  }
  return params;
}

std::vector<ParamSpec> canonical_params(const ModelConfig& config) {
  std::vector<ParamSpec> params = embedding_params(config);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    append(params, block_params(config, layer));
  }
  append(params, final_params(config));
  return params;
}

}  // namespace orthant
