// Known models by name. What a row does not say is its family's default.
#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "model/model_config.h"

namespace orthant {
namespace {

struct Sizes {
  std::int64_t layers;
  std::int64_t hidden;
  std::int64_t heads;
  std::int64_t kv_heads;  // 0: as many as heads
  std::int64_t ffn;       // 0: 4 * hidden
  std::int64_t vocab;
  std::int64_t max_positions;
};

struct Preset {
  const char* name;
  const char* family;
  Sizes sizes;
  void (*change)(ModelConfig&);  // the rest, or null
};

void llama2(ModelConfig& config) {
  config.norm_eps = 1e-5;
}

void llama3(ModelConfig& config) {
  config.norm_eps = 1e-5;
  config.rope_base = 500000;
}

void qwen2(ModelConfig& config) {
  config.rope_base = 1e6;
  config.qkv_bias = true;
}

void small_qwen2(ModelConfig& config) {
  qwen2(config);
  config.tie_embeddings = true;
}

void bloom_176b(ModelConfig& config) {
  config.init_std = 0.0048;  // sqrt(1 / (3 * hidden)), as it was trained
}

// clang-format off
//                              layers hidden heads kv  ffn    vocab   positions
constexpr Preset kPresets[] = {
    {"gpt2-124m", "gpt",        {12,  768,   12,  0,  0,     50257,  1024},   nullptr},
    {"gpt2-350m", "gpt",        {24,  1024,  16,  0,  0,     50257,  1024},   nullptr},
    {"gpt2-774m", "gpt",        {36,  1280,  20,  0,  0,     50257,  1024},   nullptr},
    {"gpt2-1558m", "gpt",       {48,  1600,  25,  0,  0,     50257,  1024},   nullptr},
    {"bloom-560m", "bloom",     {24,  1024,  16,  0,  0,     250880, 2048},   nullptr},
    {"bloom-1b1", "bloom",      {24,  1536,  16,  0,  0,     250880, 2048},   nullptr},
    {"bloom-7b1", "bloom",      {30,  4096,  32,  0,  0,     250880, 2048},   nullptr},
    {"bloom-176b", "bloom",     {70,  14336, 112, 0,  0,     250880, 2048},   bloom_176b},
    {"llama-7b", "llama",       {32,  4096,  32,  0,  11008, 32000,  2048},   nullptr},
    {"llama-13b", "llama",      {40,  5120,  40,  0,  13824, 32000,  2048},   nullptr},
    {"llama-34b", "llama",      {48,  8192,  64,  8,  22016, 32000,  4096},   llama2},
    {"llama2-70b", "llama",     {80,  8192,  64,  8,  28672, 32000,  4096},   llama2},
    {"llama3-8b", "llama",      {32,  4096,  32,  8,  14336, 128256, 8192},   llama3},
    {"llama3-70b", "llama",     {80,  8192,  64,  8,  28672, 128256, 8192},   llama3},
    {"qwen2-0.5b", "llama",     {24,  896,   14,  2,  4864,  151936, 131072}, small_qwen2},
    {"qwen2-1.5b", "llama",     {28,  1536,  12,  2,  8960,  151936, 131072}, small_qwen2},
    {"qwen2-7b", "llama",       {28,  3584,  28,  4,  18944, 152064, 131072}, qwen2},
    {"qwen2-72b", "llama",      {80,  8192,  64,  8,  29568, 152064, 131072}, qwen2},
    {"gpt3-175b", "gpt",        {96,  12288, 96,  0,  0,     50257,  2048},   nullptr},
    {"gpt-1t", "gpt",           {128, 25600, 160, 0,  0,     51200,  2048},   nullptr},
    {"tiny-gpt", "gpt",         {4,   64,    8,   0,  0,     256,    64},     nullptr},
    {"tiny-bloom", "bloom",     {4,   64,    8,   0,  0,     256,    64},     nullptr},
    {"tiny-llama", "llama",     {4,   64,    8,   4,  176,   256,    64},     llama2},
};
// clang-format on

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& row : kPresets) {
    names.emplace_back(row.name);
  }
  return names;
}

ModelConfig preset(const std::string& name) {
  const Preset* found = std::find_if(std::begin(kPresets), std::end(kPresets),
                                     [&](const Preset& row) { return name == row.name; });
  if (found == std::end(kPresets)) {
    const std::vector<std::string> names = preset_names();
    fail_user("model.preset='{}' is not known; did you mean '{}'? Known are {}", name,
              nearest(name, names), join(names));
  }
  ModelConfig config = family_defaults(found->family);
  config.layers = found->sizes.layers;
  config.hidden = found->sizes.hidden;
  config.heads = found->sizes.heads;
  config.kv_heads = found->sizes.kv_heads;
  config.ffn = found->sizes.ffn;
  config.vocab = found->sizes.vocab;
  config.max_positions = found->sizes.max_positions;
  if (found->change != nullptr) found->change(config);
  complete(config);
  return config;
}

}  // namespace orthant
