// Text leaves in whole characters, and is the tokenizer's text of all ids.
#include "infer/text_stream.h"

#include <gtest/gtest.h>

#include "tests/support/fixture.h"

namespace orthant::test {
namespace {

std::vector<std::int32_t> encode(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

std::vector<std::string> parts(const std::string& bytes) {
  const auto tokenizer = make_tokenizer("bytes");
  TextStream stream(*tokenizer, {});
  std::vector<std::string> all;
  for (const std::int32_t id : encode(*tokenizer, bytes)) {
    all.push_back(stream.push(id));
  }
  all.push_back(stream.finish());
  return all;
}

TEST(TextStream, HoldsBackUnfinishedCharacters) {
  const std::vector<std::string> expected = {"a", "", "\xC3\xA9", "", "", "", "\xF0\x9F\x98\x80",
                                             "b", ""};
  EXPECT_EQ(parts("a\xC3\xA9\xF0\x9F\x98\x80"
                  "b"),
            expected);
}

TEST(TextStream, ReplacesBytesThatAreNoCharacter) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(parts("\xFF"), (std::vector<std::string>{bad, ""}));
  EXPECT_EQ(parts("\xC3z"), (std::vector<std::string>{"", bad + "z", ""}));
  EXPECT_EQ(parts("\xE2\x82"), (std::vector<std::string>{"", "", bad}));
  EXPECT_EQ(parts("\xED\xA0"), (std::vector<std::string>{"", bad + bad, ""}));  // a surrogate
  EXPECT_EQ(parts("\xC0\xAF"), (std::vector<std::string>{bad, bad, ""}));
}

class Streams : public testing::TestWithParam<std::string> {};

TEST_P(Streams, GiveTheTextThatFollowsThePrompt) {
  const std::string folder = fixture_folder("tokenizers/" + GetParam());
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no tokenizer at " << folder;
  const auto tokenizer = make_tokenizer(folder);
  const std::string text =
      "Once upon a time, in a caf\xC3\xA9 \xE2\x80\x94 \xF0\x9F\x98\x80 \xE4\xBD\xA0\xE5\xA5\xBD "
      "there were  three bears.\n\n  They said: \"Hello\", and again: hello hello hello hello, and "
      "left the place at 12:34 without any further word to those who had stayed behind.";
  const std::vector<std::int32_t> ids = encode(*tokenizer, text);
  const std::string all = tokenizer->decode(ids);
  for (const std::size_t before : {std::size_t{1}, std::size_t{5}, ids.size() / 2}) {
    const auto prompt = std::span(ids).first(before);
    TextStream stream(*tokenizer, prompt);
    std::string written = tokenizer->decode(prompt);
    for (const std::int32_t id : std::span(ids).subspan(before)) {
      written += stream.push(id);
    }
    written += stream.finish();
    EXPECT_EQ(written, all) << before << " ids before";
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Streams, testing::Values("gpt2", "llama2"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace orthant::test
