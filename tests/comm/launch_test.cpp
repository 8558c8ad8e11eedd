// Which rank of which world the variables of launchers say, and what they may not say.
#include <gtest/gtest.h>

#include "comm/host.h"
#include "tests/comm/rank_bed.h"

namespace orthant {
namespace {

TEST(Launch, WithoutALauncherIsNone) {
  EXPECT_FALSE(detect_launch({}));
  EXPECT_FALSE(detect_launch({{"PATH", "/bin"}, {"RANK", "high"}, {"LOCAL_RANK", "0"}}));
}

TEST(Launch, OfTorchrun) {
  Environment variables = {
      {"RANK", "5"},           {"WORLD_SIZE", "8"},       {"LOCAL_RANK", "1"},
      {"GROUP_RANK", "1"},     {"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "node0"},
      {"MASTER_PORT", "29501"}};
  const auto launch = detect_launch(variables);
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->by, Launch::By::kTorchrun);
  EXPECT_EQ(launch->rank, 5);
  EXPECT_EQ(launch->size, 8);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_size, 4);
  EXPECT_EQ(launch->host, "node0");
  EXPECT_EQ(launch->port, 29501);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  variables.erase("MASTER_PORT");
  EXPECT_EQ(detect_launch(variables)->port, 29501);
}

TEST(Launch, OfSlurm) {
  const auto launch = detect_launch({{"SLURM_PROCID", "17"},
                                     {"SLURM_LOCALID", "1"},
                                     {"SLURM_NODEID", "2"},
                                     {"SLURM_NTASKS", "18"},
                                     {"SLURM_NNODES", "3"},
                                     {"SLURM_TASKS_PER_NODE", "8(x2),2"},
                                     {"SLURM_JOB_NODELIST", "gnode[10,20-25],login1"},
                                     {"SLURM_JOB_ID", "123"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->by, Launch::By::kSlurm);
  EXPECT_EQ(launch->rank, 17);
  EXPECT_EQ(launch->size, 18);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_size, 2);
  EXPECT_EQ(launch->host, "gnode10");
  EXPECT_EQ(launch->port, 20123);
  EXPECT_FALSE(detect_launch({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}));
}

TEST(Launch, OfOpenMpiAndPmi) {
  const auto open_mpi = detect_launch({{"OMPI_COMM_WORLD_RANK", "3"},
                                       {"OMPI_COMM_WORLD_SIZE", "4"},
                                       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                       {"PMIX_RANK", "3"}});
  ASSERT_TRUE(open_mpi);
  EXPECT_EQ(open_mpi->by, Launch::By::kOpenMpi);
  EXPECT_EQ(open_mpi->rank, 3);
  EXPECT_EQ(open_mpi->local_size, 2);
  const auto pmi = detect_launch(
      {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}});
  ASSERT_TRUE(pmi);
  EXPECT_EQ(pmi->by, Launch::By::kPmi);
  EXPECT_EQ(pmi->rank, 2);
  EXPECT_EQ(pmi->size, 4);
  EXPECT_EQ(pmi->local_rank, 0);
  EXPECT_EQ(detect_launch({{"PMIX_RANK", "2"}})->rank, 2);
}

TEST(Launch, TheInnermostLauncherCounts) {
  const Environment slurm = {
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "4"}};
  EXPECT_EQ(detect_launch(slurm)->by, Launch::By::kSlurm);
  Environment both = slurm;
  both.insert({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(detect_launch(both)->by, Launch::By::kOpenMpi);
  both.insert({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(detect_launch(both)->by, Launch::By::kTorchrun);
  both.insert({{"ORTHANT_RANK", "1"}, {"ORTHANT_SIZE", "2"}, {"ORTHANT_WORLD_FD", "3"}});
  EXPECT_EQ(detect_launch(both)->by, Launch::By::kOrthant);
  EXPECT_EQ(detect_launch(both)->world_fd, 3);
}

TEST(Launch, VariablesThatContradictAreRefused) {
  const auto refusal = [](const Environment& variables) {
    return message_of([&] { detect_launch(variables); });
  };
  EXPECT_EQ(refusal({{"RANK", "8"}, {"WORLD_SIZE", "8"}}),
            "torchrun says that this is rank 8 of a world of 8; ranks are 0..7: start all of them "
            "with one call of the launcher");
  EXPECT_EQ(refusal({{"RANK", "x1"}, {"WORLD_SIZE", "8"}}),
            "RANK='x1', which torchrun sets, is not a whole number of 0 or more; start the ranks "
            "with torchrun, or unset its variables");
  EXPECT_NE(refusal({{"RANK", "1"}, {"MASTER_ADDR", "a"}}).find("WORLD_SIZE is not"),
            std::string::npos);
  EXPECT_NE(refusal({{"PMI_RANK", "1"}}).find("PMI_SIZE is not"), std::string::npos);
  EXPECT_NE(refusal({{"OMPI_COMM_WORLD_RANK", "-1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}).find("-1"),
            std::string::npos);
}

TEST(Launch, DuplicatesGapsAndOtherSizesAreFound) {
  const auto world = [](std::initializer_list<std::pair<int, int>> come) {
    std::vector<Launch> roll;
    for (const auto& [rank, size] : come) {
      roll.emplace_back();
      roll.back().rank = rank;
      roll.back().size = size;
    }
    return check_roll(roll);
  };
  EXPECT_EQ(world({{0, 3}, {2, 3}, {1, 3}}), "");
  EXPECT_EQ(world({{0, 4}, {2, 4}}), "of 4 ranks 2 have not come: 1, 3");
  EXPECT_EQ(world({{0, 3}, {1, 3}, {1, 3}}),
            "2 processes say that they are rank 1 of 3; give each its own rank");
  EXPECT_EQ(world({{0, 2}, {1, 4}}),
            "rank 0 is of a world of 2, rank 1 of one of 4; start all ranks with one call of the "
            "launcher");
}

TEST(Host, IsWhatNcclGoesByElseTheBoot) {
  EXPECT_EQ(host_of({{"NCCL_HOSTID", "left"}}), "left");
  const std::string boot = host_of({});
  EXPECT_EQ(boot.size(), 36U) << boot;
  EXPECT_EQ(host_of({{"NCCL_HOSTID", ""}}), boot);
  EXPECT_NE(process_space_of({{"NCCL_HOSTID", "left"}}),
            process_space_of({{"NCCL_HOSTID", "right"}}));
  EXPECT_TRUE(process_space_of({}).starts_with("pid:[")) << process_space_of({});
  EXPECT_EQ(message_of([] {
              (void)host_of({{"NCCL_HOSTID", std::string(101, 'x')}});
            }),
            "NCCL_HOSTID has 101 characters, more than 100: shorten it, or unset it");
}

TEST(Launch, HostListsAreExpanded) {
  using Hosts = std::vector<std::string>;
  EXPECT_EQ(expand_hosts("login1"), Hosts{"login1"});
  EXPECT_EQ(expand_hosts("gnode[10,20-22],login1"),
            (Hosts{"gnode10", "gnode20", "gnode21", "gnode22", "login1"}));
  EXPECT_EQ(expand_hosts("n[008-010]"), (Hosts{"n008", "n009", "n010"}));
  EXPECT_EQ(expand_hosts("r[1-2]n[3,5]x"), (Hosts{"r1n3x", "r1n5x", "r2n3x", "r2n5x"}));
  EXPECT_THROW(expand_hosts("n[1-"), Error);
  EXPECT_THROW(expand_hosts("n[2-1]"), Error);
  EXPECT_EQ(expand_tasks("8(x2),2"), (std::vector<int>{8, 8, 2}));
  EXPECT_EQ(expand_tasks("4"), std::vector<int>{4});
  EXPECT_THROW(expand_tasks("a(x2)"), Error);
}

}  // namespace
}  // namespace orthant
