// What orthant bench measures, and the machine's own speed that figures are fractions of.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "train/run_config.h"

namespace orthant {

class ProcessWorld;

// What a measurement found: an object for --json, and the same as text.
struct BenchResult {
  OrderedJson json;
  std::string text;
};

// The clock of all measurements on `num_threads` threads: the wall's; with one thread the
// processor's time, which other programs on the machine cannot take.
double seconds_now(int num_threads);

struct StepBench {
  RunConfig config;  // of one rank, on GPUs of several
  int num_threads;
  int num_steps;
  bool by_place;                // the cost table names the places in the model too
  double warm_up_s;             // of a GPU: how long steps run before any is measured, and ...
  double measure_s;             // ... how long they are
  bool without_update = false;  // of a GPU: measures the step without its update too
  std::string machine = {};     // of a GPU: by which the step is predicted; empty: it is not
};
BenchResult bench_step(const StepBench& bench);
// On GPUs; `world` is null where ranks are threads of this process.
BenchResult bench_gpu_step(const StepBench& bench, ProcessWorld* world);

struct OpsBench {
  std::vector<DType> types;
  int num_threads;
  std::string filter;  // measures the ops whose names contain it
  double seconds;      // for each op
};
BenchResult bench_ops(const OpsBench& bench);

struct CollectivesBench {
  int num_ranks;
  std::int64_t max_bytes;
  double seconds;  // for each call and size; on GPUs the number of calls is fixed
  bool by_nccl;    // on GPUs, also where these reach each other
};
BenchResult bench_collectives(const CollectivesBench& bench);
// On the GPU of each process; all call it.
BenchResult bench_gpu_collectives(const CollectivesBench& bench, ProcessWorld& world);

// What connecting ranks takes of the GPU of each process; all call it.
BenchResult bench_libraries(ProcessWorld& world);

struct MachineBench {
  std::string device;  // "cpu" or "cuda"
  int num_threads;     // of the host
  double seconds;      // for all of it, about
  std::string like;    // a machine whose facts, links and networks are taken; empty: none
};
std::string bench_machine(const MachineBench& bench);  // a machine file

}  // namespace orthant
