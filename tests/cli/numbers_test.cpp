// The binary against the float64 references of three models: conversion, logits, gradients and
// final weights, through files alone.
#include <cmath>
#include <cstring>

#include "ckpt/safetensors.h"
#include "tests/cli/binary.h"

namespace orthant::test {
namespace {

std::string fixture_folder(const std::string& model) {
  return std::string(ORTHANT_SOURCE_DIR) + "/../shared/fixtures/" + model;
}

std::vector<float> values_of(const SafetensorsFile& file, const std::string& name) {
  const TensorEntry* entry = file.find(name);
  if (entry == nullptr) {
    ADD_FAILURE() << file.path() << " has no " << name;
    return {};
  }
  std::vector<float> values(static_cast<std::size_t>(entry->bytes()) / sizeof(float));
  std::memcpy(values.data(), file.data(*entry).data(), file.data(*entry).size());
  return values;
}

class Numbers : public Workplace, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    fixture_ = fixture_folder(GetParam());
    if (!std::filesystem::exists(fixture_)) {
      GTEST_SKIP() << "the references are not here: " << fixture_;
    }
    Workplace::SetUp();
    write_content(at("run.toml"), fmt::format(R"([model]
weights = "{0}"
[train]
steps = 20
global_batch = 8
seq_length = 32
eval_steps = 1
[optimizer]
lr = 0.005
min_lr = 0.0005
warmup_steps = 4
[data]
train = ["{0}/corpus"]
valid = ["{0}/corpus"]
order = "sequential"
[checkpoint]
dir = "ckpt"
)",
                                              fixture_));
  }

  // Every tensor `prefix`NAME of the references against NAME of `path`, in relative norm.
  void expect_close_tensors(const std::string& path, const std::string& prefix, double most) const {
    const SafetensorsFile expected(fixture_ + "/expected.safetensors");
    const SafetensorsFile found(at(path));
    int compared = 0;
    for (const TensorEntry& entry : expected.entries()) {
      if (!entry.name.starts_with(prefix)) continue;
      const std::vector<float> want = values_of(expected, entry.name);
      const std::vector<float> have = values_of(found, entry.name.substr(prefix.size()));
      ASSERT_EQ(have.size(), want.size()) << entry.name;
      double difference = 0;
      double norm = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        difference += std::pow(static_cast<double>(have[i]) - want[i], 2);
        norm += std::pow(static_cast<double>(want[i]), 2);
      }
      EXPECT_LE(std::sqrt(difference), most * std::sqrt(norm)) << entry.name;
      ++compared;
    }
    EXPECT_EQ(compared, static_cast<int>(found.entries().size()));
  }

  void expect_close_elements(const std::string& path, const std::string& name, double most) const {
    const SafetensorsFile expected(fixture_ + "/expected.safetensors");
    const SafetensorsFile found(at(path));
    const std::vector<float> want = values_of(expected, name);
    const std::vector<float> have = values_of(found, name);
    ASSERT_EQ(have.size(), want.size()) << name;
    double worst = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(have[i]) - want[i]));
    }
    EXPECT_LE(worst, most) << name;
  }

  std::string fixture_;
};

TEST_P(Numbers, ConvertBackGivesTheSameBits) {
  ASSERT_EQ(run({"convert", fixture_, "converted"}).status, 0);
  ASSERT_EQ(run({"convert", "converted", "back"}).status, 0);
  const SafetensorsFile expected(fixture_ + "/model.safetensors");
  const SafetensorsFile found(at("back/model.safetensors"));
  EXPECT_EQ(found.entries().size(), expected.entries().size());
  for (const TensorEntry& entry : expected.entries()) {
    const TensorEntry* other = found.find(entry.name);
    ASSERT_NE(other, nullptr) << entry.name;
    EXPECT_EQ(other->shape, entry.shape) << entry.name;
    const auto want = expected.data(entry);
    const auto have = found.data(*other);
    ASSERT_EQ(have.size(), want.size()) << entry.name;
    EXPECT_EQ(std::memcmp(have.data(), want.data(), want.size()), 0) << entry.name;
  }
}

TEST_P(Numbers, FollowTheReferencesOnOneRankAndOnEight) {
  const std::vector<std::string> layouts[] = {
      {}, {"--layout.ranks=8", "--layout.tp=2", "--layout.pp=2", "--layout.micro_batch=2"}};
  for (const std::vector<std::string>& layout : layouts) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(layout, " ")));
    std::filesystem::remove_all(at("ckpt"));
    std::filesystem::remove_all(at("back"));
    std::vector<std::string> eval = {"eval", "run.toml", "--logits", "logits.safetensors"};
    eval.insert(eval.end(), layout.begin(), layout.end());
    const Finished evaluated = run(eval);
    ASSERT_EQ(evaluated.status, 0) << evaluated.err;
    expect_close_elements("logits.safetensors", "logits", 1e-5);
    expect_close_elements("logits.safetensors", "per_token_loss", 1e-5);

    std::vector<std::string> options = {"--dump-gradients", "1", "grads.safetensors"};
    options.insert(options.end(), layout.begin(), layout.end());
    expect_trains(options);
    expect_close_tensors("grads.safetensors", "grad.", 1e-5);
    ASSERT_EQ(run({"convert", "ckpt", "back"}).status, 0);
    expect_close_tensors("back/model.safetensors", "final.", 5e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Numbers, testing::Values("gpt2-tiny", "bloom-tiny", "llama-tiny"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(0, name.find('-'));
                         });

}  // namespace
}  // namespace orthant::test
