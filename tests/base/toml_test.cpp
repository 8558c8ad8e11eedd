// A config through the run file, the command line and back; and the message for each mistake.
#include "base/toml.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/check.h"

namespace orthant {
namespace {

struct LayoutSection {
  int tp = 1;
  TextOrInts stages = {.text = "even", .ints = {}};

  template <class Visitor>
  void fields(Visitor&& v) {
    v("tp", tp, "tensor-parallel ranks; divides the heads");
    v("stages", stages, "even, balanced, or a list of layer counts");
  }
  friend bool operator==(const LayoutSection&, const LayoutSection&) = default;
};

struct TrainSection {
  std::int64_t steps = 200;
  double lr = 3e-4;
  bool deterministic = false;
  std::string dir = "ckpt";
  std::vector<std::string> data;
  std::vector<double> weights;
  std::vector<std::vector<std::int64_t>> batch_ramp;

  template <class Visitor>
  void fields(Visitor&& v) {
    v("steps", steps, "optimizer updates");
    v("lr", lr, "highest learning rate");
    v("deterministic", deterministic, "the same bits in every run");
    v("dir", dir, "where checkpoints go");
    v("data", data, "prefixes of datasets");
    v("weights", weights, "their shares");
    v("batch_ramp", batch_ramp, "[[from_step, global_batch], ...]");
  }
  friend bool operator==(const TrainSection&, const TrainSection&) = default;
};

struct TestConfig {
  LayoutSection layout;
  TrainSection train;

  template <class Visitor>
  void sections(Visitor&& v) {
    v("layout", layout);
    v("train", train);
  }
  friend bool operator==(const TestConfig&, const TestConfig&) = default;
};

std::string message_of_text(const std::string& text) {
  TestConfig config;
  FieldList fields = list_fields(config);
  try {
    read_toml(fields, text, "run.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUser);
    return error.what();
  }
  return "";
}

std::string message_of_override(const std::string& argument) {
  TestConfig config;
  FieldList fields = list_fields(config);
  try {
    apply_override(fields, argument);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUser);
    return error.what();
  }
  return "";
}

TEST(Toml, SetsWhatTheFileNamesAndNothingElse) {
  TestConfig config;
  FieldList fields = list_fields(config);
  read_toml(fields,
            "[layout]\ntp = 4\nstages = [3, 4]\n"
            "[train]\nlr = 1\ndeterministic = true\ndir = 'c:\\x'\ndata = ['a', \"b\"]\n"
            "weights = [1, 0.5]\nbatch_ramp = [[1, 8], [10, 16]]\n",
            "run.toml");
  EXPECT_EQ(config.layout.tp, 4);
  EXPECT_EQ(config.layout.stages.ints, (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(config.train.steps, 200);
  EXPECT_EQ(config.train.lr, 1.0);
  EXPECT_TRUE(config.train.deterministic);
  EXPECT_EQ(config.train.dir, "c:\\x");
  EXPECT_EQ(config.train.data, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(config.train.weights, (std::vector<double>{1, 0.5}));
  EXPECT_EQ(config.train.batch_ramp, (std::vector<std::vector<std::int64_t>>{{1, 8}, {10, 16}}));
  EXPECT_TRUE(fields.is_given("layout.tp"));
  EXPECT_FALSE(fields.is_given("train.steps"));
  EXPECT_EQ(fields.find("layout", "stages")->given, "run.toml line 3");
  EXPECT_THROW(fields.is_given("layout.nothing"), Error);
  fields.forget_given();
  EXPECT_FALSE(fields.is_given("layout.tp"));
}

TEST(Toml, DottedKeysAreSections) {
  TestConfig config;
  FieldList fields = list_fields(config);
  read_toml(fields, "layout.tp = 2\ntrain = { steps = 3 }\n", "run.toml");
  EXPECT_EQ(config.layout.tp, 2);
  EXPECT_EQ(config.train.steps, 3);
}

TEST(Toml, WhatIsWrittenReadsBackTheSame) {
  TestConfig config;
  config.layout.stages = {.text = "", .ints = {1, 2, 3}};
  config.train.lr = 0.1 + 0.2;
  config.train.dir = "a \"quoted\"\\\n\t\x01 path # \xC3\xA9";
  config.train.data = {"", "x,y"};
  config.train.weights = {1, 1e-300, -2.5e20, 1e15, 123456789012345680.0};
  config.train.batch_ramp = {{1, 2}, {}, {3}};
  config.train.steps = std::numeric_limits<std::int64_t>::min();
  const std::string text = to_toml(list_fields(config));
  TestConfig again;
  FieldList fields = list_fields(again);
  read_toml(fields, text, "again");
  EXPECT_EQ(config, again) << text;
  for (const FieldRef& field : fields.all()) {
    EXPECT_FALSE(field.given.empty()) << field.name();
  }
}

TEST(Toml, WritesEveryValueInOrder) {
  TestConfig config;
  EXPECT_EQ(to_toml(list_fields(config)),
            "[layout]\ntp = 1\nstages = \"even\"\n\n"
            "[train]\nsteps = 200\nlr = 0.0003\ndeterministic = false\ndir = \"ckpt\"\ndata = []\n"
            "weights = []\nbatch_ramp = []\n");
}

TEST(Toml, HelpNamesEveryOptionItsDefaultAndItsMeaning) {
  TestConfig config;
  EXPECT_EQ(help_text(list_fields(config)),
            "[layout]\n"
            "  --layout.tp            1       tensor-parallel ranks; divides the heads\n"
            "  --layout.stages        \"even\"  even, balanced, or a list of layer counts\n"
            "\n"
            "[train]\n"
            "  --train.steps          200     optimizer updates\n"
            "  --train.lr             0.0003  highest learning rate\n"
            "  --train.deterministic  false   the same bits in every run\n"
            "  --train.dir            \"ckpt\"  where checkpoints go\n"
            "  --train.data           []      prefixes of datasets\n"
            "  --train.weights        []      their shares\n"
            "  --train.batch_ramp     []      [[from_step, global_batch], ...]\n");
}

TEST(Toml, UnknownNamesNameTheNearestKnownOne) {
  EXPECT_EQ(message_of_text("[layout]\n\ntpp = 2\n"),
            "'tpp' (run.toml line 3) is not an option of [layout]; did you mean 'tp'?");
  EXPECT_EQ(message_of_text("[layout]\nlr = 2\n"),
            "'lr' (run.toml line 2) is not an option of [layout]; it belongs to [train]");
  EXPECT_EQ(message_of_text("\n[lauout]\ntp = 2\n"),
            "[lauout] (run.toml line 2) is not a section; did you mean [layout]? Sections are "
            "layout, train");
  EXPECT_EQ(message_of_text("tp = 2\n"),
            "'tp' (run.toml line 1) is not an option of the top level; it belongs to [layout]");
  EXPECT_EQ(
      message_of_text("speed = 2\n"),
      "'speed' (run.toml line 1) stands outside of every section; sections are layout, train");
  EXPECT_EQ(message_of_override("--layout.tps=2"),
            "'tps' (--layout.tps=2) is not an option of [layout]; did you mean 'tp'?");
  EXPECT_EQ(message_of_override("--trian.lr=2"),
            "[trian] (--trian.lr=2) is not a section; did you mean [train]? Sections are layout, "
            "train");
  EXPECT_EQ(message_of_override("--lr=2"),
            "'lr' (--lr=2) is not an option of the top level; it belongs to [train]");
}

TEST(Toml, AValueOfAnotherTypeIsRefused) {
  EXPECT_EQ(message_of_text("[layout]\ntp = 'two'\n"),
            "layout.tp (run.toml line 2) is the text 'two', but must be an integer, for example tp "
            "= 8");
  EXPECT_EQ(message_of_text("[train]\nsteps = 1e6\n"),
            "train.steps (run.toml line 2) is the number 1000000, but must be an integer, for "
            "example steps = 8");
  EXPECT_EQ(message_of_text("[train]\nlr = true\n"),
            "train.lr (run.toml line 2) is true, but must be a number, for example lr = 0.1");
  EXPECT_EQ(message_of_text("[train]\nlr = nan\n"),
            "train.lr (run.toml line 2) is nan, but must be finite; give a number such as 0.1");
  EXPECT_EQ(
      message_of_text("[train]\ndeterministic = 1\n"),
      "train.deterministic (run.toml line 2) is the integer 1, but must be true or false, for "
      "example deterministic = true");
  EXPECT_EQ(message_of_text("[train]\ndir = 2020-01-01\n"),
            "train.dir (run.toml line 2) is a date or time, but must be text, for example dir = "
            "\"word\"");
  EXPECT_EQ(message_of_text("[train]\ndata = ['a', 1]\n"),
            "train.data (run.toml line 2) is a list with the integer 1, but must be a list of "
            "texts, for example data = [\"one\", \"two\"]");
  EXPECT_EQ(
      message_of_text("[train]\nbatch_ramp = [1, 2]\n"),
      "train.batch_ramp (run.toml line 2) is a list with the integer 1, but must be a list of "
      "lists of integers, for example batch_ramp = [[1, 16], [100, 32]]");
  EXPECT_EQ(message_of_text("[layout]\nstages = []\n"),
            "layout.stages (run.toml line 2) is an empty list, but must be text or a list of "
            "integers, for example stages = [3, 4, 4, 3]");
  EXPECT_EQ(message_of_text("layout = 3\n"),
            "layout (run.toml line 1) is the integer 3, but is a section; write [layout] and its "
            "keys below");
  EXPECT_EQ(message_of_text("[[layout]]\ntp = 3\n"),
            "layout (run.toml line 1) is a list, but is a section; write [layout] and its keys "
            "below");
  EXPECT_EQ(message_of_text("[layout]\ntp = 3000000000\n"),
            "layout.tp (run.toml line 2) is 3000000000, but must lie between -2147483648 and "
            "2147483647; give a smaller number");
}

TEST(Toml, BadSyntaxNamesTheLine) {
  EXPECT_EQ(message_of_text("[layout]\ntp = \n").find("run.toml line 2 is not TOML: "), 0u);
  EXPECT_EQ(message_of_text("[layout]\ntp = 1\ntp = 2\n").find("run.toml line 3 is not TOML: "),
            0u);
  const std::string bomb = "[layout]\ntp = " + std::string(100000, '[');
  EXPECT_EQ(message_of_text(bomb).find("run.toml line 2 is not TOML: "), 0u);
}

TEST(Toml, OverridesTakeTomlOrBareWords) {
  TestConfig config;
  FieldList fields = list_fields(config);
  for (const char* argument :
       {"--layout.tp=8", "--layout.stages=balanced", "--train.lr=1e-3", "train.deterministic=true",
        "--train.dir=2024", "--train.data=corpus", "--train.weights=0.5,2",
        "--train.batch_ramp=[[1,2],[3,4]]", "--train.steps=5"}) {
    apply_override(fields, argument);
  }
  EXPECT_EQ(config.layout.tp, 8);
  EXPECT_EQ(config.layout.stages.text, "balanced");
  EXPECT_EQ(config.train.lr, 1e-3);
  EXPECT_TRUE(config.train.deterministic);
  EXPECT_EQ(config.train.dir, "2024");
  EXPECT_EQ(config.train.data, std::vector<std::string>{"corpus"});
  EXPECT_EQ(config.train.weights, (std::vector<double>{0.5, 2}));
  EXPECT_EQ(config.train.batch_ramp, (std::vector<std::vector<std::int64_t>>{{1, 2}, {3, 4}}));
  EXPECT_EQ(fields.find("layout", "tp")->given, "--layout.tp=8");
  apply_override(fields, "--layout.stages=3,4,4,3");
  EXPECT_EQ(config.layout.stages.ints, (std::vector<std::int64_t>{3, 4, 4, 3}));
  for (const auto& [argument, dir] : std::vector<std::pair<std::string, std::string>>{
           {"--train.dir=a b#c", "a b#c"},
           {"--train.dir=969,30,1", "969,30,1"},
           {"--train.dir=\"quoted\"", "quoted"},
           {"--train.dir=x=y", "x=y"},
           {"--train.dir=1\nsteps = 9", "1\nsteps = 9"},
           {"--train.dir=", ""}}) {
    apply_override(fields, argument);
    EXPECT_EQ(config.train.dir, dir);
  }
}

TEST(Toml, OverridesThatFitNoFieldAreRefused) {
  EXPECT_EQ(message_of_override("--layout.tp=two"),
            "layout.tp (--layout.tp=two) is the text 'two', but must be an integer, for example tp "
            "= 8");
  EXPECT_EQ(message_of_override("--layout.tp=2#3"),
            "layout.tp (--layout.tp=2#3) is the text '2#3', but must be an integer, for example tp "
            "= 8");
  EXPECT_EQ(message_of_override("--train.deterministic"),
            "--train.deterministic has no value; write --train.deterministic=true");
  EXPECT_NE(message_of_override("--layout.tp="), "");
  EXPECT_NE(message_of_override("--layout.tp=1\nx=2"), "");
  EXPECT_NE(message_of_override("--"), "");
  EXPECT_NE(message_of_override("--."), "");
  EXPECT_NE(message_of_override("--=3"), "");
}

TEST(Toml, AFileThatIsMissingIsNamed) {
  TestConfig config;
  FieldList fields = list_fields(config);
  EXPECT_THROW(read_toml_file(fields, "/nowhere/run.toml"), Error);
}

struct MachineSection {
  std::string name;
  template <class Visitor>
  void fields(Visitor&& v) {
    v("name", name, "the machine");
  }
};

TEST(Toml, KeysAboveTheFirstSectionAreTheSectionWithoutAName) {
  MachineSection machine;
  LayoutSection layout;
  FieldList fields;
  fields.add("", machine);
  fields.add("layout", layout);
  read_toml(fields, "name = 'h200'\n[layout]\ntp = 2\n", "machine.toml");
  EXPECT_EQ(machine.name, "h200");
  EXPECT_EQ(to_toml(fields), "name = \"h200\"\n\n[layout]\ntp = 2\nstages = \"even\"\n");
  apply_override(fields, "--name=other");
  EXPECT_EQ(machine.name, "other");
}

TEST(Toml, AnOptionNamedTwiceIsAFaultOfTheProgram) {
  MachineSection machine;
  FieldList fields;
  fields.add("a", machine);
  EXPECT_THROW(fields.add("a", machine), Error);
}

}  // namespace
}  // namespace orthant
