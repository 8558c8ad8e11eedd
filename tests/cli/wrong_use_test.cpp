// Command lines and run files that are wrong: refused with one sentence, nothing changed.
#include "tests/cli/binary.h"

namespace orthant::test {
namespace {

using WrongUse = Workplace;

TEST_F(WrongUse, OfCommandsIsNamed) {
  expect_refused({}, 2, {"no command is given", "train"});
  expect_refused({"trian", "run.toml"}, 2, {"'trian'", "did you mean 'train'"});
  expect_refused({"train"}, 2, {"RUN.toml is required", "orthant train --help"});
  expect_refused({"--nope"}, 2, {"'--nope' is not a command"});
  expect_refused({"convert", "only-one"}, 2, {"TO is required"});
  expect_refused({"data"}, 2, {"orthant data --help"});
  expect_refused({"data", "pack", "text.txt"}, 2, {"--tokenizer is required"});
  expect_refused({"train", "nope.toml"}, 2, {"nope.toml", "No such file"});
  expect_refused({"train", "."}, 2, {"Is a directory"});
  expect_refused({"train", "text.txt"}, 2, {"text.txt line 1 is not TOML"});
}

TEST_F(WrongUse, OfOptionsNamesTheNearest) {
  expect_train_refused({"--train.stepz=3"}, {"'stepz'", "did you mean 'steps'"});
  expect_train_refused({"--trian.steps=3"}, {"[trian]", "did you mean [train]"});
  expect_train_refused({"--layout.steps=3"}, {"'steps'", "belongs to [train]"});
  expect_train_refused({"--train.steps"}, {"has no value", "--train.steps=8"});
  expect_train_refused({"--train.steps=abc"}, {"train.steps", "must be an integer"});
  expect_train_refused({"--train.steps=1.5"}, {"train.steps", "must be an integer"});
  expect_train_refused({"--optimizer.lr=nan"}, {"optimizer.lr", "finite"});
  expect_train_refused({"--optimizer.decay=cosin"}, {"'cosin'", "cosine"});
  expect_train_refused({"--dump-gradients", "1"}, {"--dump-gradients"});
  expect_train_refused({"--dump-gradients", "one", "file"}, {"--dump-gradients one"});
  expect_train_refused({"--dump-gradients", "9", "file"}, {"steps 1 to 4"});
  expect_train_refused({"--dump-gradients", "1", "no/such/file"}, {"no/such", "make it first"});
  expect_refused({"plan", "run.toml", "--ranks", "x"}, 2, {"--ranks"});
  expect_refused({"plan", "run.toml", "--hosts", "0"}, 2,
                 {"--hosts", "0 must be a number above 0"});
  expect_refused({"plan", "run.toml", "--transport", "tcp"}, 2, {"transport 'tcp'", "shm"});

  write_content(at("run.toml"), std::string(kRun) + "intervall = 3\n");
  expect_train_refused({}, {"run.toml line", "'intervall'", "did you mean 'interval'"});
}

TEST_F(WrongUse, OfABenchNamesWhatItDoesNotTake) {
  expect_refused({"bench", "step"}, 2, {"takes a run file or --preset"});
  expect_refused({"bench", "step", "--preset", "gpt2-124m", "--seconds", "5"}, 2,
                 {"device.kind='cpu' measures steps", "--warm-up and --seconds"});
  expect_refused({"bench", "step", "--preset", "gpt2-124m", "--device.kind=cuda", "--steps", "5"},
                 2, {"device.kind='cuda' measures seconds", "--steps"});
}

TEST_F(WrongUse, OfLayoutsSaysWhatFits) {
  expect_train_refused({"--layout.ranks=3", "--layout.tp=3"}, {"layout.tp=3", "1, 2, 4 or 8"});
  expect_train_refused(
      {"--model.family=llama", "--model.heads=24", "--model.hidden=96", "--model.ffn=96",
       "--model.kv_heads=4", "--layout.ranks=6", "--layout.tp=6"},
      {"layout.tp=6", "kv_heads=4", "1, 2, 4, 8, 12 or 24"});
  expect_train_refused({"--layout.ranks=5", "--layout.tp=2"}, {"layout.ranks=5", "4 or 6"});
  expect_train_refused({"--layout.ranks=8", "--layout.pp=8"}, {"layout.pp=8", "at most 4"});
  expect_train_refused({"--layout.micro_batch=3"}, {"train.global_batch=8", "6 or 9"});
  expect_train_refused({"--train.seq_length=33"}, {"max_positions=32"});
  expect_train_refused({"--layout.micro_batch=1000000000", "--train.global_batch=1000000000"},
                       {"layout.micro_batch", "lower"});
}

TEST_F(WrongUse, OfMemoryStartsNothing) {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--layout.ranks=8", "--model.hidden=16384"},
        {"--layout.micro_batch=1000000", "--train.global_batch=1000000", "--model.hidden=65536"}}) {
    const auto before = files_of("");
    const Finished done = train(options);
    EXPECT_EQ(done.status, 3) << done.err;
    EXPECT_EQ(done.num_error_lines(), 1) << done.err;
    EXPECT_NE(done.err.find("needed, "), std::string::npos) << done.err;
    EXPECT_NE(done.err.find(" less  "), std::string::npos) << done.err;
    EXPECT_EQ(names_of(files_of("")), names_of(before));
  }
}

TEST_F(WrongUse, HelpAndVersionAreNoErrors) {
  for (const char* command : {"train", "plan", "eval", "convert", "doctor", "version"}) {
    const Finished help = run({command, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_NE(help.out.find("Usage"), std::string::npos) << help.out;
    EXPECT_EQ(help.err, "");
  }
  EXPECT_EQ(run({"version"}).status, 0);
}

}  // namespace
}  // namespace orthant::test
