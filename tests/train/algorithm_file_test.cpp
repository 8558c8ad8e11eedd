// Algorithms between runs: which file, what is read, what ranks agree on, what is written.
#include "train/algorithm_file.h"

#include <filesystem>
#include <memory>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "train/plan_memory.h"
#include "train/run_ranks.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRun = R"([model]
layers = 2
hidden = 64
heads = 8
vocab = 300
max_positions = 64

[train]
global_batch = 8
seq_length = 32
)";

const AlgorithmPlace kPlace = {.gpu = "NVIDIA H200",
                               .capability = 90,
                               .multiprocessors = 132,
                               .cublaslt = 130002,
                               .workspace_bytes = 1};

RunConfig config_of(const std::vector<std::string>& options) {
  return parse_run_config(kRun, "run.toml", options);
}

AlgorithmTable table_of(std::int64_t m, std::uint64_t word) {
  return {{kPlace, {{{.m = m, .n = 1, .k = 1}, {.words = {word}, .ms = 0.5}}}}};
}

AlgorithmTable joined(AlgorithmTable table, const AlgorithmTable& more) {
  for (const auto& [place, products] : more) {
    table[place].insert(products.begin(), products.end());
  }
  return table;
}

TEST(AlgorithmPath, IsInLogDirUnlessAnotherIsNamed) {
  const RunConfig config = config_of({"--device.kind=cuda", "--log.dir=there"});
  EXPECT_EQ(algorithms_of_run(config), "there/algorithms.json");
  EXPECT_EQ(named_algorithms(config), "");
  const RunConfig named = config_of({"--device.kind=cuda", "--device.algorithms=a.json"});
  EXPECT_EQ(algorithms_of_run(named), "a.json");
  EXPECT_EQ(named_algorithms(named), "a.json");
}

TEST(AlgorithmPath, IsEmptyWhereNothingIsTimed) {
  for (const char* option : {"--device.kind=cpu", "--train.deterministic=true"}) {
    const RunConfig config =
        config_of({"--device.kind=cuda", "--device.algorithms=a.json", option});
    EXPECT_EQ(algorithms_of_run(config), "") << option;
    EXPECT_EQ(named_algorithms(config), "") << option;
  }
  EXPECT_EQ(AlgorithmFile("").algorithms(), nullptr);
}

class AlgorithmFileTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name = "algorithms.json") const {
    return (folder_ / name).string();
  }
  AlgorithmTable content() const { return parse_algorithms(read_text_file(path()), path()); }

  // Ranks on the cpu, with a file each as processes have, or with one as threads have.
  using Body = std::function<void(Rank& rank, AlgorithmFile& file)>;
  static void on_ranks(int ranks, const std::vector<AlgorithmFile*>& files, const Body& body) {
    const RunConfig config = config_of({fmt::format("--layout.ranks={}", ranks)});
    const RankConfig rank = rank_config(config);
    run_ranks(rank, plan_run(rank, 0), "cpu", nullptr, [&](Rank& r, int number) {
      body(r, *files[static_cast<std::size_t>(number) % files.size()]);
    });
  }
  // One rank that knows `table` keeps it; what it says.
  std::string keep(AlgorithmFile& file, const AlgorithmTable& table) const {
    std::string said;
    on_ranks(1, {&file}, [&](Rank& rank, AlgorithmFile& own) {
      own.algorithms()->learn(table);
      said = own.keep(rank, true).value_or("");
    });
    return said;
  }

  fs::path folder_ = fs::temp_directory_path() /
                     fmt::format("orthant_algorithms_{}_{}", ::getpid(),
                                 testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(AlgorithmFileTest, MayBeMissing) {
  AlgorithmFile file(path("not/yet/there.json"));
  file.require_can_be_made();
  file.read();
  EXPECT_TRUE(file.algorithms()->news().empty());
  EXPECT_NE(keep(file, table_of(1, 5)).find("1 products are kept in " + path("not/yet")),
            std::string::npos);
  EXPECT_TRUE(fs::exists(path("not/yet/there.json")));
}

TEST_F(AlgorithmFileTest, IsRefusedWhereItIsDamagedOrAFolder) {
  write_file_atomically(path(), algorithms_text(table_of(1, 5)).substr(0, 200));
  AlgorithmFile file(path());
  EXPECT_THROW(file.read(), Error);
  EXPECT_TRUE(file.algorithms()->news().empty());
  EXPECT_THROW(AlgorithmFile(folder_.string()).require_can_be_made(), Error);
  EXPECT_THROW(AlgorithmFile(path() + "/below").require_can_be_made(), Error);
}

TEST_F(AlgorithmFileTest, HasWhatWasKeptAndIsWrittenForNewsAlone) {
  AlgorithmFile first(path());
  EXPECT_EQ(keep(first, {}), "");
  EXPECT_FALSE(fs::exists(path()));
  EXPECT_NE(keep(first, table_of(1, 5)), "");
  EXPECT_EQ(content(), table_of(1, 5));
  EXPECT_EQ(keep(first, table_of(1, 6)), "");  // the first choice counts
  AlgorithmFile second(path());
  second.read();
  EXPECT_EQ(second.algorithms()->news(), table_of(1, 5));
  EXPECT_EQ(keep(second, {}), "");
  EXPECT_NE(keep(second, table_of(2, 7)), "");
  EXPECT_EQ(content(), joined(table_of(1, 5), table_of(2, 7)));
}

TEST_F(AlgorithmFileTest, LosesNothingThatOthersHaveWritten) {
  AlgorithmFile one(path());
  AlgorithmFile other(path());
  one.read();
  other.read();
  keep(one, table_of(1, 5));
  keep(other, table_of(2, 7));
  EXPECT_EQ(content(), joined(table_of(1, 5), table_of(2, 7)));
}

TEST_F(AlgorithmFileTest, ThatCannotBeWrittenIsSaidAndNoMore) {
  AlgorithmFile file(path());
  file.read();
  write_file_atomically(path(), "damaged meanwhile");
  EXPECT_NE(keep(file, table_of(1, 5)).find("1 products are not kept, training goes on: "),
            std::string::npos);
  EXPECT_EQ(read_text_file(path()), "damaged meanwhile");
}

// What every rank chooses for problem 1, and each for one of its own.
AlgorithmTable choices_of(int rank) {
  const auto word = static_cast<std::uint64_t>(rank) + 10;
  return joined(table_of(1, word), table_of(rank + 2, word));
}

TEST_F(AlgorithmFileTest, OfProcessesAllTakeTheFirstRanksChoice) {
  write_file_atomically(path(), algorithms_text(table_of(99, 99)));
  std::vector<std::unique_ptr<AlgorithmFile>> files;
  std::vector<AlgorithmFile*> pointers;
  for (int rank = 0; rank < 4; ++rank) {
    files.push_back(std::make_unique<AlgorithmFile>(path()));
    pointers.push_back(files.back().get());
  }
  files[0]->read();
  std::mutex mutex;
  std::vector<std::string> said;
  on_ranks(4, pointers, [&](Rank& rank, AlgorithmFile& file) {
    file.settle(rank, false);  // as before the first step: all know what the first has read
    const AlgorithmTable read = file.algorithms()->settled();
    const int number = rank.mesh().world().rank();
    if (number != 2) file.algorithms()->learn(choices_of(number));
    const auto outcome = file.keep(rank, false);
    const auto again = file.keep(rank, false);
    const std::lock_guard lock(mutex);
    EXPECT_EQ(read, table_of(99, 99));
    EXPECT_EQ(file.algorithms()->edition(), number == 1 || number == 3 ? 1 : 0);
    EXPECT_TRUE(file.algorithms()->news().empty());
    if (outcome) said.push_back(*outcome);
    if (again) said.push_back(*again);
  });
  const AlgorithmTable all =
      joined(joined(table_of(99, 99), choices_of(0)), joined(table_of(3, 11), table_of(5, 13)));
  for (const auto& file : files) {
    EXPECT_EQ(file->algorithms()->settled(), all);
  }
  EXPECT_EQ(content(), all);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0], fmt::format("algorithms of 4 products are kept in {}", path()));
}

TEST_F(AlgorithmFileTest, OfThreadsHasWhatAllOfThemChose) {
  AlgorithmFile file(path());
  on_ranks(4, {&file}, [&](Rank& rank, AlgorithmFile& shared) {
    shared.algorithms()->learn(table_of(rank.mesh().world().rank() + 1, 5));
    std::vector<std::int64_t> together = {1};
    rank.sum_over_ranks(together);  // as a step does
    shared.keep(rank, true);
  });
  EXPECT_EQ(content().at(kPlace).size(), 4U);
}

}  // namespace
}  // namespace orthant
