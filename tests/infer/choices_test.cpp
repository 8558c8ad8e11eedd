// Files of multiple-choice tasks, their tokens, and what counts as right.
#include "infer/choices.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"

namespace orthant::test {
namespace {

class Choices : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::vector<ChoiceTask> read(const std::string& content) const {
    std::ofstream(path_) << content;
    return read_choice_tasks(path_);
  }
  std::string refusal(const std::string& content) const {
    try {
      read(content);
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kUser);
      return error.what();
    }
    return "accepted";
  }
  static TaskTokens encode(const std::string& context, const std::vector<std::string>& choices) {
    TextModel model;
    model.model.vocab = 256;
    model.model.position = "rope";
    return encode_choices(*make_tokenizer("bytes"), model,
                          {.context = context, .choices = choices, .place = "tasks:1"});
  }
  static std::string text_of(const ChoiceTokens& one) {
    return {one.tokens.begin() + static_cast<std::ptrdiff_t>(one.first), one.tokens.end()};
  }

  std::string path_ = testing::TempDir() + "orthant-choices-" + std::to_string(::getpid());
};

TEST_F(Choices, AreReadByLine) {
  const auto tasks = read(
      "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 1}\n\n"
      "{\"context\": \"d\", \"choices\": [\"e\", \"f\", \"g\"], \"answer\": 0, \"more\": 1}\n");
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks[0].answer, 1U);
  EXPECT_EQ(tasks[1].choices, (std::vector<std::string>{"e", "f", "g"}));
  EXPECT_TRUE(tasks[1].place.ends_with(":3"));
}

TEST_F(Choices, BadLinesAreNamed) {
  const std::string good = "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 1}\n";
  const struct {
    const char* line;
    const char* said;
  } cases[] = {
      {"nonsense", ":2 is no JSON object"},
      {R"({"choices": ["b", "c"], "answer": 1})", ":2 has no text under 'context'"},
      {R"({"context": "a", "choices": ["b"], "answer": 0})", ":2 has no list of two or more"},
      {R"({"context": "a", "choices": ["b", ""], "answer": 0})", ":2 has no list of two or more"},
      {R"({"context": "a", "choices": ["b", "c"], "answer": 2})", ":2 has no number from 0 to 1"},
      {R"({"context": "a", "choices": ["b", "c"], "answer": "b"})", ":2 has no number"},
  };
  for (const auto& [line, said] : cases) {
    EXPECT_NE(refusal(good + line + "\n").find(said), std::string::npos) << refusal(good + line);
  }
  EXPECT_NE(refusal("\n").find("has no task"), std::string::npos);
  EXPECT_THROW(read_choice_tasks("/no/such/file"), Error);
}

TEST_F(Choices, SpacesBehindTheContextGoToTheChoices) {
  const TaskTokens task = encode("one two ", {"three", "four"});
  EXPECT_EQ(text_of(task[0]), " three");
  EXPECT_EQ(text_of(task[1]), " four");
  EXPECT_EQ(task[0].bytes, 6);
  EXPECT_EQ(task[0].first, 7U);
}

TEST_F(Choices, TooLongForLearnedPositionsIsRefusedByItsLine) {
  TextModel model;
  model.model.vocab = 256;
  model.model.position = "learned";
  model.model.max_positions = 4;
  const auto tokenizer = make_tokenizer("bytes");
  EXPECT_NO_THROW(encode_choices(*tokenizer, model, {.context = "abc", .choices = {"de", "f"}}));
  try {
    encode_choices(*tokenizer, model,
                   {.context = "abc", .choices = {"de", "def"}, .place = "tasks:7"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("tasks:7 has 6 tokens"), std::string::npos)
        << error.what();
  }
}

TEST_F(Choices, AreRightBySumAndByByte) {
  const TaskTokens task = encode("a", {"b", "cdef"});
  ChoiceResult result;
  result.add(task, {-1.0, -2.0}, 0);  // likeliest is 0; by byte -1 and -0.5: 1
  result.add(task, {-1.0, -2.0}, 1);
  EXPECT_EQ(result.tasks, 2);
  EXPECT_EQ(result.right, 1);
  EXPECT_EQ(result.right_by_bytes, 1);
  result.add(task, {-1.0, -8.0}, 0);
  EXPECT_EQ(result.right, 2);
  EXPECT_EQ(result.right_by_bytes, 2);
}

}  // namespace
}  // namespace orthant::test
