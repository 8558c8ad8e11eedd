// Options that another one leaves without effect are named.
#include "train/run_notes.h"

#include <gtest/gtest.h>

namespace orthant {
namespace {

RunConfig config_of(const std::vector<std::string>& options) {
  return parse_run_config("[model]\npreset = \"gpt2-124m\"\n", "run.toml", options);
}

TEST(Notes, ThereAreNoneOnWhatHasAnEffect) {
  EXPECT_TRUE(notes_on(config_of({})).empty());
  EXPECT_TRUE(notes_on(config_of({"--layout.ranks=2", "--layout.tp=2", "--layout.zero_stage=3",
                                  "--layout.sequence_parallel=true", "--layout.zero_gather=step",
                                  "--layout.offload=optimizer", "--layout.offload_fraction=0.5",
                                  "--optimizer.decay=wsd", "--optimizer.decay_steps=10"}))
                  .empty());
}

TEST(Notes, NameWhatChangesNothing) {
  const struct {
    const char* option;
    const char* because;
  } cases[] = {
      {"layout.zero_gather=step", "layout.zero_stage=1"},
      {"layout.offload_fraction=0.5", "layout.offload=none"},
      {"layout.sequence_parallel=true", "layout.tp=1"},
      {"layout.tp_overlap=halves", "layout.tp=1"},
      {"optimizer.decay_steps=10", "optimizer.decay=cosine"},
      {"device.algorithms=a.json", "device.kind=cpu"},
  };
  for (const auto& [option, because] : cases) {
    const std::vector<std::string> notes = notes_on(config_of({std::string("--") + option}));
    ASSERT_EQ(notes.size(), 1U) << option;
    EXPECT_EQ(notes[0].find(option), 0U) << notes[0];
    EXPECT_NE(notes[0].find(because), std::string::npos) << notes[0];
  }
}

TEST(Notes, NameAlgorithmsOfADeterministicRun) {
  std::vector<std::string> options = {"--device.kind=cuda", "--device.algorithms=a.json"};
  EXPECT_TRUE(notes_on(config_of(options)).empty());
  options.emplace_back("--train.deterministic=true");
  const std::vector<std::string> notes = notes_on(config_of(options));
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("train.deterministic=true"), std::string::npos) << notes[0];
}

}  // namespace
}  // namespace orthant
