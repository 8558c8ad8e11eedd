// orthant plan through the binary: what it prints, writes and refuses.
#include "base/json.h"
#include "cli/machine_links.h"
#include "tests/cli/binary.h"

namespace orthant::test {
namespace {

class PlanCommand : public Workplace {
 protected:
  // A GPT that no host has the memory for.
  std::vector<std::string> too_large(const std::string& command) const {
    return {command,
            "run.toml",
            "--model.layers=20",
            "--model.hidden=16384",
            "--model.heads=128",
            "--model.ffn=0",
            "--layout.tp=1",
            "--layout.pp=1",
            "--layout.ranks=2",
            "--train.seq_length=32",
            "--layout.micro_batch=2",
            "--train.global_batch=8"};
  }
};

TEST_F(PlanCommand, PrintsMemoryMessagesAndTheCheck) {
  const Finished done = run({"plan", "run.toml", "--layout.ranks=4", "--layout.tp=2",
                             "--layout.pp=2", "--train.global_batch=8"});
  ASSERT_EQ(done.status, 0) << done.err;
  for (const char* part :
       {"activations", "stage 1", "fits", "pp_acts", "calls of all 4 ranks match",
        "no rank can wait for ever", "idle share", "not predicted"}) {
    EXPECT_NE(done.out.find(part), std::string::npos) << part << "\n" << done.out;
  }
}

TEST_F(PlanCommand, PredictsAStepOfAMachineThatWasMeasured) {
  const Finished measured = run({"bench", "machine", "--device", "cpu", "--threads", "1",
                                 "--seconds", "0.5", "--output", "m.toml"});
  ASSERT_EQ(measured.status, 0) << measured.err;
  EXPECT_NE(content_of(at("m.toml")).find("--seconds 0.5."), std::string::npos);
  const Finished done = run({"plan", "run.toml", "--machine", "m.toml", "--json"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_GT(Json::parse(done.out)["step_ms"].get<double>(), 0);
  expect_refused({"bench", "machine", "--device", "cpu", "--output", "m.txt"}, 2, {".toml"});
}

TEST_F(PlanCommand, PredictsCallsOfAMachineOfSeveralRanks) {
  const Finished measured = run({"bench", "machine", "--device", "cpu", "--threads", "2",
                                 "--seconds", "1", "--output", "m.toml"});
  ASSERT_EQ(measured.status, 0) << measured.err;
  const Finished done = run(
      {"plan", "run.toml", "--machine", "m.toml", "--layout.ranks=2", "--layout.tp=2", "--json"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_GT(Json::parse(done.out)["step_ms"].get<double>(), 0);
}

// What is measured where several GPUs are comes into the machine file; the rest stays.
TEST(LinkMemory, IsReadFromItsMeasurement) {
  LibraryMemory memory = {.libraries_mib = 5, .peer_mib = 6, .nccl_mib = 7};
  read_link_memory({{"ranks", 2}, {"links", "mapped memory of peers"}, {"peer_mib", 40}}, memory);
  EXPECT_EQ(memory.libraries_mib, 5);
  EXPECT_EQ(memory.peer_mib, 40);
  EXPECT_EQ(memory.nccl_mib, 7);
}

TEST_F(PlanCommand, WritesPictures) {
  const Finished done =
      run({"plan", "run.toml", "--layout.ranks=4", "--layout.pp=2", "--layout.tp=2",
           "--train.global_batch=8", "--chart", "a.svg", "--trace", "a.json"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_NE(content_of(at("a.svg")).find("<svg "), std::string::npos);
  EXPECT_GT(Json::parse(content_of(at("a.json")))["traceEvents"].size(), 20u);
  expect_refused({"plan", "run.toml", "--chart", "a.png"}, 2, {"--chart=a.png", ".svg"});
  expect_refused({"plan", "run.toml", "--machine", "h20"}, 2, {"--machine=h20", "h200"});
}

TEST_F(PlanCommand, WhatDoesNotFitEndsWith3AndNamesChanges) {
  const Finished done = run(too_large("plan"));
  EXPECT_EQ(done.status, 3) << done.err;
  for (const char* part : {"does not fit", "gradients", "optimizer"}) {
    EXPECT_NE((done.out + done.err).find(part), std::string::npos) << part << "\n" << done.err;
  }
  EXPECT_NE(done.err.find(" less"), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("--precision.compute=bf16"), std::string::npos) << done.err;
}

TEST_F(PlanCommand, TrainStartsNothingThatDoesNotFit) {
  const auto before = files_of("");
  const Finished done = run(too_large("train"));
  EXPECT_EQ(done.status, 3) << done.err;
  EXPECT_NE(done.err.find(" less"), std::string::npos) << done.err;
  EXPECT_EQ(names_of(files_of("")), names_of(before));
}

}  // namespace
}  // namespace orthant::test
