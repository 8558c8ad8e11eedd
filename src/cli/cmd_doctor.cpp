// orthant doctor and orthant version: what is found and what is missing.
#include <cstdio>
#include <fstream>
#include <memory>
#include <thread>

#include <sys/resource.h>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/version.h"
#include "comm/process_world.h"
#include "mem/device.h"
#include "ops/processor.h"
#include "train/host_memory.h"

namespace orthant {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

OrderedJson gpu_texts() {
  OrderedJson texts = OrderedJson::array();
  for (const GpuFacts& gpu : gpus()) {
    texts.push_back(fmt::format("{}, {}.{}, {} of {} free", gpu.name, gpu.capability / 10,
                                gpu.capability % 10, format_bytes(gpu.free_bytes),
                                format_bytes(gpu.total_bytes)));
  }
  return texts;
}

bool has_level(const ProcessorFeatures& features, CpuLevel level) {
  return std::find(features.levels.begin(), features.levels.end(), level) != features.levels.end();
}

OrderedJson findings() {
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  const ProcessorFeatures features = processor_features();
  return {{"version", kVersion},
          {"commit", kCommit},
          {"processor", processor_name()},
          {"cores", std::thread::hardware_concurrency()},
          {"avx2", !features.levels.empty()},
          {"avx512", has_level(features, CpuLevel::kAvx512)},
          {"avx512_bf16", features.has_avx512_bf16},
          {"amx_bf16", has_level(features, CpuLevel::kAmx)},
          {"free_memory_bytes", available_host_bytes()},
          {"open_files", files.rlim_cur},
          {"gpus", gpu_texts()},
          {"backends", ops_kinds()},
          {"mpi", has_mpi()}};
}

int doctor(bool json) {
  const OrderedJson found = findings();
  if (json) {
    fmt::print("{}\n", found.dump());
    return 0;
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& [key, value] : found.items()) {
    const bool is_bytes = key.ends_with("_bytes");
    rows.push_back({key, is_bytes            ? format_bytes(value.get<std::int64_t>())
                         : value.is_string() ? value.get<std::string>()
                                             : value.dump()});
  }
  fmt::print("{}", format_table(rows));
  if (!found["avx2"].get<bool>()) {
    fmt::print("this processor has no AVX2 and FMA: device.kind=cpu cannot run on it\n");
  }
  if (!found["avx512_bf16"].get<bool>()) {
    fmt::print(
        "no AVX512_BF16: precision.compute=bf16 works, its matrix products run at the speed of "
        "fp32\n");
  }
  if (!has_mpi()) {
    fmt::print(
        "no MPI: ranks of one host run as threads or by orthant launch; for several hosts install "
        "libopenmpi-dev and build again\n");
  }
  return 0;
}

}  // namespace

void add_doctor(Parser& app, Command& chosen) {
  Parser& command = app.add_command("doctor", "what is found on this machine and what is missing");
  const auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "one JSON object on standard output");
  command.when_chosen([json, &chosen] {
    chosen = [json] {
      return doctor(*json);
    };
  });
}

void add_version(Parser& app, Command& chosen) {
  Parser& command = app.add_command("version", "version, commit, compiler, backends built in");
  command.when_chosen([&chosen] {
    chosen = [] {
      fmt::print("orthant {} (commit {}), {}, backends {}, ranks by threads, processes{}\n",
                 kVersion, kCommit, kCompiler, join(ops_kinds()), has_mpi() ? ", MPI" : "");
      return 0;
    };
  });
}

}  // namespace orthant
