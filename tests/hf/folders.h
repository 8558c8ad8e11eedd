// Folders, models and sources of weights for the tests of this room.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/random.h"
#include "model/canonical.h"
#include "params/param_source.h"

namespace orthant {

namespace fs = std::filesystem;

inline const std::string kFixtures = ORTHANT_SOURCE_DIR "/../shared/fixtures/";

// Skips a test that reads the fixtures where they are not.
#define ORTHANT_NEED_FIXTURES() \
  if (!fs::exists(kFixtures)) GTEST_SKIP() << kFixtures << " is not on this machine"

// A folder of one test, empty at its beginning.
inline std::string test_folder(const std::string& name) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("orthant_hf_" + name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder.string();
}

inline std::string user_error(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUser) << error.what();
    return error.what();
  }
  return "no error";
}

// Every element has its own value.
class CountingSource final : public ParamSource {
 public:
  void read(const ParamSpec& param, StateKind /*state*/, std::int64_t first,
            std::span<float> into) const override {
    for (std::size_t i = 0; i < into.size(); ++i) {
      const auto at = static_cast<std::uint64_t>(first) + i;
      into[i] = static_cast<float>(uniform(philox(7, stream_of(param.name), at)[0]));
    }
  }
};

inline std::vector<float> read_all(const ParamSource& source, const ParamSpec& param) {
  std::vector<float> values(static_cast<std::size_t>(param.global.count()));
  source.read(param, StateKind::kWeight, 0, values);
  return values;
}

inline void expect_equal(const ParamSource& a, const ParamSource& b, const ModelConfig& model) {
  for (const ParamSpec& param : canonical_params(model)) {
    EXPECT_EQ(read_all(a, param), read_all(b, param)) << param.name;
  }
}

inline std::vector<ModelConfig> small_models() {
  std::vector<ModelConfig> models = {preset("tiny-gpt"), preset("tiny-bloom"),
                                     preset("tiny-llama")};
  ModelConfig untied = preset("tiny-gpt");
  untied.tie_embeddings = false;
  untied.ffn = 100;
  models.push_back(untied);
  ModelConfig qwen2 = preset("tiny-llama");
  qwen2.qkv_bias = true;
  qwen2.tie_embeddings = true;
  models.push_back(qwen2);
  ModelConfig biased = preset("tiny-llama");
  biased.qkv_bias = true;
  biased.proj_bias = true;
  biased.mlp_bias = true;
  biased.head_dim = 10;
  models.push_back(biased);
  return models;
}

}  // namespace orthant
