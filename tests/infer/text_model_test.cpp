// What generate finds by a path, and what it says when there is nothing.
#include "infer/text_model.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/support/fixture.h"

namespace orthant::test {
namespace {

namespace fs = std::filesystem;

class TextModels : public testing::Test {
 protected:
  void SetUp() override {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = (fs::temp_directory_path() / fmt::format("orthant-infer-{}", test->name())).string();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static ModelConfig model() {
    ModelConfig model = family_defaults("gpt");
    model.layers = 1;
    model.hidden = 16;
    model.heads = 2;
    model.vocab = 50;
    model.max_positions = 8;
    complete(model);
    return model;
  }

  // An empty checkpoint: found by its manifest; its weights are not read here.
  std::string save(const std::string& dir, std::int64_t step) const {
    const CheckpointSave save(folder_ + "/" + dir, step);
    fs::create_directories(save.folder());
    Manifest manifest;
    manifest.step = step;
    manifest.model = model_fields(model());
    save.commit(manifest, 0);
    return fmt::format("{}/{}/step-{:08}", folder_, dir, step);
  }

  std::string run_file(const std::string& text) const {
    std::ofstream(folder_ + "/run.toml")
        << "[model]\nlayers = 1\nhidden = 16\nheads = 2\nvocab = 50\nmax_positions = 8\n"
        << text;
    return folder_ + "/run.toml";
  }

  template <class Body>
  static std::string refusal(Body&& body) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kUser);
      return error.what();
    }
    return "";
  }

  std::string folder_;
};

TEST_F(TextModels, ACheckpointOrItsDirectory) {
  const std::string first = save("ckpt", 5);
  const std::string second = save("ckpt", 20);
  const TextModel named = find_text_model({.path = first, .checkpoint = {}, .overrides = {}});
  EXPECT_EQ(named.model, model());
  EXPECT_EQ(named.weights.origin, "checkpoint " + first);
  const TextModel newest =
      find_text_model({.path = folder_ + "/ckpt", .checkpoint = {}, .overrides = {}});
  EXPECT_EQ(newest.weights.origin, "checkpoint " + second);
}

TEST_F(TextModels, ARunFileHasACheckpointDirectoryAndAPrecision) {
  const std::string first = save("ckpt", 5);
  const std::string second = save("ckpt", 20);
  const std::string run = run_file(
      fmt::format("[checkpoint]\ndir = \"{}/ckpt\"\n[precision]\ncompute = \"bf16\"\n", folder_));
  const TextModel newest = find_text_model({.path = run, .checkpoint = {}, .overrides = {}});
  EXPECT_EQ(newest.weights.origin, "checkpoint " + second);
  EXPECT_EQ(newest.compute, DType::kBF16);
  const TextModel named = find_text_model(
      {.path = run, .checkpoint = first, .overrides = {"--precision.compute=fp32"}});
  EXPECT_EQ(named.weights.origin, "checkpoint " + first);
  EXPECT_EQ(named.compute, DType::kF32);
}

TEST_F(TextModels, WhatIsNotThereIsSaid) {
  const auto find = [](const ModelRequest& request) {
    return refusal([&] { find_text_model(request); });
  };
  const std::string run = run_file("");
  const std::string other = folder_ + "/none";
  const std::string absent = find({.path = other, .checkpoint = {}, .overrides = {}});
  EXPECT_NE(absent.find("there is no such file"), std::string::npos) << absent;
  const std::string empty = find({.path = folder_, .checkpoint = {}, .overrides = {}});
  EXPECT_NE(empty.find("no checkpoint"), std::string::npos) << empty;
  const std::string untrained = find({.path = run, .checkpoint = {}, .overrides = {}});
  EXPECT_NE(untrained.find("train first"), std::string::npos) << untrained;
  const std::string unnamed = find({.path = run, .checkpoint = other, .overrides = {}});
  EXPECT_NE(unnamed.find("--checkpoint " + other), std::string::npos) << unnamed;
  const std::string folder = save("ckpt", 1);
  const std::string typo = find({.path = folder, .checkpoint = {}, .overrides = {"--top-q=3"}});
  EXPECT_NE(typo.find("--top-q=3 is not an option"), std::string::npos) << typo;
}

TEST_F(TextModels, ACheckpointOfAnotherModelIsRefused) {
  save("ckpt", 5);
  const std::string run = run_file(fmt::format("[checkpoint]\ndir = \"{}/ckpt\"\n", folder_));
  const std::string message = refusal(
      [&] { find_text_model({.path = run, .checkpoint = {}, .overrides = {"--model.layers=3"}}); });
  EXPECT_NE(message.find("layers"), std::string::npos) << message;
}

TEST_F(TextModels, SmallVocabulariesAreBytesAndOthersMustBeNamed) {
  TextModel text;
  text.model = model();
  EXPECT_EQ(find_tokenizer("", text)->vocab_size(), 256);
  text.model.vocab = 1000;
  const std::string message = refusal([&] { find_tokenizer("", text); });
  EXPECT_NE(message.find("--tokenizer"), std::string::npos) << message;
}

TEST_F(TextModels, APromptOfAnotherVocabularyIsRefused) {
  TextModel text;
  text.model = model();
  const auto tokenizer = make_tokenizer("bytes");
  EXPECT_EQ(encode_prompt(*tokenizer, text, "01"), (std::vector<std::int32_t>{48, 49}));
  const std::string message = refusal([&] { encode_prompt(*tokenizer, text, "0z"); });
  EXPECT_NE(message.find("token 122, model.vocab=50"), std::string::npos) << message;
  const std::string empty = refusal([&] { encode_prompt(*tokenizer, text, ""); });
  EXPECT_NE(empty.find("the prompt is empty"), std::string::npos) << empty;
}

TEST(HuggingFaceFolders, AreWrittenWith) {
  if (!has_fixture("gpt2-tiny")) GTEST_SKIP() << "no fixtures at " << fixture_folder("gpt2-tiny");
  const std::string folder = fixture_folder("gpt2-tiny");
  const TextModel text = find_text_model({.path = folder, .checkpoint = {}, .overrides = {}});
  EXPECT_EQ(text.model, read_hf_config(folder).model);
  EXPECT_EQ(text.ends, std::vector<std::int32_t>{0});
  EXPECT_EQ(find_tokenizer("", text)->vocab_size(), 256);
}

}  // namespace
}  // namespace orthant::test
