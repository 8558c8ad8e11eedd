#include "train/algorithm_file.h"

#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "train/rank.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

AlgorithmTable read_table(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  return parse_algorithms(read_text_file(path), path);
}

std::int64_t num_changes(const AlgorithmTable& table, const AlgorithmTable& before) {
  std::int64_t count = 0;
  for (const auto& [place, products] : table) {
    const auto known = before.find(place);
    for (const auto& [problem, chosen] : products) {
      const bool is_known = known != before.end() && known->second.contains(problem) &&
                            known->second.at(problem) == chosen;
      if (!is_known) ++count;
    }
  }
  return count;
}

void put(const AlgorithmTable& table, AlgorithmTable& into) {
  for (const auto& [place, products] : table) {
    for (const auto& [problem, chosen] : products) {
      into[place].insert_or_assign(problem, chosen);
    }
  }
}

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// The text of the one rank that has some, on all of them.
std::string text_on_all(const std::string& own, const SumOverRanks& sum) {
  std::vector<std::int64_t> numbers = {static_cast<std::int64_t>(own.size())};
  sum(numbers);
  const auto bytes = static_cast<std::size_t>(numbers[0]);
  if (bytes == 0) return "";
  numbers.assign((bytes + sizeof(std::int64_t) - 1) / sizeof(std::int64_t), 0);
  std::memcpy(numbers.data(), own.data(), own.size());
  sum(numbers);
  std::string text(bytes, '\0');
  std::memcpy(text.data(), numbers.data(), bytes);
  return text;
}

}  // namespace

std::string named_algorithms(const RunConfig& config) {
  const bool are_timed = config.device.kind == "cuda" && !config.train.deterministic;
  return are_timed ? config.device.algorithms : "";
}

std::string algorithms_of_run(const RunConfig& config) {
  RunConfig named = config;
  if (named.device.algorithms.empty()) {
    named.device.algorithms = (fs::path(config.log.dir) / "algorithms.json").string();
  }
  return named_algorithms(named);
}

void settle_on_all(Algorithms& algorithms, int rank, int num_ranks, const SumOverRanks& sum) {
  std::vector<std::int64_t> tellers(static_cast<std::size_t>(num_ranks), 0);
  tellers[static_cast<std::size_t>(rank)] = algorithms.news().empty() ? 0 : 1;
  sum(tellers);
  // What a rank has told is no news of those behind it: replicas tell the same once.
  for (int teller = 0; teller < num_ranks; ++teller) {
    if (tellers[static_cast<std::size_t>(teller)] == 0) continue;
    const AlgorithmTable own = teller == rank ? algorithms.news() : AlgorithmTable{};
    const std::string text = text_on_all(own.empty() ? "" : algorithms_text(own), sum);
    if (text.empty()) continue;
    algorithms.settle(parse_algorithms(text, fmt::format("what rank {} has chosen", teller)));
  }
}

void AlgorithmFile::require_can_be_made() const {
  if (path_.empty()) return;
  std::error_code error;
  if (fs::is_directory(path_, error)) {
    fail_user("'{}' is a folder; give the name of a file as device.algorithms", path_);
  }
  require_folder_can_be_made(folder_of(path_), "the folder of device.algorithms");
}

void AlgorithmFile::read() {
  if (path_.empty()) return;
  in_file_ = read_table(path_);
  algorithms_.learn(in_file_);
}

void AlgorithmFile::settle(Rank& rank, bool are_threads) {
  if (path_.empty()) return;
  const Communicator& world = rank.mesh().world();
  if (!are_threads) {
    settle_on_all(algorithms_, world.rank(), world.size(),
                  [&](std::span<std::int64_t> numbers) { rank.sum_over_ranks(numbers); });
  } else if (world.rank() == 0) {
    algorithms_.settle(algorithms_.news());
  }
}

std::optional<std::string> AlgorithmFile::keep(Rank& rank, bool are_threads) {
  settle(rank, are_threads);
  if (path_.empty() || rank.mesh().world().rank() != 0) return std::nullopt;
  AlgorithmTable known = algorithms_.settled();
  const std::int64_t num_new = num_changes(known, in_file_);
  if (num_new == 0) return std::nullopt;
  return write(std::move(known), num_new);
}

// Into what the file has by now: other runs may write to it.
std::string AlgorithmFile::write(AlgorithmTable table, std::int64_t num_new) {
  try {
    std::error_code ignored;  // writing tells
    fs::create_directories(folder_of(path_), ignored);
    const FolderLock lock(folder_of(path_));
    AlgorithmTable merged = read_table(path_);
    put(table, merged);
    write_file_atomically(path_, algorithms_text(merged));
    in_file_ = std::move(table);
  } catch (const Error& error) {
    return fmt::format("algorithms of {} products are not kept, training goes on: {}", num_new,
                       error.what());
  }
  return fmt::format("algorithms of {} products are kept in {}", num_new, path_);
}

}  // namespace orthant
