// Reading config.json. Defaults are those of transformers' config classes, since transformers
// leaves out what equals them.
#include "hf/hf_config.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "hf/hf_keys.h"

namespace orthant {
namespace {

struct Architecture {
  const char* model_type;
  const char* class_name;
};
constexpr Architecture kArchitectures[] = {
    {"gpt2", "GPT2LMHeadModel"},
    {"bloom", "BloomForCausalLM"},
    {"llama", "LlamaForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
};

void check_architecture(const HfKeys& keys, const std::string& model_type) {
  std::vector<std::string> known;
  for (const Architecture& architecture : kArchitectures) {
    known.emplace_back(architecture.model_type);
  }
  const auto* found = std::find_if(
      std::begin(kArchitectures), std::end(kArchitectures),
      [&](const Architecture& architecture) { return model_type == architecture.model_type; });
  if (found == std::end(kArchitectures)) {
    fail_user("{}: model_type='{}' is not computed; did you mean '{}'? Known are {}", keys.source(),
              model_type, nearest(model_type, known), join(known));
  }
  const std::vector<std::string> classes = keys.texts({"architectures"});
  const bool is_other = std::any_of(classes.begin(), classes.end(), [&](const std::string& name) {
    return name != found->class_name;
  });
  if (is_other) {
    fail_user("{}: architectures has {}, but only {} is computed; use a causal language model",
              keys.source(), join(classes), found->class_name);
  }
}

void check_general(const HfKeys& keys) {
  keys.require("is_encoder_decoder", false, "there is no encoder");
  keys.require("add_cross_attention", false, "there is no encoder");
  if (keys.has({"quantization_config"})) {
    fail_user(
        "{}: quantization_config is given, but quantized weights are not read; use the "
        "folder with F32, BF16 or F16 weights",
        keys.source());
  }
}

void require_activation(const HfKeys& keys, const char* name, const char* otherwise,
                        const std::vector<std::string>& computed) {
  const std::string found = keys.text({name}, otherwise);
  if (std::find(computed.begin(), computed.end(), found) == computed.end()) {
    fail_user("{}: {}='{}' is not computed; computed are {}", keys.source(), name, found,
              join(computed));
  }
}

// Dropout of transformers' bloom and llama has no counterpart: theirs leaves out the embeddings, or
// the residual branches too.
void require_no_dropout(const HfKeys& keys, const char* name) {
  if (const double found = keys.number({name}, 0); found != 0) {
    fail_user(
        "{}: {}={} is not computed; set it to 0 and give model.dropout in the run file, which "
        "drops embeddings, attention and residual branches alike",
        keys.source(), name, found);
  }
}

void read_gpt2(const HfKeys& keys, ModelConfig& model) {
  model = family_defaults("gpt");
  model.layers = keys.integer({"n_layer", "num_hidden_layers"}, 12);
  model.hidden = keys.integer({"n_embd", "hidden_size"}, 768);
  model.heads = keys.integer({"n_head", "num_attention_heads"}, 12);
  model.ffn = keys.integer({"n_inner"}, 0);
  model.vocab = keys.integer({"vocab_size"}, 50257);
  model.max_positions = keys.integer({"n_positions", "max_position_embeddings"}, 1024);
  model.norm_eps = keys.number({"layer_norm_epsilon"}, 1e-5);
  model.tie_embeddings = keys.boolean({"tie_word_embeddings"}, true);
  model.init_std = keys.number({"initializer_range"}, 0.02);
  model.dropout = keys.number({"resid_pdrop"}, 0.1);
  for (const char* other : {"embd_pdrop", "attn_pdrop"}) {
    if (const double found = keys.number({other}, 0.1); found != model.dropout) {
      fail_user(
          "{}: {}={} differs from resid_pdrop={}, but one dropout is computed everywhere; "
          "make them equal",
          keys.source(), other, found, model.dropout);
    }
  }
  require_activation(keys, "activation_function", "gelu_new",
                     {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"});
  keys.require("scale_attn_weights", true, "scores are always divided by sqrt(head_dim)");
  keys.require("scale_attn_by_inverse_layer_idx", false, "scores of all layers are scaled alike");
}

void read_bloom(const HfKeys& keys, ModelConfig& model) {
  model = family_defaults("bloom");
  model.layers = keys.integer({"n_layer", "num_hidden_layers"}, 2);
  model.hidden = keys.integer({"hidden_size", "n_embed"}, 64);
  model.heads = keys.integer({"n_head", "num_attention_heads"}, 8);
  model.ffn = keys.integer({"n_inner"}, 0);
  model.vocab = keys.integer({"vocab_size"}, 250880);
  model.max_positions = keys.integer({"seq_length"}, 2048);
  model.norm_eps = keys.number({"layer_norm_epsilon"}, 1e-5);
  model.tie_embeddings = keys.boolean({"tie_word_embeddings"}, true);
  model.init_std = keys.number({"initializer_range"}, 0.02);
  if (model.ffn != 0 && model.ffn != 4 * model.hidden) {
    fail_user("{}: n_inner={} is not 4 * hidden_size={}, which BLOOM always has; remove it",
              keys.source(), model.ffn, model.hidden);
  }
  require_no_dropout(keys, "hidden_dropout");
  require_no_dropout(keys, "attention_dropout");
  keys.require("apply_residual_connection_post_layernorm", false,
               "the residual is taken before the norm");
}

void read_rope(const HfKeys& keys, ModelConfig& model) {
  model.rope_base = keys.number({"rope_theta"}, 10000);
  if (keys.number({"partial_rotary_factor"}, 1) != 1) {
    fail_user("{}: partial_rotary_factor={} is not computed; all of a head is rotated",
              keys.source(), keys.number({"partial_rotary_factor"}, 1));
  }
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const Json* object = keys.object({name});
    if (object == nullptr) continue;
    const HfKeys rope(*object, fmt::format("{}: {}", keys.source(), name));
    model.rope_base = rope.number({"rope_theta"}, model.rope_base);
    const std::string type = rope.text({"rope_type", "type"}, "default");
    const bool is_nested = rope.has({"full_attention"}) || rope.has({"sliding_attention"});
    if ((type != "default" && type != "llama3") || is_nested) {
      fail_user("{}: the type '{}' is not computed; computed are default and llama3", rope.source(),
                is_nested ? "one for each kind of layer" : type);
    }
    if (rope.number({"partial_rotary_factor"}, 1) != 1) {
      fail_user("{}: partial_rotary_factor={} is not computed; all of a head is rotated",
                rope.source(), rope.number({"partial_rotary_factor"}, 1));
    }
    if (type == "default") continue;
    model.rope_scaling = "llama3";
    for (const char* needed :
         {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
      if (!rope.has({needed})) {
        fail_user("{} has no {}, which llama3 needs; add it", rope.source(), needed);
      }
    }
    model.rope_factor = rope.number({"factor"}, 0);
    model.rope_low_freq_factor = rope.number({"low_freq_factor"}, 0);
    model.rope_high_freq_factor = rope.number({"high_freq_factor"}, 0);
    model.rope_original_positions = rope.integer({"original_max_position_embeddings"}, 0);
  }
}

void read_llama(const HfKeys& keys, ModelConfig& model) {
  model = family_defaults("llama");
  model.layers = keys.integer({"num_hidden_layers"}, 32);
  model.hidden = keys.integer({"hidden_size"}, 4096);
  model.heads = keys.integer({"num_attention_heads"}, 32);
  model.kv_heads = keys.integer({"num_key_value_heads"}, 0);
  model.head_dim = keys.integer({"head_dim"}, 0);
  model.ffn = keys.integer({"intermediate_size"}, 11008);
  model.vocab = keys.integer({"vocab_size"}, 32000);
  model.max_positions = keys.integer({"max_position_embeddings"}, 2048);
  model.norm_eps = keys.number({"rms_norm_eps"}, 1e-6);
  model.tie_embeddings = keys.boolean({"tie_word_embeddings"}, false);
  model.init_std = keys.number({"initializer_range"}, 0.02);
  model.qkv_bias = keys.boolean({"attention_bias"}, false);
  model.proj_bias = model.qkv_bias;
  model.mlp_bias = keys.boolean({"mlp_bias"}, false);
  require_activation(keys, "hidden_act", "silu", {"silu", "swish"});
  require_no_dropout(keys, "attention_dropout");
  read_rope(keys, model);
}

void read_qwen2(const HfKeys& keys, ModelConfig& model) {
  read_llama(keys, model);
  model.ffn = keys.integer({"intermediate_size"}, 22016);
  model.vocab = keys.integer({"vocab_size"}, 151936);
  model.max_positions = keys.integer({"max_position_embeddings"}, 32768);
  model.qkv_bias = true;
  model.proj_bias = false;
  model.mlp_bias = false;
  const std::int64_t first_sliding = keys.integer({"max_window_layers"}, 28);
  if (keys.boolean({"use_sliding_window"}, false) && first_sliding < model.layers) {
    fail_user(
        "{}: use_sliding_window=true from layer {} on is not computed; use a model with full "
        "attention",
        keys.source(), first_sliding);
  }
  for (const std::string& type : keys.texts({"layer_types"})) {
    if (type != "full_attention") {
      fail_user("{}: layer_types has '{}', which is not computed; only full_attention is",
                keys.source(), type);
    }
  }
}

}  // namespace

HfConfig parse_hf_config(std::string_view text, const std::string& source) {
  const Json root = Json::parse(text, nullptr, false);
  if (!root.is_object()) {
    fail_user("{} is not a JSON object; give a config.json of transformers", source);
  }
  const HfKeys keys(root, source);
  const std::string model_type = keys.text({"model_type"}, "");
  if (model_type.empty()) {
    fail_user("{} has no model_type; add it: gpt2, bloom, llama or qwen2", source);
  }
  check_architecture(keys, model_type);
  check_general(keys);
  HfConfig config;
  if (model_type == "gpt2") read_gpt2(keys, config.model);
  if (model_type == "bloom") read_bloom(keys, config.model);
  if (model_type == "llama") read_llama(keys, config.model);
  if (model_type == "qwen2") read_qwen2(keys, config.model);
  if (keys.has({"bos_token_id"})) config.tokens.bos = keys.integer({"bos_token_id"}, 0);
  if (keys.has({"pad_token_id"})) config.tokens.pad = keys.integer({"pad_token_id"}, 0);
  config.tokens.eos = keys.integers({"eos_token_id"});
  try {
    complete(config.model);
  } catch (const Error& error) {
    throw Error(error.fault(), fmt::format("{}: {}", source, error.what()));
  }
  return config;
}

HfConfig read_hf_config(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const std::string file =
      fs::is_directory(path, ignored) ? (fs::path(path) / "config.json").string() : path;
  return parse_hf_config(read_text_file(file), file);
}

}  // namespace orthant
