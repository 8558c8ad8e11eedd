// orthant bench: one training step, ops and collectives as fractions of what the machine gives, and
// what that is.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/bench.h"
#include "cli/commands.h"
#include "comm/process_world.h"
#include "mem/device.h"
#include "plan/machine.h"

namespace orthant {
namespace {

int cores() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int print(const BenchResult& result, bool json) {
  if (json) {
    fmt::print("{}\n", result.json.dump(1));
  } else {
    fmt::print("{}", result.text);
  }
  return 0;
}

struct StepArguments {
  std::string path;
  std::string preset;
  std::string compute;
  std::int64_t seq = 0;
  std::int64_t batch = 0;
  int threads = cores();
  int steps = 0;
  double warm_up_s = -1;
  double measure_s = 0;
  bool without_update = false;
  std::string machine;
  bool by_place = false;
  bool json = false;
  std::vector<std::string> overrides;
};

// A cpu is measured by steps, a GPU by seconds: what was not given has its default, and what
// belongs to the other is refused.
void settle_length(StepArguments& given, const std::string& device) {
  const bool has_seconds = given.warm_up_s >= 0 || given.measure_s > 0;
  if (device == "cuda" ? given.steps > 0 : has_seconds) {
    fail_user("bench step with device.kind='{}' measures {}; leave out {}", device,
              device == "cuda" ? "seconds" : "steps",
              device == "cuda" ? "--steps" : "--warm-up and --seconds");
  }
  if (device != "cuda" && (given.without_update || !given.machine.empty())) {
    fail_user(
        "bench step --without-update and --machine are for device.kind='cuda', and it is '{}'; "
        "leave them out",
        device);
  }
  if (given.steps == 0) given.steps = 5;
  if (given.warm_up_s < 0) given.warm_up_s = 20;
  if (given.measure_s == 0) given.measure_s = 60;
}

RunConfig step_config(const StepArguments& given) {
  if (given.path.empty() == given.preset.empty()) {
    fail_user("bench step takes a run file or --preset, as in bench step --preset gpt2-124m");
  }
  std::vector<std::string> overrides = given.overrides;
  if (given.seq > 0) overrides.push_back(fmt::format("--train.seq_length={}", given.seq));
  if (given.batch > 0) {
    overrides.push_back(fmt::format("--layout.micro_batch={}", given.batch));
    overrides.push_back(fmt::format("--train.global_batch={}", given.batch));
  }
  if (!given.compute.empty()) {
    overrides.push_back(fmt::format("--precision.compute={}", given.compute));
  }
  RunConfig config = given.preset.empty()
                         ? load_run_config(given.path, overrides)
                         : parse_run_config(fmt::format("[model]\npreset = \"{}\"\n", given.preset),
                                            "--preset", overrides);
  if (config.layout.ranks != 1 && config.device.kind != "cuda") {
    fail_user(
        "bench step measures one rank of a cpu, layout.ranks={}; add --layout.ranks=1 "
        "--layout.tp=1 "
        "--layout.pp=1",
        config.layout.ranks);
  }
  return config;
}

void add_bench_step(Parser& bench, Command& chosen) {
  Parser& command =
      bench.add_command("step", "one training step of one rank on random tokens, by op");
  const auto given = std::make_shared<StepArguments>();
  command.add_option("RUN.toml", given->path, "the run file; --section.key=value may follow");
  command.add_option("--preset", given->preset, "a known model in place of a run file");
  command.add_option("--seq", given->seq, "tokens of a sequence; 0: train.seq_length");
  command.add_option("--batch", given->batch,
                     "sequences of the step, one micro-batch; 0: as the run file says");
  command.add_option("--compute", given->compute, "fp32 or bf16; empty: precision.compute");
  command.add_option("--threads", given->threads, "OpenMP threads").show_default().positive();
  command.add_option("--steps", given->steps, "cpu: steps measured, after two that are not; 5")
      .positive();
  command.add_option("--warm-up", given->warm_up_s, "cuda: seconds before any is measured; 20")
      .not_negative();
  command.add_option("--seconds", given->measure_s, "cuda: seconds measured; 60").positive();
  command.add_flag("--without-update", given->without_update,
                   "cuda: also measures the step without its update");
  command.add_option("--machine", given->machine,
                     "cuda: also predicts the step, by one of " + join(machine_names()) +
                         " or a file of that kind");
  command.add_flag("--places", given->by_place, "the table tells the places in the model apart");
  command.add_flag("--json", given->json, "one JSON object on standard output");
  command.keep_extras(given->overrides);
  command.when_chosen([given, &chosen] {
    chosen = [given] {
      const auto load = [given] {
        RunConfig config = step_config(*given);
        settle_length(*given, config.device.kind);
        if (given->without_update && config.layout.ranks > 1) {
          fail_user("bench step --without-update is for one rank, layout.ranks={}; leave it out",
                    config.layout.ranks);
        }
        return config;
      };
      return run_with_ranks(load, [given](const RunConfig& config, ProcessWorld* world) {
        const StepBench bench{.config = config,
                              .num_threads = given->threads,
                              .num_steps = given->steps,
                              .by_place = given->by_place,
                              .warm_up_s = given->warm_up_s,
                              .measure_s = given->measure_s,
                              .without_update = given->without_update,
                              .machine = given->machine};
        const BenchResult result =
            config.device.kind == "cuda" ? bench_gpu_step(bench, world) : bench_step(bench);
        const bool is_first = world == nullptr || world->is_first();
        return is_first ? print(result, given->json) : 0;
      });
    };
  });
}

void add_bench_ops(Parser& bench, Command& chosen) {
  Parser& command = bench.add_command(
      "ops", "each op at training shapes, as a fraction of oneDNN's product or a copy of memory");
  struct Arguments {
    std::vector<std::string> compute = {"fp32", "bf16"};
    std::string filter;
    int threads = cores();
    double seconds = 0.3;
    bool json = false;
  };
  const auto given = std::make_shared<Arguments>();
  command.add_option("--compute", given->compute, "fp32, bf16 or both")
      .show_default()
      .one_of({"fp32", "bf16"});
  command.add_option("--filter", given->filter, "only ops whose names contain this");
  command.add_option("--threads", given->threads, "OpenMP threads").show_default().positive();
  command.add_option("--seconds", given->seconds, "time for each op, in seconds")
      .show_default()
      .positive();
  command.add_flag("--json", given->json, "one JSON object on standard output");
  command.when_chosen([given, &chosen] {
    chosen = [given] {
      std::vector<DType> types;
      for (const std::string& name : given->compute) {
        types.push_back(name == "bf16" ? DType::kBF16 : DType::kF32);
      }
      return print(bench_ops({.types = types,
                              .num_threads = given->threads,
                              .filter = given->filter,
                              .seconds = given->seconds}),
                   given->json);
    };
  });
}

void add_bench_collectives(Parser& bench, Command& chosen) {
  Parser& command = bench.add_command("collectives", "calls between ranks by size, in GB/s");
  struct Arguments {
    int ranks = 2;
    std::int64_t max_mib = 64;
    double seconds = 0.3;
    std::string device = "cpu";
    bool by_nccl = false;
    bool json = false;
  };
  const auto given = std::make_shared<Arguments>();
  command.add_option("--ranks", given->ranks, "ranks").show_default().between(2, 1024);
  command.add_option("--max-mib", given->max_mib, "largest message, in MiB")
      .show_default()
      .positive();
  command.add_option("--seconds", given->seconds, "cpu: time for each call and size, in seconds")
      .show_default()
      .positive();
  command
      .add_option("--device", given->device,
                  "cpu: ranks are threads; cuda: processes with a GPU each")
      .show_default()
      .one_of({"cpu", "cuda"});
  command.add_flag("--nccl", given->by_nccl, "cuda: by NCCL also where the GPUs reach each other");
  command.add_flag("--json", given->json, "one JSON object on standard output");
  command.when_chosen([given, &chosen] {
    chosen = [given] {
      const CollectivesBench bench{.num_ranks = given->ranks,
                                   .max_bytes = given->max_mib << 20,
                                   .seconds = given->seconds,
                                   .by_nccl = given->by_nccl};
      if (given->device == "cpu") return print(bench_collectives(bench), given->json);
      return run_processes(given->ranks, [&](ProcessWorld& world) {
        BenchResult result;
        world.run([&] { result = bench_gpu_collectives(bench, world); });
        return world.is_first() ? print(result, given->json) : 0;
      });
    };
  });
}

void add_bench_libraries(Parser& bench, Command& chosen) {
  Parser& command = bench.add_command(
      "libraries", "MiB of a GPU that driver and NCCL take for what connects ranks; on 2 or more");
  struct Arguments {
    int ranks = 2;
    bool json = false;
  };
  const auto given = std::make_shared<Arguments>();
  command.add_option("--ranks", given->ranks, "processes, with a GPU each")
      .show_default()
      .between(2, 1024);
  command.add_flag("--json", given->json, "one JSON object on standard output");
  command.when_chosen([given, &chosen] {
    chosen = [given] {
      return run_processes(given->ranks, [&](ProcessWorld& world) {
        BenchResult result;
        world.run([&] { result = bench_libraries(world); });
        return world.is_first() ? print(result, given->json) : 0;
      });
    };
  });
}

void add_bench_machine(Parser& bench, Command& chosen) {
  Parser& command = bench.add_command(
      "machine", "the rates of this machine, as a file that orthant plan --machine takes");
  struct Arguments {
    std::string device;
    std::string output;
    std::string like;
    int threads = cores();
    double seconds = 100;
  };
  const auto given = std::make_shared<Arguments>();
  command.add_option("--device", given->device, "cpu or cuda; without it: cuda where a GPU is here")
      .one_of({"cpu", "cuda"});
  command.add_option("--output", given->output, "FILE.toml; without it: standard output");
  command.add_option(
      "--like", given->like,
      "a machine whose facts and networks it has, and links where one rank is here: " +
          join(machine_names()));
  command.add_option("--threads", given->threads, "OpenMP threads").show_default().positive();
  command.add_option("--seconds", given->seconds, "time for all of it, in seconds")
      .show_default()
      .positive();
  command.when_chosen([given, &chosen] {
    chosen = [given] {
      if (!given->output.empty() && !given->output.ends_with(".toml")) {
        fail_user("--output={}: a machine file ends in .toml; name one", given->output);
      }
      if (!given->output.empty()) require_file_can_be_made(given->output, "--output");
      if (given->device.empty()) given->device = gpus().empty() ? "cpu" : "cuda";
      const std::string text = bench_machine({.device = given->device,
                                              .num_threads = given->threads,
                                              .seconds = given->seconds,
                                              .like = given->like});
      if (given->output.empty()) {
        fmt::print("{}", text);
      } else {
        write_file_atomically(given->output, text);
      }
      return 0;
    };
  });
}

}  // namespace

double seconds_now(int num_threads) {
  timespec now{};
  clock_gettime(num_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void add_bench(Parser& app, Command& chosen) {
  Parser& command = app.add_command(
      "bench", "a step, ops or collectives as fractions of this machine's speed, or its rates");
  command.require_command();
  add_bench_step(command, chosen);
  add_bench_ops(command, chosen);
  add_bench_collectives(command, chosen);
  add_bench_libraries(command, chosen);
  add_bench_machine(command, chosen);
}

}  // namespace orthant
