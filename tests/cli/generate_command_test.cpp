// The command line of orthant generate: the prompt and the text on standard output, nothing else.
#include <cstdio>
#include <fstream>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "data/unicode.h"
#include "tests/support/fixture.h"

namespace orthant::test {
namespace {

struct Outcome {
  int status = -1;
  std::string out;
  std::string error;
};

Outcome generate(const std::vector<std::string>& arguments) {
  Parser program("orthant", "");
  Command chosen;
  add_generate(program, chosen);
  std::vector<std::string> words = {"generate"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  Outcome outcome;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  try {
    program.parse(words);
    outcome.status = chosen();
  } catch (const Error& error) {
    outcome.status = static_cast<int>(error.fault());
    outcome.error = error.what();
  }
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.error += testing::internal::GetCapturedStderr();
  return outcome;
}

class GenerateCommand : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_fixture("gpt2-tiny")) GTEST_SKIP() << "no fixtures at " << fixture_folder("gpt2-tiny");
  }
  const std::string folder_ = fixture_folder("gpt2-tiny");
};

TEST_F(GenerateCommand, WritesThePromptAndWholeCharactersAfterIt) {
  const std::vector<std::string> line = {folder_, "--prompt", "na\xC3\xAFve", "--tokens", "20"};
  const Outcome first = generate(line);
  EXPECT_EQ(first.status, 0) << first.error;
  EXPECT_TRUE(first.out.starts_with("na\xC3\xAFve"));
  EXPECT_TRUE(first.out.ends_with("\n"));
  EXPECT_EQ(find_invalid_utf8(first.out), std::string::npos);
  EXPECT_NE(first.error.find("20 tokens"), std::string::npos) << first.error;
  EXPECT_EQ(generate(line).out, first.out);
}

TEST_F(GenerateCommand, SeedAndTemperatureChangeTheText) {
  std::vector<std::string> line = {folder_, "--prompt=The", "--tokens=20", "--seed=1"};
  const std::string text = generate(line).out;
  line.back() = "--seed=2";
  EXPECT_NE(generate(line).out, text);
  line.emplace_back("--temperature=0");
  const std::string greedy = generate(line).out;
  EXPECT_NE(greedy, text);
  line[3] = "--seed=3";
  EXPECT_EQ(generate(line).out, greedy);
  line.back() = "--top-k=1";
  EXPECT_EQ(generate(line).out, greedy);
}

TEST_F(GenerateCommand, RanksWriteTheTextOfOne) {
  const std::vector<std::string> line = {folder_, "--prompt=The", "--tokens=20", "--temperature=0"};
  const std::string text = generate(line).out;
  for (const char* option : {"--tp=2", "--pp=2"}) {
    std::vector<std::string> ranks = line;
    ranks.emplace_back(option);
    const Outcome outcome = generate(ranks);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(outcome.out, text) << option;
  }
}

TEST_F(GenerateCommand, PromptsOfAFileAreWrittenInBatches) {
  const std::string file = testing::TempDir() + "orthant-prompts";
  std::ofstream(file) << "The\n\nA longer one\nI\n";
  const std::vector<std::string> line = {folder_, "--prompts", file, "--tokens=12"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), line.begin(), line.end());
    return generate(more);
  };
  const Outcome alone = with({"--batch=1"});
  EXPECT_EQ(alone.status, 0) << alone.error;
  const std::vector<std::string> lines = split(alone.out, '\n');
  ASSERT_EQ(lines.size(), 4U) << alone.out;  // the last is empty
  EXPECT_EQ(Json::parse(lines[1])["prompt"], "A longer one");
  EXPECT_EQ(Json::parse(lines[1])["tokens"], 12);
  EXPECT_EQ(with({"--batch=2"}).out, alone.out);
  EXPECT_EQ(with({"--batch=8", "--tp=2", "--pp=2"}).out, alone.out);
  EXPECT_EQ(with({"--prompt=x"}).status, 2);
  EXPECT_EQ(with({"--batch=0"}).status, 2);
  EXPECT_EQ(generate({folder_}).status, 2);
  std::remove(file.c_str());
}

TEST_F(GenerateCommand, SaysWhenLearnedPositionsEndTheText) {
  const Outcome outcome = generate({folder_, "--prompt=0123456789", "--tokens=500"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.error.find("model.max_positions=64"), std::string::npos) << outcome.error;
}

TEST_F(GenerateCommand, RefusesWhatItCannotDoBeforeItWrites) {
  for (const auto& [argument, says] : std::vector<std::pair<std::string, std::string>>{
           {"--tokens=0", "--tokens=0"},
           {"--top-p=0", "--top-p=0"},
           {"--tokeniser=bytes", "--tokeniser=bytes is not an option"},
           {"--prompt=" + std::string(65, 'x'), "the prompt has 65 tokens"}}) {
    const std::string prompt = argument.starts_with("--prompt") ? argument : "--prompt=x";
    std::vector<std::string> line = {folder_, prompt};
    if (prompt != argument) line.push_back(argument);
    const Outcome outcome = generate(line);
    EXPECT_EQ(outcome.status, static_cast<int>(Fault::kUser)) << argument;
    EXPECT_EQ(outcome.out, "") << argument;
    EXPECT_NE(outcome.error.find(says), std::string::npos) << outcome.error;
  }
}

}  // namespace
}  // namespace orthant::test
