// Checkpoints of other programs are refused by the program's name.
#include "ckpt/foreign.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"
#include "ckpt/checkpoint.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

class Foreign : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root_); }
  void TearDown() override { fs::remove_all(root_); }
  void add(const std::string& name) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << "x";
  }
  std::string refusal() const {
    try {
      refuse_foreign(root_.string());
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kUser);
      return error.what();
    }
    return "";
  }

  fs::path root_ =
      fs::path(testing::TempDir()) /
      (std::string("orthant-") + testing::UnitTest::GetInstance()->current_test_info()->name() +
       std::to_string(::getpid()));
};

TEST_F(Foreign, ProgramsAreNamedByTheirFiles) {
  const struct {
    const char* file;
    const char* program;
  } cases[] = {
      {"global_step100/mp_rank_00_model_states.pt", "DeepSpeed"},
      {"global_step100/zero_pp_rank_0_mp_rank_00_optim_states.pt", "DeepSpeed"},
      {"zero_to_fp32.py", "DeepSpeed"},
      {"latest_checkpointed_iteration.txt", "Megatron-LM"},
      {"iter_0000100/mp_rank_00/model_optim_rng.pt", "Megatron-LM"},
      {"mp_rank_00/distrib_optim.pt", "Megatron-LM"},
      {"step-10/.metadata", "torch.distributed.checkpoint"},
      {"__0_0.distcp", "torch.distributed.checkpoint"},
      {"pytorch_model-00001-of-00002.bin", "torch.save"},
      {"consolidated.00.pth", "torch.save"},
  };
  for (const auto& [file, program] : cases) {
    fs::remove_all(root_);
    add(file);
    const std::string said = refusal();
    EXPECT_NE(said.find(std::string("a checkpoint of ") + program), std::string::npos) << said;
    EXPECT_NE(said.find(file), std::string::npos) << said;
  }
}

TEST_F(Foreign, WhatCanBeReadIsNotRefused) {
  EXPECT_EQ(refusal(), "");
  add("run.toml");
  add("step-00000001/notes.txt");
  EXPECT_EQ(refusal(), "");
  add("pytorch_model.bin");
  add("model.safetensors");
  EXPECT_EQ(refusal(), "");
  fs::remove_all(root_);
  EXPECT_EQ(refusal(), "");
}

TEST_F(Foreign, OpeningOneNamesIt) {
  add("mp_rank_00_model_states.pt");
  EXPECT_THROW(
      {
        try {
          open_checkpoint(root_.string());
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("DeepSpeed"), std::string::npos);
          throw;
        }
      },
      Error);
}

}  // namespace
}  // namespace orthant
