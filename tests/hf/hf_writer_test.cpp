// Weights into Hugging Face folders.
#include "hf/hf_writer.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "ckpt/safetensors.h"
#include "hf/hf_source.h"
#include "tests/hf/folders.h"

namespace orthant {
namespace {

class HfFixture : public ::testing::TestWithParam<const char*> {};

TEST_P(HfFixture, ImportThenExportIsBitEqual) {
  ORTHANT_NEED_FIXTURES();
  const std::string from = kFixtures + GetParam();
  const std::string to = test_folder(GetParam());
  const HfConfig config = read_hf_config(from);
  const HfSource source(config.model, from);
  write_hf_folder({.folder = to, .model = config.model, .tokens = config.tokens}, source,
                  canonical_params(config.model));

  const HfConfig back = read_hf_config(to);
  EXPECT_EQ(back.model, config.model);
  EXPECT_EQ(back.tokens, config.tokens);
  const SafetensorsFile before(from + "/model.safetensors");
  const SafetensorsFile after(to + "/model.safetensors");
  ASSERT_EQ(before.entries().size(), after.entries().size());
  EXPECT_EQ(after.metadata().at("format"), "pt");
  for (const TensorEntry& entry : before.entries()) {
    const TensorEntry* other = after.find(entry.name);
    ASSERT_NE(other, nullptr) << entry.name;
    EXPECT_EQ(other->shape, entry.shape);
    const auto a = before.data(entry);
    const auto b = after.data(*other);
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << entry.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HfFixture,
                         ::testing::Values("gpt2-tiny", "bloom-tiny", "llama-tiny"));

TEST(HfWriter, WhatIsWrittenReadsBackTheSame) {
  for (const ModelConfig& model : small_models()) {
    const std::string to = test_folder("round_trip");
    const CountingSource source;
    write_hf_folder({.folder = to + "/", .model = model, .tokens = {}}, source,
                    canonical_params(model));
    EXPECT_EQ(read_hf_config(to).model.hidden, model.hidden);
    EXPECT_FALSE(fs::exists(to + ".partial"));
    expect_equal(source, HfSource(model, to), model);
  }
}

TEST(HfWriter, SeveralFilesHaveAnIndex) {
  const ModelConfig model = preset("tiny-llama");
  const std::string to = test_folder("index");
  const CountingSource source;
  write_hf_folder({.folder = to, .model = model, .tokens = {}, .max_file_bytes = 200'000}, source,
                  canonical_params(model));
  const Json index = Json::parse(read_text_file(to + "/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 4 * count_parameters(model));
  EXPECT_EQ(index["weight_map"]["lm_head.weight"], index["weight_map"]["model.norm.weight"]);
  EXPECT_TRUE(fs::exists(to + "/model-00001-of-00005.safetensors"));
  EXPECT_FALSE(fs::exists(to + "/model.safetensors"));
  expect_equal(source, HfSource(model, to), model);
}

TEST(HfWriter, Bf16IsTheRoundedValue) {
  const ModelConfig model = preset("tiny-gpt");
  const std::string to = test_folder("bf16");
  const CountingSource source;
  write_hf_folder({.folder = to, .model = model, .tokens = {}, .dtype = DType::kBF16}, source,
                  canonical_params(model));
  const HfSource back(model, to);
  for (const ParamSpec& param : block_params(model, 3)) {
    std::vector<float> rounded = read_all(source, param);
    for (float& value : rounded) {
      value = static_cast<float>(BFloat16(value));
    }
    EXPECT_EQ(read_all(back, param), rounded) << param.name;
  }
}

TEST(HfWriter, GradientsGoIntoOneFileUnderTheSameNames) {
  ORTHANT_NEED_FIXTURES();
  const ModelConfig model = preset("tiny-bloom");
  const std::string path = test_folder("gradients") + "/grads.safetensors";
  const CountingSource source;
  write_hf_tensors({.path = path, .model = model, .prefix = "grad."}, source,
                   canonical_params(model));
  const SafetensorsFile file(path);
  const SafetensorsFile expected(kFixtures + "bloom-tiny/expected.safetensors");
  std::size_t num_gradients = 0;
  for (const TensorEntry& entry : expected.entries()) {
    if (!entry.name.starts_with("grad.")) continue;
    ++num_gradients;
    const TensorEntry* found = file.find(entry.name);
    ASSERT_NE(found, nullptr) << entry.name;
    EXPECT_EQ(found->shape, entry.shape);
  }
  EXPECT_EQ(file.entries().size(), num_gradients);
}

TEST(HfWriter, AFolderThatHoldsSomethingIsLeftAlone) {
  const ModelConfig model = preset("tiny-gpt");
  const std::string to = test_folder("taken");
  write_file_atomically(to + "/mine.txt", "mine");
  const CountingSource source;
  EXPECT_EQ(user_error([&] {
              write_hf_folder({.folder = to, .model = model, .tokens = {}}, source,
                              canonical_params(model));
            }),
            to + " is there already and not an empty folder; nothing was written, give a new name");
  EXPECT_EQ(read_text_file(to + "/mine.txt"), "mine");
  EXPECT_FALSE(fs::exists(to + ".partial"));
}

// A source that fails in the middle of a run.
class FailingSource final : public ParamSource {
 public:
  void read(const ParamSpec& param, StateKind /*state*/, std::int64_t /*first*/,
            std::span<float> /*into*/) const override {
    if (param.name.starts_with("h.2.")) fail_run("no more");
  }
};

TEST(HfWriter, AFailureLeavesNothingBehind) {
  const ModelConfig model = preset("tiny-gpt");
  const std::string to = test_folder("failure") + "/out";
  EXPECT_THROW(write_hf_folder({.folder = to, .model = model, .tokens = {}}, FailingSource(),
                               canonical_params(model)),
               Error);
  EXPECT_THROW(write_hf_tensors({.path = to, .model = model, .prefix = ""}, FailingSource(),
                                canonical_params(model)),
               Error);
  EXPECT_TRUE(fs::is_empty(fs::path(to).parent_path()));
}

}  // namespace
}  // namespace orthant
