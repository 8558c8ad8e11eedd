// The folders of checkpoint.dir: which one is the newest whole one, and which ones a save removes.
#include "ckpt/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

class Checkpoints : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(dir_); }
  void TearDown() override { fs::remove_all(dir_); }

  void save(std::int64_t step, int keep) const {
    const CheckpointSave save(dir_, step);
    save.begin(files_);
    Manifest manifest;
    manifest.step = step;
    manifest.files = files_.files();
    save.commit(manifest, keep);
  }
  std::string path(const std::string& name) const { return dir_ + "/" + name; }
  // The step, or 0 for none; what was passed over is in passed_.
  std::int64_t newest() {
    passed_.clear();
    const auto found = newest_checkpoint(dir_, passed_);
    return found ? found->manifest.step : 0;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string dir_ =
      fs::path(testing::TempDir()) /
      (std::string("orthant-") + testing::UnitTest::GetInstance()->current_test_info()->name() +
       std::to_string(::getpid()));
  static ParamSpec param(const std::string& name, const Shape& shape) {
    ParamSpec spec{};
    spec.name = name;
    spec.global = shape;
    return spec;
  }
  StateFiles files_ =
      StateFiles({param("embed.tokens.weight", {8, 4}), param("h.0.attn.norm.weight", {4})},
                 StateSet::kTraining);
  std::vector<std::string> passed_;
};

TEST_F(Checkpoints, ASaveKeepsTheNewestUpToItsStep) {
  for (const std::int64_t step : {10, 20, 30, 40}) {
    save(step, 2);
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000030", "step-00000040"}));
  // One of an earlier step goes for none of a later one, which another run has left.
  save(25, 1);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000025", "step-00000030", "step-00000040"}));
  save(50, 0);
  EXPECT_EQ(names().size(), 4U);
  save(40, 3);  // in the place of the one before
  EXPECT_EQ(names().size(), 4U);
  EXPECT_EQ(newest(), 50);
}

TEST_F(Checkpoints, StepsAreComparedAsNumbers) {
  save(99'999'999, 0);
  save(100'000'000, 2);
  EXPECT_EQ(newest(), 100'000'000);
  save(100'000'001, 1);
  EXPECT_EQ(names(), std::vector<std::string>{"step-100000001"});
}

TEST_F(Checkpoints, WhatIsNotWholeIsPassedOverAndNamed) {
  for (const std::int64_t step : {1, 2, 3, 4, 5}) {
    save(step, 0);
  }
  fs::remove(path("step-00000005/manifest.json"));
  fs::resize_file(path("step-00000004/h.0.safetensors"), 100);
  fs::remove(path("step-00000003/embed.safetensors"));
  std::fstream(path("step-00000002/embed.safetensors"), std::ios::in | std::ios::out)
      .write("\xff\xff\xff\xff", 4);
  EXPECT_EQ(newest(), 1);
  ASSERT_EQ(passed_.size(), 4U);
  EXPECT_NE(passed_[0].find("step-00000005"), std::string::npos) << passed_[0];
  EXPECT_NE(passed_[1].find("h.0.safetensors has 100 bytes"), std::string::npos) << passed_[1];
  EXPECT_NE(passed_[2].find("embed.safetensors is missing"), std::string::npos) << passed_[2];
  EXPECT_NE(passed_[3].find("step-00000002/embed.safetensors"), std::string::npos) << passed_[3];
}

TEST_F(Checkpoints, WhatASaveHasNotNamedIsNeitherReadNorRemoved) {
  save(1, 1);
  for (const char* name : {"step-00000001-best", "step-9-mine", "step-", "step-abc", "steps",
                           "step-9", "step-0000000000009"}) {
    fs::copy(path("step-00000001"), path(name), fs::copy_options::recursive);
  }
  std::ofstream(path("step-00000009")) << "a file";
  EXPECT_EQ(newest(), 1);
  EXPECT_TRUE(passed_.empty());
  save(2, 1);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-", "step-0000000000009", "step-00000001-best",
                                               "step-00000002", "step-00000009", "step-9",
                                               "step-9-mine", "step-abc", "steps"}));
}

TEST_F(Checkpoints, OneUnderTheNameOfAnotherStepIsPassedOver) {
  save(4, 0);
  fs::copy(path("step-00000004"), path("step-00000009"), fs::copy_options::recursive);
  EXPECT_EQ(newest(), 4);
  ASSERT_EQ(passed_.size(), 1U);
  EXPECT_NE(passed_[0].find("step-00000009 is of step 4"), std::string::npos) << passed_[0];
}

TEST_F(Checkpoints, DamagedOnesAreNotCountedAmongThoseThatAreKept) {
  for (const int step : {2, 4, 6}) {
    save(step, 0);
  }
  fs::resize_file(path("step-00000006/manifest.json"), 5);
  save(8, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000004", "step-00000006", "step-00000008"}));
}

TEST_F(Checkpoints, UnfinishedOnesAreNoneAndGoWithTheNextSave) {
  save(1, 0);
  CheckpointSave(dir_, 2).begin(files_);
  EXPECT_EQ(newest(), 1);
  EXPECT_EQ(names().size(), 2U);
  save(3, 0);
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000001", "step-00000003"}));
}

// Where a file system cannot exchange names, a crash may leave the one that was to be replaced.
TEST_F(Checkpoints, OneThatStoodAsideCountsUntilTheNewOneIsThere) {
  save(7, 0);
  fs::rename(path("step-00000007"), path("step-00000007.replaced"));
  EXPECT_EQ(newest(), 7);
  save(7, 0);
  passed_.clear();
  EXPECT_EQ(newest_checkpoint(dir_, passed_)->folder, path("step-00000007"));
}

}  // namespace
}  // namespace orthant
