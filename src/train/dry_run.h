// The dry run: a Rank on the meta backend, through every phase that the run enters.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ledger.h"
#include "comm/transport.h"
#include "mem/memory_plan.h"
#include "train/rank.h"

namespace orthant {

// What a run does one after another. Marks start anew in each.
enum class Phase : std::uint8_t { kLoad, kTrain, kEvaluate, kSave };
inline constexpr int kNumPhases = 4;
std::string_view name_of(Phase phase);

struct DryMemory {
  MemoryPlan whole;                                // the highest mark of every arena
  std::array<ClassBytes, kNumPhases> phases = {};  // zeros: the run does not enter it
  // Links to other ranks, by how many share their memory (comm/transport.h).
  struct Links {
    int share;
    int count;
  };
  std::vector<Links> links = {};

  std::int64_t link_bytes(Transport transport) const;
};

struct DryRun {
  MemoryPlan memory;
  std::vector<Entry> step;  // the ledger of one step; `where` names are copies that live here
  std::vector<std::string> names;
};

// World rank `rank`; evaluates when eval_micros > 0.
DryRun dry_run(const RankConfig& config, int rank, int eval_micros);

// Sees the ledger of one step while the rank lives. `programs` may be shared by many dry runs;
// null: the rank makes its own.
using StepReader = std::function<void(std::span<const Entry> step)>;
DryMemory dry_run_memory(const RankConfig& config, int rank, int eval_micros,
                         const StepReader& read, Programs* programs = nullptr);

// The memory in use by class while each entry of a step is at work, in the order of the ledger.
std::vector<ClassBytes> trace_memory(const RankConfig& config, int rank);

}  // namespace orthant
