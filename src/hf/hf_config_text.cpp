// Writing config.json. Keys are the old ones where there are two: every transformers reads them.
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "hf/hf_config.h"

namespace orthant {
namespace {

// What must hold for a model to be one of transformers' classes.
struct Condition {
  bool holds;
  std::string found;
};

// The first condition that does not hold; empty when all do.
std::string first_broken(const std::vector<Condition>& conditions) {
  for (const Condition& condition : conditions) {
    if (!condition.holds) return condition.found;
  }
  return "";
}

// What gpt2 and bloom have in common.
std::vector<Condition> gpt_conditions(const ModelConfig& model) {
  return {
      {model.norm == "layernorm", "norm='" + model.norm + "'"},
      {model.activation == "gelu", "activation='" + model.activation + "'"},
      {model.kv_heads == model.heads, fmt::format("kv_heads={}", model.kv_heads)},
      {model.heads * model.head_dim == model.hidden, fmt::format("head_dim={}", model.head_dim)},
      {model.qkv_bias && model.proj_bias && model.mlp_bias, "a projection without bias"},
  };
}

std::string why_not_gpt2(const ModelConfig& model) {
  std::vector<Condition> conditions = gpt_conditions(model);
  conditions.push_back({!model.embedding_norm, "embedding_norm=true"});
  return first_broken(conditions);
}

std::string why_not_bloom(const ModelConfig& model) {
  std::vector<Condition> conditions = gpt_conditions(model);
  conditions.push_back({model.embedding_norm, "embedding_norm=false"});
  conditions.push_back({model.ffn == 4 * model.hidden, fmt::format("ffn={}", model.ffn)});
  return first_broken(conditions);
}

std::string why_not_llama(const ModelConfig& model) {
  const bool is_qwen2 = model.qkv_bias && !model.proj_bias;
  return first_broken({
      {model.norm == "rmsnorm", "norm='" + model.norm + "'"},
      {model.activation == "swiglu", "activation='" + model.activation + "'"},
      {!model.embedding_norm, "embedding_norm=true"},
      {model.qkv_bias || !model.proj_bias, "proj_bias=true with qkv_bias=false"},
      {!is_qwen2 || !model.mlp_bias, "mlp_bias=true with qkv_bias=true and proj_bias=false"},
  });
}

Json or_null(const std::optional<std::int64_t>& token) {
  return token.has_value() ? Json(*token) : Json(nullptr);
}

Json eos_json(const std::vector<std::int64_t>& eos) {
  if (eos.empty()) return nullptr;
  return eos.size() == 1 ? Json(eos[0]) : Json(eos);
}

void write_gpt2(const ModelConfig& model, Json& root) {
  root["architectures"] = {"GPT2LMHeadModel"};
  root["n_layer"] = model.layers;
  root["n_embd"] = model.hidden;
  root["n_head"] = model.heads;
  root["n_inner"] = model.ffn == 4 * model.hidden ? Json(nullptr) : Json(model.ffn);
  root["n_positions"] = model.max_positions;
  root["n_ctx"] = model.max_positions;
  root["activation_function"] = "gelu_new";
  root["layer_norm_epsilon"] = model.norm_eps;
  root["scale_attn_weights"] = true;
  root["scale_attn_by_inverse_layer_idx"] = false;
  root["reorder_and_upcast_attn"] = false;
  for (const char* name : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    root[name] = model.dropout;
  }
}

void write_bloom(const ModelConfig& model, Json& root) {
  root["architectures"] = {"BloomForCausalLM"};
  root["n_layer"] = model.layers;
  root["hidden_size"] = model.hidden;
  root["n_head"] = model.heads;
  root["seq_length"] = model.max_positions;
  root["layer_norm_epsilon"] = model.norm_eps;
  root["apply_residual_connection_post_layernorm"] = false;
  root["pretraining_tp"] = 1;
  root["slow_but_exact"] = false;
  // Ours has no counterpart there, and only training would use it.
  root["hidden_dropout"] = 0.0;
  root["attention_dropout"] = 0.0;
}

void write_llama(const ModelConfig& model, const std::string& model_type, Json& root) {
  root["num_hidden_layers"] = model.layers;
  root["hidden_size"] = model.hidden;
  root["num_attention_heads"] = model.heads;
  root["num_key_value_heads"] = model.kv_heads;
  root["head_dim"] = model.head_dim;
  root["intermediate_size"] = model.ffn;
  root["max_position_embeddings"] = model.max_positions;
  root["hidden_act"] = "silu";
  root["rms_norm_eps"] = model.norm_eps;
  root["attention_dropout"] = 0.0;
  root["rope_theta"] = model.rope_base;
  root["rope_scaling"] = nullptr;
  if (model.rope_scaling == "llama3") {
    root["rope_scaling"] = {
        {"rope_type", "llama3"},
        {"factor", model.rope_factor},
        {"low_freq_factor", model.rope_low_freq_factor},
        {"high_freq_factor", model.rope_high_freq_factor},
        {"original_max_position_embeddings", model.rope_original_positions},
    };
  }
  if (model_type == "qwen2") {
    root["architectures"] = {"Qwen2ForCausalLM"};
    root["use_sliding_window"] = false;
  } else {
    root["architectures"] = {"LlamaForCausalLM"};
    root["attention_bias"] = model.qkv_bias;
    root["mlp_bias"] = model.mlp_bias;
    root["pretraining_tp"] = 1;
  }
}

const char* torch_name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float32";
    case DType::kBF16: return "bfloat16";
    default:
      fail_user("weights in {} are not written for Hugging Face; use f32 or bf16", name_of(dtype));
  }
}

}  // namespace

std::string hf_model_type(const ModelConfig& model) {
  const bool is_llama = model.position == "rope";
  const bool is_bloom = model.position == "alibi";
  const std::string nearest_type = is_llama ? "llama" : is_bloom ? "bloom" : "gpt2";
  const std::string broken = is_llama   ? why_not_llama(model)
                             : is_bloom ? why_not_bloom(model)
                                        : why_not_gpt2(model);
  if (!broken.empty()) {
    fail_user(
        "the model has position='{}' and {}, which no model of transformers computes; "
        "'{}' is the nearest. Keep it as a checkpoint",
        model.position, broken, nearest_type);
  }
  return is_llama && model.qkv_bias && !model.proj_bias ? "qwen2" : nearest_type;
}

std::string hf_config_text(const ModelConfig& model, const HfTokens& tokens, DType dtype) {
  const std::string model_type = hf_model_type(model);
  Json root = Json::object();
  root["model_type"] = model_type;
  root["vocab_size"] = model.vocab;
  root["initializer_range"] = model.init_std;
  root["tie_word_embeddings"] = model.tie_embeddings;
  root["torch_dtype"] = torch_name(dtype);
  root["use_cache"] = true;
  root["bos_token_id"] = or_null(tokens.bos);
  root["eos_token_id"] = eos_json(tokens.eos);
  root["pad_token_id"] = or_null(tokens.pad);
  if (model_type == "gpt2") {
    write_gpt2(model, root);
  } else if (model_type == "bloom") {
    write_bloom(model, root);
  } else {
    write_llama(model, model_type, root);
  }
  return root.dump(2) + "\n";
}

}  // namespace orthant
