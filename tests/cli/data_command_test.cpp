// The commands of orthant data from outside: a corpus from lines to parts and back, killed on the
// way.
#include "tests/cli/binary.h"

namespace orthant::test {
namespace {

class DataCommands : public Workplace {};

TEST_F(DataCommands, LinesBecomeATokenizerDatasetsAndAWholeAgain) {
  std::string lines;
  for (int i = 0; i < 200; ++i) {
    lines += fmt::format("{{\"text\": \"line {} of two hundred lines\"}}\n", i);
  }
  write_content(at("in/a.jsonl"), lines);
  write_content(at("in/b.txt"), "and a text");
  Finished done = run({"data", "train-tokenizer", "in", "--vocab", "280", "--output", "tok.json"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_NE(done.out.find("tok.json: 280 tokens"), std::string::npos) << done.out;
  done = run({"data", "pack", "in", "--tokenizer", "tok.json", "--append-eod", "--output", "all"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_NE(done.out.find("all: 201 documents"), std::string::npos) << done.out;
  done = run({"data", "split", "all", "--into", "a=0.9", "b=0.1"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_NE(done.out.find("a: 181 documents"), std::string::npos) << done.out;
  done = run({"data", "merge", "a", "b", "--output", "again"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(content_of(at("again.idx")), content_of(at("all.idx")));
  EXPECT_EQ(content_of(at("again.bin")), content_of(at("all.bin")));
  done = run({"data", "verify", "again", "--tokenizer", "tok.json", "--json"});
  ASSERT_EQ(done.status, 0) << done.err;
  const Json report = Json::parse(done.out);
  EXPECT_EQ(report.at("documents"), 201);
  EXPECT_EQ(report.at("min_token"), 0);
}

TEST_F(DataCommands, WhatIsWrongIsSaidOnceAndChangesNothing) {
  expect_refused({"data", "merge", "corpus", "--output", "corpus"}, 2, {"an input and an output"});
  expect_refused({"data", "merge", "none", "--output", "x"}, 2, {"none.idx"});
  expect_refused({"data", "split", "corpus", "--into", "a"}, 2, {"'a' is not PREFIX=SHARE"});
  expect_refused({"data", "split", "corpus", "--into", "a=1", "b=1"}, 2, {"would get none"});
  expect_refused({"data", "verify", "text.txt"}, 2, {"text.txt.idx"});
  expect_refused({"data", "train-tokenizer", "text.txt", "--vocab", "9", "--output", "t.json"}, 2,
                 {"a vocabulary of 9 is asked"});
  expect_refused({"data", "pack", "none", "--tokenizer", "bytes", "--output", "x"}, 2, {"none"});
  expect_refused(
      {"data", "pack", "run.toml", "--tokenizer", "bytes", "--bad-lines", "keep", "--output", "x"},
      2, {"--bad-lines"});
}

TEST_F(DataCommands, AKilledPackingGoesOn) {
  std::string text;
  for (int i = 0; i < 400000; ++i) {
    text += fmt::format("{} words of a text\n", i);
  }
  write_content(at("long.txt"), text);
  const std::vector<std::string> pack = {"data",  "pack",      "long.txt", "--tokenizer",
                                         "bytes", "--threads", "2",        "--save-interval",
                                         "0",     "--output"};
  const auto with_output = [&pack](const std::string& name) {
    std::vector<std::string> words = pack;
    words.push_back(name);
    return words;
  };
  ASSERT_EQ(run(with_output("whole")).status, 0);
  {
    Process killed(at(""), with_output("killed"), {.file_bytes = 0, .out = ""});
    if (killed.wait_until([this] { return std::filesystem::exists(at("killed.progress.json")); })) {
      killed.send(SIGKILL);
    }
    killed.finish();
  }
  const Finished done = run(with_output("killed"));
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(content_of(at("killed.bin")) == content_of(at("whole.bin")));
  EXPECT_TRUE(content_of(at("killed.idx")) == content_of(at("whole.idx")));
  EXPECT_FALSE(std::filesystem::exists(at("killed.progress.json")));
}

}  // namespace
}  // namespace orthant::test
