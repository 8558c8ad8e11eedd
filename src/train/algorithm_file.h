// AlgorithmFile: what a run on GPUs knows of the algorithms of its matrix products, read from a
// file before its first step and written back. A run that goes on so keeps its algorithms and their
// bits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "ops/algorithms.h"
#include "train/run_config.h"

namespace orthant {

class Rank;

// Where a run's algorithms are kept: device.algorithms, or algorithms.json in log.dir. Empty where
// none are timed.
std::string algorithms_of_run(const RunConfig& config);
// The same without the second.
std::string named_algorithms(const RunConfig& config);

// Adds up numbers of all ranks, each in its place.
using SumOverRanks = std::function<void(std::span<std::int64_t>)>;

// What any of the ranks has chosen is settled on all of them; of several choices for one problem
// that of the lowest rank. All ranks call it together. Costs little where nothing is new.
void settle_on_all(Algorithms& algorithms, int rank, int num_ranks, const SumOverRanks& sum);

class AlgorithmFile {
 public:
  // Empty: there is none, and all of the calls below do nothing.
  explicit AlgorithmFile(std::string path) : path_(std::move(path)) {}

  // Throws a user error where the file could not be written.
  void require_can_be_made() const;
  // Throws a user error where the file is damaged; it may be missing. One process does it for all.
  void read();

  // What ranks take and add to; null where there is no file.
  Algorithms* algorithms() { return path_.empty() ? nullptr : &algorithms_; }

  // All ranks call it together, between steps; `are_threads` of this process. What one of them has
  // read or chosen, all of them use from here on.
  void settle(Rank& rank, bool are_threads);

  // The same, and the first rank writes what is new. Returns what it has to say of that.
  std::optional<std::string> keep(Rank& rank, bool are_threads);

 private:
  std::string write(AlgorithmTable table, std::int64_t num_new);

  std::string path_;
  Algorithms algorithms_;
  AlgorithmTable in_file_;
};

}  // namespace orthant
