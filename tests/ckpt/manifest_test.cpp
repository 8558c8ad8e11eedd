// The manifest of a checkpoint: what is written reads back, and numbers that cannot be are refused.
#include "ckpt/manifest.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace orthant {
namespace {

Manifest full() {
  Manifest manifest;
  manifest.step = 7;
  manifest.updates = 6;
  manifest.loss_scale = 1024;
  manifest.good_steps = 3;
  manifest.skipped = 1;
  manifest.position = 56;
  manifest.tokens = 896;
  manifest.blends = {{.position = 0, .weights = {{"a", 0.5}, {"b", 1.5}}},
                     {.position = 40, .weights = {{"a", 0}, {"b", 2}}}};
  manifest.model = {{"family", "\"gpt\""}, {"hidden", "64"}};
  manifest.files = {{"embed.safetensors", 1234}};
  manifest.checksums = {{"embed.tokens.weight", 0xfedcba9876543210}};
  return manifest;
}

// What is said of the text with `from` replaced by `to`; empty: it is accepted.
std::string refusal(const std::string& from, const std::string& to) {
  std::string text = manifest_text(full());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in " << text;
  if (at == std::string::npos) return "";
  text.replace(at, from.size(), to);
  try {
    parse_manifest(text, "manifest.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUser);
    return error.what();
  }
  return "";
}

TEST(Manifest, WhatIsWrittenReadsBackTheSame) {
  const std::string text = manifest_text(full());
  const Manifest read = parse_manifest(text, "manifest.json");
  EXPECT_EQ(manifest_text(read), text);
  EXPECT_EQ(read.position, 56);
  EXPECT_EQ(read.blends.size(), 2U);
  EXPECT_EQ(read.checksums.at("embed.tokens.weight"), 0xfedcba9876543210);
}

TEST(Manifest, NumbersThatAreNoCountsAreNamed) {
  for (const char* key :
       {"\"step\": 7", "\"updates\": 6", "\"good_steps\": 3", "\"skipped\": 1", "\"position\": 56",
        "\"tokens\": 896", "\"bytes\": 1234", "\"position\": 40"}) {
    const std::string name(key, std::string(key).find(':') + 2);
    for (const char* number :
         {"92233372036854775808", "9223372036854775807", "-1", "1.5", "1e3", "\"7\"", "null"}) {
      const std::string said = refusal(key, name + number);
      EXPECT_NE(said.find("manifest.json is damaged"), std::string::npos) << key << " " << number;
      EXPECT_NE(said.find("an integer from 0 to"), std::string::npos) << said;
      EXPECT_NE(said.find(name.substr(1, name.size() - 4)), std::string::npos) << said;
    }
  }
  EXPECT_NE(refusal("\"step\": 7", "\"step\": 1000000001").find("from 0 to 1000000000 was"),
            std::string::npos);
}

TEST(Manifest, ScalesAndBlendsThatCannotBeAreNamed) {
  EXPECT_NE(refusal("1024.0", "0").find("loss_scale is 0"), std::string::npos);
  EXPECT_NE(refusal("1024.0", "-8").find("loss_scale is -8"), std::string::npos);
  EXPECT_NE(refusal("1024.0", "1000.0").find("loss_scale is 1000, no power"), std::string::npos);
  EXPECT_NE(refusal("\"updates\": 6", "\"updates\": 8").find("7 steps made 8 updates"),
            std::string::npos);
  EXPECT_NE(refusal("\"position\": 40", "\"position\": 0").find("no later than the one before"),
            std::string::npos);
  EXPECT_NE(refusal("\"position\": 40", "\"position\": 57").find("the training was at 56"),
            std::string::npos);
  EXPECT_NE(refusal("0.5", "-0.5").find("the weight -0.5"), std::string::npos);
  EXPECT_NE(refusal("2.0", "0").find("sum to 0"), std::string::npos);
  EXPECT_NE(refusal("fedcba9876543210", "fedcba987654321x").find("is no checksum"),
            std::string::npos);
}

TEST(Manifest, FilesLieInItsFolder) {
  for (const char* name : {"", ".", "..", "../embed.safetensors", "/etc/passwd", "a/b"}) {
    const std::string said = refusal("embed.safetensors", name);
    EXPECT_NE(said.find(std::string("'") + name + "' is no file of its folder"), std::string::npos)
        << said;
  }
}

TEST(Manifest, WhatIsNoJsonIsNamedOnce) {
  const std::string said = refusal("\"step\": 7,", "\"step\": 7");
  EXPECT_NE(said.find("is damaged: parse error at line"), std::string::npos) << said;
  EXPECT_EQ(said.find("json.exception"), std::string::npos) << said;
}

}  // namespace
}  // namespace orthant
