#include "cli/machine_links.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <sys/wait.h>

#include "base/check.h"
#include "cli/bench.h"

namespace orthant {
namespace {

// What a command writes; its errors go where those of this process go.
std::string output_of(const std::string& command) {
  std::FILE* const pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) fail_run("'{}' cannot be started", command);
  std::string text;
  std::array<char, 4096> part{};
  for (std::size_t count = 0; (count = std::fread(part.data(), 1, part.size(), pipe)) > 0;) {
    text.append(part.data(), count);
  }
  const int status = ::pclose(pipe);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fail_run("'{}' failed, so that links are not measured; make it work, or leave one GPU visible",
             command);
  }
  return text;
}

std::string own_command(const std::string& measurement) {
  return fmt::format("'{}' bench {} --json",
                     std::filesystem::read_symlink("/proc/self/exe").string(), measurement);
}

}  // namespace

LinkRates link_rates(const OrderedJson& collectives) {
  const auto ranks = collectives.at("ranks").get<double>();
  LinkRates rates;
  std::int64_t largest = 0;
  for (const OrderedJson& call : collectives.at("calls")) {
    if (call.at("call") == "send") continue;
    const auto us = call.at("us").get<double>();
    rates.call_us = rates.call_us == 0 ? us : std::min(rates.call_us, us);
    const auto bytes = call.at("bytes").get<std::int64_t>();
    if (call.at("call") != "all_reduce" || bytes < largest) continue;
    largest = bytes;
    rates.gb_s = 2 * (ranks - 1) / ranks * static_cast<double>(bytes) / us * 1e-3;
  }
  return rates;
}

LinkRates measure_thread_links(int ranks, double seconds) {
  constexpr std::int64_t kMaxBytes = std::int64_t{16} << 20;
  return link_rates(
      bench_collectives(
          {.num_ranks = ranks, .max_bytes = kMaxBytes, .seconds = seconds, .by_nccl = false})
          .json);
}

LinkRates measure_gpu_links(int ranks) {
  return link_rates(OrderedJson::parse(output_of(
      own_command(fmt::format("collectives --device cuda --ranks {} --max-mib 256", ranks)))));
}

void read_link_memory(const OrderedJson& libraries, LibraryMemory& memory) {
  memory.fields([&libraries](const char* key, std::int64_t& mib, const char* /*help*/) {
    const auto found = libraries.find(key);
    if (found != libraries.end()) mib = found->get<std::int64_t>();
  });
}

void measure_link_memory(int ranks, LibraryMemory& memory) {
  read_link_memory(
      OrderedJson::parse(output_of(own_command(fmt::format("libraries --ranks {}", ranks)))),
      memory);
}

}  // namespace orthant
