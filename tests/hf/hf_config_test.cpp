#include "hf/hf_config.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"

namespace orthant {
namespace {

const std::string kFixtures = ORTHANT_SOURCE_DIR "/../shared/fixtures/";

std::string parse_error(const std::string& text) {
  try {
    (void)parse_hf_config(text, "config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUser);
    return error.what();
  }
  return "no error";
}

TEST(HfConfig, FixturesAreTheTinyPresets) {
  if (!std::filesystem::exists(kFixtures)) GTEST_SKIP() << kFixtures << " is not on this machine";
  EXPECT_EQ(read_hf_config(kFixtures + "gpt2-tiny").model, preset("tiny-gpt"));
  EXPECT_EQ(read_hf_config(kFixtures + "llama-tiny/config.json").model, preset("tiny-llama"));
  ModelConfig bloom = preset("tiny-bloom");
  bloom.max_positions = 2048;  // config.json does not say it
  EXPECT_EQ(read_hf_config(kFixtures + "bloom-tiny").model, bloom);
}

TEST(HfConfig, WhatIsWrittenReadsBackTheSame) {
  const HfTokens tokens = {.bos = 1, .eos = {2, 7}, .pad = 3};
  for (const std::string& name : preset_names()) {
    const ModelConfig model = preset(name);
    const HfConfig back = parse_hf_config(hf_config_text(model, tokens, DType::kBF16), name);
    EXPECT_EQ(back.model, model) << name;
    EXPECT_EQ(back.tokens, tokens) << name;
  }
}

TEST(HfConfig, UnknownTokensStayUnknown) {
  const HfConfig back =
      parse_hf_config(hf_config_text(preset("tiny-gpt"), {}, DType::kF32), "config.json");
  EXPECT_EQ(back.tokens, HfTokens());
}

TEST(HfConfig, ModelTypesFollowTheBiases) {
  EXPECT_EQ(hf_model_type(preset("gpt3-175b")), "gpt2");
  EXPECT_EQ(hf_model_type(preset("bloom-176b")), "bloom");
  EXPECT_EQ(hf_model_type(preset("llama3-8b")), "llama");
  EXPECT_EQ(hf_model_type(preset("qwen2-7b")), "qwen2");
}

TEST(HfConfig, OldAndNewRopeKeysMeanTheSame) {
  const std::string scaling = R"("factor":4.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
                              R"("original_max_position_embeddings":8192)";
  const ModelConfig old_style =
      parse_hf_config(R"({"model_type":"llama","rope_theta":500000.0,"rope_scaling":{"type":)"
                      R"("llama3",)" +
                          scaling + "}}",
                      "old")
          .model;
  const ModelConfig new_style =
      parse_hf_config(R"({"model_type":"llama","rope_parameters":{"rope_theta":500000.0,)"
                      R"("rope_type":"llama3",)" +
                          scaling + "}}",
                      "new")
          .model;
  EXPECT_EQ(old_style, new_style);
  EXPECT_EQ(new_style.rope_scaling, "llama3");
  EXPECT_EQ(new_style.rope_base, 500000);
  EXPECT_EQ(new_style.rope_factor, 4);
}

TEST(HfConfig, AliasesOfBloomAreRead) {
  const ModelConfig model =
      parse_hf_config(R"({"model_type":"bloom","n_embed":128,"num_attention_heads":4,)"
                      R"("num_hidden_layers":3,"n_inner":null,"seq_length":512})",
                      "config.json")
          .model;
  EXPECT_EQ(model.hidden, 128);
  EXPECT_EQ(model.heads, 4);
  EXPECT_EQ(model.layers, 3);
  EXPECT_EQ(model.ffn, 512);
  EXPECT_EQ(model.max_positions, 512);
}

TEST(HfConfig, QwenIsALlamaWithQkvBias) {
  const ModelConfig model =
      parse_hf_config(R"({"model_type":"qwen2","hidden_size":896,"num_attention_heads":14,)"
                      R"("num_key_value_heads":2,"intermediate_size":4864,)"
                      R"("num_hidden_layers":24,"max_position_embeddings":131072,)"
                      R"("rope_theta":1000000.0,"tie_word_embeddings":true,)"
                      R"("use_sliding_window":false,"sliding_window":131072,)"
                      R"("max_window_layers":24,"architectures":["Qwen2ForCausalLM"]})",
                      "config.json")
          .model;
  EXPECT_EQ(model, preset("qwen2-0.5b"));
}

struct Refusal {
  const char* text;
  const char* message;
};

void expect_refusals(const std::vector<Refusal>& cases) {
  for (const Refusal& c : cases) {
    EXPECT_EQ(parse_error(c.text), c.message) << c.text;
  }
}

TEST(HfConfig, OtherModelsAreRefusedByName) {
  expect_refusals({
      {"[1]", "config.json is not a JSON object; give a config.json of transformers"},
      {R"({"vocab_size":5})", "config.json has no model_type; add it: gpt2, bloom, llama or qwen2"},
      {R"({"model_type":"lama"})",
       "config.json: model_type='lama' is not computed; did you mean 'llama'? Known are gpt2, "
       "bloom, llama, qwen2"},
      {R"({"model_type":"llama","architectures":["LlamaForSequenceClassification"]})",
       "config.json: architectures has LlamaForSequenceClassification, but only LlamaForCausalLM "
       "is computed; use a causal language model"},
      {R"({"model_type":"llama","quantization_config":{"bits":4}})",
       "config.json: quantization_config is given, but quantized weights are not read; use the "
       "folder with F32, BF16 or F16 weights"},
      {R"({"model_type":"gpt2","n_layer":"12"})",
       "config.json: n_layer=\"12\" must be an integer; correct it"},
      {R"({"model_type":"gpt2","n_layer":12,"num_hidden_layers":13})",
       "config.json: n_layer=12 and num_hidden_layers=13 are the same option with two values; "
       "remove one"},
      {R"({"model_type":"llama","num_key_value_heads":5})",
       "config.json: model.kv_heads=5 does not divide heads=32; use 1, 2, 4, 8, 16 or 32"},
  });
}

TEST(HfConfig, WhatIsNotComputedIsRefusedByName) {
  expect_refusals({
      {R"({"model_type":"gpt2","activation_function":"gelu"})",
       "config.json: activation_function='gelu' is not computed; computed are gelu_new, "
       "gelu_pytorch_tanh, gelu_fast"},
      {R"({"model_type":"gpt2","scale_attn_by_inverse_layer_idx":true})",
       "config.json: scale_attn_by_inverse_layer_idx=true is not computed: scores of all layers "
       "are scaled alike; use a model without it"},
      {R"({"model_type":"gpt2","resid_pdrop":0.1,"embd_pdrop":0.0,"attn_pdrop":0.1})",
       "config.json: embd_pdrop=0 differs from resid_pdrop=0.1, but one dropout is computed "
       "everywhere; make them equal"},
      {R"({"model_type":"bloom","apply_residual_connection_post_layernorm":true})",
       "config.json: apply_residual_connection_post_layernorm=true is not computed: the residual "
       "is taken before the norm; use a model without it"},
      {R"({"model_type":"bloom","hidden_dropout":0.1})",
       "config.json: hidden_dropout=0.1 is not computed; set it to 0 and give model.dropout in the "
       "run file, which drops embeddings, attention and residual branches alike"},
      {R"({"model_type":"llama","hidden_act":"gelu"})",
       "config.json: hidden_act='gelu' is not computed; computed are silu, swish"},
      {R"({"model_type":"llama","rope_scaling":{"rope_type":"yarn","factor":4.0}})",
       "config.json: rope_scaling: the type 'yarn' is not computed; computed are default and "
       "llama3"},
      {R"({"model_type":"llama","rope_parameters":{"rope_type":"llama3","factor":8.0}})",
       "config.json: rope_parameters has no low_freq_factor, which llama3 needs; add it"},
      {R"({"model_type":"qwen2","use_sliding_window":true,"max_window_layers":21,)"
       R"("num_key_value_heads":32})",
       "config.json: use_sliding_window=true from layer 21 on is not computed; use a model with "
       "full attention"},
  });
}

TEST(HfConfig, AModelOfNoClassIsRefusedWithTheReason) {
  const auto why = [](const ModelConfig& model) {
    try {
      (void)hf_model_type(model);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  ModelConfig model = preset("tiny-llama");
  model.norm = "layernorm";
  EXPECT_EQ(why(model),
            "the model has position='rope' and norm='layernorm', which no model of transformers "
            "computes; 'llama' is the nearest. Keep it as a checkpoint");
  model = preset("tiny-gpt");
  model.embedding_norm = true;
  EXPECT_EQ(why(model),
            "the model has position='learned' and embedding_norm=true, which no model of "
            "transformers computes; 'gpt2' is the nearest. Keep it as a checkpoint");
}

}  // namespace
}  // namespace orthant
