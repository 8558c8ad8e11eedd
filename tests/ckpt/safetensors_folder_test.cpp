// A Hugging Face folder with one file, with an index, and with an index that does not hold.
#include "ckpt/safetensors_folder.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

class SafetensorsFolders : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = (fs::temp_directory_path() /
               fmt::format("orthant-{}-{}-{}", info->test_suite_name(), info->name(), ::getpid()))
                  .string();
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // Tensors of one byte each.
  void write_part(const std::string& name, const std::string& tensors) const {
    std::vector<NamedTensor> named;
    std::string values = tensors;
    for (char& value : values) {
      named.push_back(
          {std::string(1, value), {reinterpret_cast<std::byte*>(&value), {1}, DType::kU8}});
    }
    write_safetensors(path(name), named);
  }

  void write_index(const std::string& text) const {
    write_file_atomically(path("model.safetensors.index.json"), text);
  }

  std::string user_error() const {
    try {
      const SafetensorsFolder folder(folder_);
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kUser) << error.what();
      return error.what();
    }
    return "no error";
  }

  std::string folder_;
};

TEST_F(SafetensorsFolders, OneFileNeedsNoIndex) {
  write_part("model.safetensors", "ab");
  const SafetensorsFolder folder(folder_);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(folder.find("b").data()[0], std::byte('b'));
  EXPECT_TRUE(folder.has("a"));
  EXPECT_FALSE(folder.has("c"));
}

TEST_F(SafetensorsFolders, TensorsAreFoundAcrossFiles) {
  write_part("model-00001-of-00002.safetensors", "ab");
  write_part("model-00002-of-00002.safetensors", "cx");
  write_index(R"({"metadata":{"total_size":3},"weight_map":{
    "a":"model-00001-of-00002.safetensors","b":"model-00001-of-00002.safetensors",
    "c":"model-00002-of-00002.safetensors"}})");
  const SafetensorsFolder folder(folder_);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a", "b", "c"}));
  for (const std::string name : {"a", "b", "c"}) {
    EXPECT_EQ(folder.find(name).data()[0], std::byte(name[0]));
  }
  EXPECT_EQ(folder.find("c").file->path(), path("model-00002-of-00002.safetensors"));
  EXPECT_FALSE(folder.has("x"));  // not in the index
}

TEST_F(SafetensorsFolders, ATensorThatIsNowhereNamesTheNearest) {
  write_part("model.safetensors", "ab");
  const SafetensorsFolder folder(folder_);
  try {
    folder.find("bb");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), folder_ + " has no tensor 'bb'; the nearest of its 2 is 'b'");
  }
}

TEST_F(SafetensorsFolders, WhatTheIndexPromisesMustBeThere) {
  write_part("one.safetensors", "a");
  write_index(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_EQ(user_error(), path("two.safetensors") + " is missing; " +
                              path("model.safetensors.index.json") +
                              " says that it holds tensor 'b'; fetch it");
  write_index(R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})");
  EXPECT_EQ(user_error(), path("one.safetensors") + " has no tensor 'b', though " +
                              path("model.safetensors.index.json") + " says so; fetch both again");
}

TEST_F(SafetensorsFolders, AnIndexThatIsNoneIsRefused) {
  write_part("one.safetensors", "a");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "is not JSON"},
      {"[]", "has no object weight_map"},
      {"{}", "has no object weight_map"},
      {R"({"weight_map":[]})", "has no object weight_map"},
      {R"({"weight_map":{"a":1}})", "weight_map gives 1 for tensor 'a'"},
      {R"({"weight_map":{"a":"../one.safetensors"}})", "weight_map gives"},
      {R"({"weight_map":{"a":"/etc/passwd"}})", "weight_map gives"},
      {R"({"weight_map":{"a":""}})", "weight_map gives"},
      {R"({"weight_map":{"a":"one.safetensors","a":"one.safetensors"}})", "has the key 'a' twice"},
      {R"({"weight_map":{},"weight_map":{}})", "has the key 'weight_map' twice"},
      {std::string(1000000, '['), "is nested deeper than 4 levels"},
      {R"({"weight_map":{"a":"model.safetensors.index.json"}})", "safetensors file"},
  };
  for (const auto& [text, message] : cases) {
    write_index(text);
    EXPECT_NE(user_error().find(message), std::string::npos) << user_error();
  }
}

TEST_F(SafetensorsFolders, AFolderWithoutWeightsSaysWhatIsMissing) {
  EXPECT_NE(user_error().find("has neither model.safetensors nor"), std::string::npos);
  write_file_atomically(path("pytorch_model.bin"), "x");
  EXPECT_NE(user_error().find("only pytorch_model.bin; save the model as safetensors"),
            std::string::npos);
  fs::remove_all(folder_);
  EXPECT_NE(user_error().find("is no folder"), std::string::npos);
}

TEST_F(SafetensorsFolders, ReadsTheFixtures) {
  const std::string fixtures = ORTHANT_SOURCE_DIR "/../shared/fixtures";
  if (!fs::exists(fixtures)) GTEST_SKIP() << fixtures << " is not on this machine";
  const SafetensorsFolder folder(fixtures + "/gpt2-tiny");
  const auto found = folder.find("transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(found.entry->shape, (std::vector<std::int64_t>{64, 192}));
  EXPECT_EQ(std::ssize(found.data()), 64 * 192 * 4);
}

}  // namespace
}  // namespace orthant
