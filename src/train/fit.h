// Whether a job fits the memory that it is given, what fills that memory, and which changes would
// make it fit: each is tried by a dry run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/library_memory.h"
#include "train/plan_memory.h"

namespace orthant {

// What a job may take.
struct MemoryLimit {
  // Of each device of a host, which its ranks take in turn; none: ranks compute in the memory of
  // their host.
  std::vector<std::int64_t> devices = {};
  std::int64_t host_bytes = 0;  // of a host, or of what all its ranks share; 0: not known
  int ranks_per_host = 1;
  Libraries libraries = {};  // what is taken of devices beside arenas
};

// This host alone, for all ranks.
MemoryLimit limit_of_this_host(const LayoutConfig& layout);

// Host memory that a rank takes beside its arenas: samples read ahead, those of an evaluation, and
// buffers between files and device.
std::int64_t feed_bytes(const Job& job);

// All host memory of a rank that is not its device's, and its classes: those of arenas on the host,
// and communication, the links to other processes. What is in none is feed_bytes().
std::int64_t host_bytes(const Job& job, const DryMemory& memory);
ClassBytes host_classes(const Job& job, const DryMemory& memory);

// Of the fullest rank, with what libraries take.
std::int64_t fullest_bytes(const Job& job, const RunPlan& plan, const Libraries& libraries);

// The fullest memory under a limit.
struct Fit {
  bool fits = true;
  std::int64_t needed = 0;
  std::int64_t available = 0;
  std::string where;     // "a rank of stage 3", "the 2 ranks that share device 0"
  ClassBytes classes{};  // of `needed`; the rest is of libraries, or host memory beside arenas
  std::int64_t libraries = 0;
};
Fit check_fit(const Job& job, const RunPlan& plan, const MemoryLimit& limit);

// A change of the run file.
struct Remedy {
  std::vector<std::string> options;  // "layout.recompute=attention"
  std::int64_t saved = 0;            // of Fit::needed
  std::string cost;
  bool fits = false;
};
// Those that save something: what fits first, then the cheaper before the dearer. Where no single
// one fits, the cheapest that fit together come first.
std::vector<Remedy> find_remedies(const Job& job, const RunPlan& plan, const MemoryLimit& limit);

// For people: what does not fit and what fills the memory, then a line for each remedy.
std::string explain_misfit(const Job& job, const RunPlan& plan, const MemoryLimit& limit);

// Throws (Fault::kPlan) with explain_misfit() when the job does not fit.
void require_fit(const Job& job, const RunPlan& plan, const MemoryLimit& limit);

}  // namespace orthant
