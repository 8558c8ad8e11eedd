#include "model/model_config.h"

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "model/canonical.h"

namespace orthant {
namespace {

std::string user_error(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUser);
    return error.what();
  }
  return "no error";
}

TEST(ModelConfig, PresetsHaveThePublishedParameterCounts) {
  struct Case {
    const char* name;
    std::int64_t parameters;
  };
  const Case cases[] = {
      {"gpt2-124m", 124439808},   {"gpt2-350m", 354823168},     {"gpt2-774m", 774030080},
      {"gpt2-1558m", 1557611200}, {"bloom-560m", 559214592},    {"bloom-1b1", 1065314304},
      {"bloom-7b1", 7069016064},  {"bloom-176b", 176247271424}, {"llama-7b", 6738415616},
      {"llama-13b", 13015864320}, {"llama-34b", 33743970304},   {"llama2-70b", 68976648192},
      {"llama3-8b", 8030261248},  {"qwen2-0.5b", 494032768},    {"qwen2-1.5b", 1543714304},
      {"qwen2-7b", 7615616512},   {"llama3-70b", 70553706496},  {"qwen2-72b", 72706203648},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(count_parameters(preset(c.name)), c.parameters) << c.name;
  }
}

TEST(ModelConfig, TheClosedFormAgreesWithTheListOfParameters) {
  for (const std::string& name : preset_names()) {
    ModelConfig config = preset(name);
    for (const bool flip : {false, true}) {
      if (flip) {
        config.mlp_bias = !config.mlp_bias;
        config.qkv_bias = !config.qkv_bias;
        config.proj_bias = !config.proj_bias;
        config.tie_embeddings = !config.tie_embeddings;
        config.embedding_norm = !config.embedding_norm;
      }
      std::int64_t sum = 0;
      for (const ParamSpec& param : canonical_params(config)) {
        sum += param.global.count();
      }
      EXPECT_EQ(count_parameters(config), sum) << name << " flipped " << flip;
    }
  }
}

TEST(ModelConfig, SequenceFlopsCountProductsAndHalfOfAttention) {
  const ModelConfig config = preset("tiny-gpt");
  const double matrices = 4 * (4 * 64 * 64 + 2 * 64 * 256) + 256 * 64;
  const double attention = 4 * 6.0 * 32 * 32 * 64;
  EXPECT_DOUBLE_EQ(sequence_flops(config, 32), 6 * matrices * 32 + attention);
}

TEST(ModelConfig, CompleteFillsWhatIsDerived) {
  ModelConfig config = family_defaults("llama");
  complete(config);
  EXPECT_EQ(config.kv_heads, 12);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.ffn, 3072);
  const ModelConfig once = config;
  complete(config);
  EXPECT_EQ(config, once);
}

TEST(ModelConfig, MessagesNameTheFieldTheValueAndTheWayOut) {
  struct Case {
    std::function<void(ModelConfig&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](ModelConfig& c) { c.family = "lama"; },
       "model.family='lama' is not known; did you mean 'llama'? Known are gpt, bloom, llama"},
      {[](ModelConfig& c) { c.position = "ropes"; },
       "model.position='ropes' is not known; did you mean 'rope'? Known are learned, alibi, rope"},
      {[](ModelConfig& c) { c.norm = "rms"; },
       "model.norm='rms' is not known; did you mean 'rmsnorm'? Known are layernorm, rmsnorm"},
      {[](ModelConfig& c) { c.activation = "relu"; },
       "model.activation='relu' is not known; did you mean 'gelu'? Known are gelu, swiglu"},
      {[](ModelConfig& c) { c.rope_scaling = "yarn"; },
       "model.rope_scaling='yarn' is not known; did you mean 'none'? Known are none, llama3"},
      {[](ModelConfig& c) { c.layers = 0; },
       "model.layers=0 must lie between 1 and 10000; correct it"},
      {[](ModelConfig& c) { c.kv_heads = 5; },
       "model.kv_heads=5 does not divide heads=12; use 1, 2, 3, 4, 6 or 12"},
      {[](ModelConfig& c) { c.hidden = 770; },
       "model.heads=12 does not divide hidden=770; use another number or give head_dim"},
      {[](ModelConfig& c) { c.dropout = 1; },
       "model.dropout=1 must be at least 0 and below 1; use 0 for none"},
      {[](ModelConfig& c) { c.norm_eps = -1; },
       "model.norm_eps=-1 must be a positive number; correct it"},
      {[](ModelConfig& c) { c.rope_scaling = "llama3"; },
       "model.rope_scaling='llama3' needs position='rope', found 'learned'; use 'none'"},
      {[](ModelConfig& c) {
         c.position = "rope";
         c.head_dim = 63;
       },
       "model.head_dim=63 is odd, but rope turns pairs; use an even head_dim"},
  };
  for (const Case& c : cases) {
    ModelConfig config;
    c.change(config);
    EXPECT_EQ(user_error([&] { complete(config); }), c.message);
  }
  EXPECT_EQ(user_error([] { (void)preset("gpt2-124"); }).substr(0, 70),
            "model.preset='gpt2-124' is not known; did you mean 'gpt2-124m'? Known ");
}

TEST(CanonicalParams, BlockListsTheFusedPairsBehindEachOther) {
  const std::vector<ParamSpec> block = block_params(preset("tiny-gpt"), 2);
  std::vector<std::string> names;
  for (const ParamSpec& param : block) {
    names.push_back(param.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "h.2.attn.norm.weight", "h.2.attn.norm.bias", "h.2.attn.q.weight",
                       "h.2.attn.kv.weight", "h.2.attn.q.bias", "h.2.attn.kv.bias",
                       "h.2.attn.proj.weight", "h.2.attn.proj.bias", "h.2.mlp.norm.weight",
                       "h.2.mlp.norm.bias", "h.2.mlp.up.weight", "h.2.mlp.up.bias",
                       "h.2.mlp.down.weight", "h.2.mlp.down.bias"}));
  EXPECT_TRUE(block[3].follows);
  EXPECT_TRUE(block[5].follows);
  EXPECT_EQ(block[3].global, Shape({2, 8, 8, 64}));
  EXPECT_EQ(block[3].split_dim, 1);
  EXPECT_FALSE(block[4].decays);
  EXPECT_DOUBLE_EQ(block[6].init.std, 0.02 / std::sqrt(8.0));
}

}  // namespace
}  // namespace orthant
