// The families' defaults, and what a model must satisfy.
#include "model/model_config.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/text.h"

namespace orthant {
namespace {

// Far above any model, and low enough that its parameters can be counted in 64 bits.
constexpr std::int64_t kMaxNumber = 10'000;    // layers, heads and their width
constexpr std::int64_t kMaxWidth = 1'000'000;  // hidden
constexpr std::int64_t kMaxVocab = 1'000'000'000;
constexpr std::int64_t kMaxPositions = 1'000'000'000;

void check_name(std::string_view key, const std::string& value,
                const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  fail_user("model.{}='{}' is not known; did you mean '{}'? Known are {}", key, value,
            nearest(value, known), join(known));
}

void check_size(std::string_view key, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  fail_user("model.{}={} must lie between {} and {}; correct it", key, value, least, most);
}

void check_positive(std::string_view key, double value) {
  if (std::isfinite(value) && value > 0) return;
  fail_user("model.{}={} must be a positive number; correct it", key, value);
}

std::string divisors_text(std::int64_t number) {
  std::vector<std::string> divisors;
  for (std::int64_t d = 1; d <= number; ++d) {
    if (number % d == 0) divisors.push_back(fmt::format("{}", d));
  }
  if (divisors.size() == 1) return divisors[0];
  const std::string last = divisors.back();
  divisors.pop_back();
  return join(divisors) + " or " + last;
}

void check_names(const ModelConfig& config) {
  check_name("family", config.family, {"gpt", "bloom", "llama"});
  check_name("position", config.position, {"learned", "alibi", "rope"});
  check_name("rope_scaling", config.rope_scaling, {"none", "llama3"});
  check_name("norm", config.norm, {"layernorm", "rmsnorm"});
  check_name("activation", config.activation, {"gelu", "swiglu"});
}

void check_sizes(const ModelConfig& config) {
  check_size("layers", config.layers, 1, kMaxNumber);
  check_size("hidden", config.hidden, 1, kMaxWidth);
  check_size("heads", config.heads, 1, kMaxNumber);
  check_size("kv_heads", config.kv_heads, 0, kMaxNumber);
  check_size("head_dim", config.head_dim, 0, kMaxNumber);
  check_size("ffn", config.ffn, 0, 8 * kMaxWidth);
  check_size("vocab", config.vocab, 1, kMaxVocab);
  check_size("max_positions", config.max_positions, 1, kMaxPositions);
}

void check_numbers(const ModelConfig& config) {
  check_positive("norm_eps", config.norm_eps);
  check_positive("init_std", config.init_std);
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    fail_user("model.dropout={} must be at least 0 and below 1; use 0 for none", config.dropout);
  }
}

void check_rope(const ModelConfig& config) {
  if (config.rope_scaling != "none" && config.position != "rope") {
    fail_user("model.rope_scaling='{}' needs position='rope', found '{}'; use 'none'",
              config.rope_scaling, config.position);
  }
  if (config.position != "rope") return;
  check_positive("rope_base", config.rope_base);
  if (config.head_dim % 2 != 0) {
    fail_user("model.head_dim={} is odd, but rope turns pairs; use an even head_dim",
              config.head_dim);
  }
  if (config.rope_scaling != "llama3") return;
  check_positive("rope_factor", config.rope_factor);
  check_positive("rope_low_freq_factor", config.rope_low_freq_factor);
  if (!(config.rope_high_freq_factor > config.rope_low_freq_factor)) {
    fail_user("model.rope_high_freq_factor={} must be above rope_low_freq_factor={}; raise it",
              config.rope_high_freq_factor, config.rope_low_freq_factor);
  }
  check_positive("rope_high_freq_factor", config.rope_high_freq_factor);
  check_size("rope_original_positions", config.rope_original_positions, 1, kMaxPositions);
}

}  // namespace

ModelConfig family_defaults(const std::string& family) {
  check_name("family", family, {"gpt", "bloom", "llama"});
  ModelConfig config;
  config.family = family;
  if (family == "bloom") {
    config.vocab = 250880;
    config.max_positions = 2048;
    config.position = "alibi";
    config.embedding_norm = true;
  }
  if (family == "llama") {
    config.vocab = 32000;
    config.max_positions = 2048;
    config.position = "rope";
    config.norm = "rmsnorm";
    config.norm_eps = 1e-6;
    config.activation = "swiglu";
    config.tie_embeddings = false;
    config.qkv_bias = false;
    config.proj_bias = false;
    config.mlp_bias = false;
  }
  return config;
}

void complete(ModelConfig& config) {
  check_names(config);
  check_sizes(config);
  check_numbers(config);
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.heads % config.kv_heads != 0) {
    fail_user("model.kv_heads={} does not divide heads={}; use {}", config.kv_heads, config.heads,
              divisors_text(config.heads));
  }
  if (config.head_dim == 0) {
    if (config.hidden % config.heads != 0) {
      fail_user("model.heads={} does not divide hidden={}; use another number or give head_dim",
                config.heads, config.hidden);
    }
    config.head_dim = config.hidden / config.heads;
  }
  if (config.ffn == 0) config.ffn = 4 * config.hidden;
  check_rope(config);
}

}  // namespace orthant
