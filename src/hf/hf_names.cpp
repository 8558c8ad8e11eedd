#include "hf/hf_names.h"

#include <array>
#include <utility>

#include "base/check.h"
#include "hf/hf_config.h"

namespace orthant {
namespace {

// A canonical run that lies in the Hugging Face tensor as it is.
HfPart straight(std::string param, std::int64_t first, std::int64_t count,
                std::int64_t hf_first = 0) {
  return {.param = std::move(param), .first = first, .cols = count, .hf_first = hf_first};
}

// A canonical [out,in] run in a tensor of GPT-2's Conv1D, stored as [in,hf_out].
HfPart transposed(std::string param, std::int64_t first, std::int64_t out, std::int64_t in,
                  std::int64_t hf_first, std::int64_t hf_out) {
  return {.param = std::move(param),
          .first = first,
          .rows = out,
          .cols = in,
          .hf_first = hf_first,
          .row_stride = 1,
          .col_stride = hf_out};
}

// Heads of `size` elements each, `stride` elements apart.
HfPart per_head(std::string param, std::int64_t first, std::int64_t heads, std::int64_t size,
                std::int64_t hf_first, std::int64_t stride) {
  return {.param = std::move(param),
          .first = first,
          .rows = heads,
          .cols = size,
          .hf_first = hf_first,
          .row_stride = stride};
}

// Collects the tensors of one model.
class Names {
 public:
  explicit Names(const ModelConfig& config) : config_(config) {}

  void add(std::string name, std::vector<std::int64_t> shape, std::vector<HfPart> parts) {
    tensors_.push_back(
        {.name = std::move(name), .shape = std::move(shape), .parts = std::move(parts)});
  }
  // A tensor that lies as the canonical parameter does.
  void same(std::string name, std::vector<std::int64_t> shape, std::string param) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) {
      count *= extent;
    }
    std::vector<HfPart> parts = {straight(std::move(param), 0, count)};
    add(std::move(name), std::move(shape), std::move(parts));
  }
  void norm(const std::string& name, const std::string& param) {
    same(name + ".weight", {config_.hidden}, param + ".weight");
    if (config_.norm == "layernorm") same(name + ".bias", {config_.hidden}, param + ".bias");
  }
  // A linear layer of [out,in]; its bias if there is one.
  void linear(const std::string& name, const std::string& param, std::int64_t out, std::int64_t in,
              bool has_bias) {
    same(name + ".weight", {out, in}, param + ".weight");
    if (has_bias) same(name + ".bias", {out}, param + ".bias");
  }
  void head() {
    if (config_.tie_embeddings) return;
    same("lm_head.weight", {config_.vocab, config_.hidden}, "head.weight");
  }
  std::vector<HfTensor> take() { return std::move(tensors_); }

 private:
  const ModelConfig& config_;
  std::vector<HfTensor> tensors_;
};

void conv1d(Names& names, const std::string& name, const std::string& param, std::int64_t out,
            std::int64_t in) {
  names.add(name + ".weight", {in, out}, {transposed(param + ".weight", 0, out, in, 0, out)});
  names.same(name + ".bias", {out}, param + ".bias");
}

void gpt2_block(Names& names, const ModelConfig& config, std::int64_t layer) {
  const std::int64_t C = config.hidden;
  const std::string hf = fmt::format("transformer.h.{}.", layer);
  const std::string h = fmt::format("h.{}.", layer);
  names.norm(hf + "ln_1", h + "attn.norm");
  names.add(hf + "attn.c_attn.weight", {C, 3 * C},
            {transposed(h + "attn.q.weight", 0, C, C, 0, 3 * C),
             transposed(h + "attn.kv.weight", 0, 2 * C, C, C, 3 * C)});
  names.add(hf + "attn.c_attn.bias", {3 * C},
            {straight(h + "attn.q.bias", 0, C), straight(h + "attn.kv.bias", 0, 2 * C, C)});
  conv1d(names, hf + "attn.c_proj", h + "attn.proj", C, C);
  names.norm(hf + "ln_2", h + "mlp.norm");
  conv1d(names, hf + "mlp.c_fc", h + "mlp.up", config.ffn, C);
  conv1d(names, hf + "mlp.c_proj", h + "mlp.down", C, config.ffn);
}

std::vector<HfTensor> gpt2_tensors(const ModelConfig& config) {
  Names names(config);
  names.same("transformer.wte.weight", {config.vocab, config.hidden}, "embed.tokens.weight");
  names.same("transformer.wpe.weight", {config.max_positions, config.hidden},
             "embed.positions.weight");
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    gpt2_block(names, config, layer);
  }
  names.norm("transformer.ln_f", "final.norm");
  names.head();
  return names.take();
}

// Rows are interleaved: for each head its query, key and value.
std::vector<HfPart> bloom_qkv(const ModelConfig& config, const std::string& attn,
                              const std::string& kind, std::int64_t columns) {
  const std::int64_t heads = config.heads;
  const std::int64_t size = config.head_dim * columns;  // elements of one head
  const std::string kv = attn + "kv." + kind;
  return {per_head(attn + "q." + kind, 0, heads, size, 0, 3 * size),
          per_head(kv, 0, heads, size, size, 3 * size),
          per_head(kv, heads * size, heads, size, 2 * size, 3 * size)};
}

void bloom_block(Names& names, const ModelConfig& config, std::int64_t layer) {
  const std::int64_t C = config.hidden;
  const std::string hf = fmt::format("transformer.h.{}.", layer);
  const std::string h = fmt::format("h.{}.", layer);
  names.norm(hf + "input_layernorm", h + "attn.norm");
  const std::string qkv = hf + "self_attention.query_key_value";
  names.add(qkv + ".weight", {3 * C, C}, bloom_qkv(config, h + "attn.", "weight", C));
  names.add(qkv + ".bias", {3 * C}, bloom_qkv(config, h + "attn.", "bias", 1));
  names.linear(hf + "self_attention.dense", h + "attn.proj", C, C, true);
  names.norm(hf + "post_attention_layernorm", h + "mlp.norm");
  names.linear(hf + "mlp.dense_h_to_4h", h + "mlp.up", config.ffn, C, true);
  names.linear(hf + "mlp.dense_4h_to_h", h + "mlp.down", C, config.ffn, true);
}

std::vector<HfTensor> bloom_tensors(const ModelConfig& config) {
  Names names(config);
  names.same("transformer.word_embeddings.weight", {config.vocab, config.hidden},
             "embed.tokens.weight");
  names.norm("transformer.word_embeddings_layernorm", "embed.norm");
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    bloom_block(names, config, layer);
  }
  names.norm("transformer.ln_f", "final.norm");
  names.head();
  return names.take();
}

// Two Hugging Face tensors that are the halves of one canonical parameter.
void halves(Names& names, const std::array<std::string, 2>& layers, const std::string& param,
            std::int64_t out, std::int64_t in, bool has_bias) {
  for (std::int64_t i = 0; i < 2; ++i) {
    const std::string& name = layers[static_cast<std::size_t>(i)];
    names.add(name + ".weight", {out, in}, {straight(param + ".weight", i * out * in, out * in)});
    if (has_bias) names.add(name + ".bias", {out}, {straight(param + ".bias", i * out, out)});
  }
}

void llama_block(Names& names, const ModelConfig& config, std::int64_t layer) {
  const std::int64_t C = config.hidden;
  const std::int64_t q_width = config.heads * config.head_dim;
  const std::int64_t kv_width = config.kv_heads * config.head_dim;
  const std::string hf = fmt::format("model.layers.{}.", layer);
  const std::string h = fmt::format("h.{}.", layer);
  names.norm(hf + "input_layernorm", h + "attn.norm");
  names.linear(hf + "self_attn.q_proj", h + "attn.q", q_width, C, config.qkv_bias);
  halves(names, {hf + "self_attn.k_proj", hf + "self_attn.v_proj"}, h + "attn.kv", kv_width, C,
         config.qkv_bias);
  names.linear(hf + "self_attn.o_proj", h + "attn.proj", C, q_width, config.proj_bias);
  names.norm(hf + "post_attention_layernorm", h + "mlp.norm");
  halves(names, {hf + "mlp.gate_proj", hf + "mlp.up_proj"}, h + "mlp.gate_up", config.ffn, C,
         config.mlp_bias);
  names.linear(hf + "mlp.down_proj", h + "mlp.down", C, config.ffn, config.mlp_bias);
}

std::vector<HfTensor> llama_tensors(const ModelConfig& config) {
  Names names(config);
  names.same("model.embed_tokens.weight", {config.vocab, config.hidden}, "embed.tokens.weight");
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    llama_block(names, config, layer);
  }
  names.norm("model.norm", "final.norm");
  names.head();
  return names.take();
}

}  // namespace

std::vector<HfTensor> hf_tensors(const ModelConfig& config) {
  const std::string model_type = hf_model_type(config);
  if (model_type == "gpt2") return gpt2_tensors(config);
  if (model_type == "bloom") return bloom_tensors(config);
  return llama_tensors(config);
}

std::string_view hf_prefix(const ModelConfig& config) {
  return config.position == "rope" ? "model." : "transformer.";
}

bool is_hf_buffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with("rotary_emb.inv_freq");
}

}  // namespace orthant
