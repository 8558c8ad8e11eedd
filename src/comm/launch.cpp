#include "comm/launch.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"
#include "base/text.h"

namespace orthant {
namespace {

constexpr int kTorchrunPort = 29500;

class Variables {
 public:
  Variables(const Environment& all, std::string_view launcher) : all_(all), launcher_(launcher) {}

  bool has(const std::string& name) const { return all_.contains(name); }
  std::string text(const std::string& name) const {
    const auto found = all_.find(name);
    return found == all_.end() ? "" : found->second;
  }
  int number(const std::string& name) const {
    const std::string value = text(name);
    const std::optional<int> number = parse(value);
    if (!number) {
      fail_user(
          "{}='{}', which {} sets, is not a whole number of 0 or more; start the ranks with "
          "{}, or unset its variables",
          name, value, launcher_, launcher_);
    }
    return *number;
  }
  int number_or(const std::string& name, int otherwise) const {
    return has(name) ? number(name) : otherwise;
  }
  static std::optional<int> parse(std::string_view text) {
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < 0) return {};
    return number;
  }

 private:
  const Environment& all_;
  std::string_view launcher_;
};

Launch of_orthant(const Variables& variables) {
  const int rank = variables.number("ORTHANT_RANK");
  const int size = variables.number("ORTHANT_SIZE");
  return {.by = Launch::By::kOrthant,
          .rank = rank,
          .size = size,
          .local_rank = rank,
          .local_size = size,
          .host = {},
          .port = 0,
          .has_pmi = false,
          .world_fd = variables.number("ORTHANT_WORLD_FD")};
}

Launch of_torchrun(const Variables& variables) {
  if (!variables.has("RANK") || !variables.has("WORLD_SIZE")) {
    fail_user("{} is set, {} is not; torchrun sets both: start the ranks with it, or unset the one",
              variables.has("RANK") ? "RANK" : "WORLD_SIZE",
              variables.has("RANK") ? "WORLD_SIZE" : "RANK");
  }
  // Where torchrun's agent has a store of its own on the port, ours is on the next.
  const bool agent_has_port = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return {.by = Launch::By::kTorchrun,
          .rank = variables.number("RANK"),
          .size = variables.number("WORLD_SIZE"),
          .local_rank = variables.number_or("LOCAL_RANK", -1),
          .local_size = variables.number_or("LOCAL_WORLD_SIZE", -1),
          .host = variables.text("MASTER_ADDR"),
          .port = variables.number_or("MASTER_PORT", kTorchrunPort) + (agent_has_port ? 1 : 0),
          .has_pmi = false,
          .world_fd = -1};
}

Launch of_slurm(const Variables& variables) {
  const std::string size = variables.has("SLURM_NTASKS") ? "SLURM_NTASKS" : "SLURM_NPROCS";
  Launch launch;
  launch.by = Launch::By::kSlurm;
  launch.rank = variables.number("SLURM_PROCID");
  launch.size = variables.number(size);
  launch.local_rank = variables.number_or("SLURM_LOCALID", -1);
  const std::string nodes = variables.has("SLURM_STEP_NODELIST")
                                ? variables.text("SLURM_STEP_NODELIST")
                                : variables.text("SLURM_JOB_NODELIST");
  if (!nodes.empty()) launch.host = expand_hosts(nodes).front();
  // A job's ranks agree on a port, and two jobs on one host seldom do.
  constexpr int kFirstPort = 20000;
  constexpr int kPorts = 10000;
  launch.port = variables.number_or("MASTER_PORT",
                                    kFirstPort + variables.number_or("SLURM_JOB_ID", 0) % kPorts);
  const auto node = static_cast<std::size_t>(variables.number_or("SLURM_NODEID", 0));
  const std::vector<int> tasks = expand_tasks(variables.has("SLURM_STEP_TASKS_PER_NODE")
                                                  ? variables.text("SLURM_STEP_TASKS_PER_NODE")
                                                  : variables.text("SLURM_TASKS_PER_NODE"));
  if (node < tasks.size()) launch.local_size = tasks[node];
  launch.has_pmi = variables.has("PMIX_RANK") || variables.has("PMI_RANK");
  return launch;
}

Launch of_open_mpi(const Variables& variables) {
  Launch launch;
  launch.by = Launch::By::kOpenMpi;
  launch.rank = variables.number("OMPI_COMM_WORLD_RANK");
  launch.size = variables.number("OMPI_COMM_WORLD_SIZE");
  launch.local_rank = variables.number_or("OMPI_COMM_WORLD_LOCAL_RANK", -1);
  launch.local_size = variables.number_or("OMPI_COMM_WORLD_LOCAL_SIZE", -1);
  return launch;
}

Launch of_pmi(const Variables& variables) {
  const bool is_pmix = !variables.has("PMI_RANK");
  Launch launch;
  launch.by = Launch::By::kPmi;
  launch.rank = variables.number(is_pmix ? "PMIX_RANK" : "PMI_RANK");
  launch.size = 0;  // PMIx does not say
  launch.local_rank = variables.number_or("MPI_LOCALRANKID", -1);
  launch.local_size = variables.number_or("MPI_LOCALNRANKS", -1);
  if (variables.has("PMI_SIZE")) {
    launch.size = variables.number("PMI_SIZE");
  } else if (!is_pmix) {
    fail_user("PMI_RANK is set, PMI_SIZE is not; a launcher sets both: start the ranks with it");
  }
  return launch;
}

// "[08-10,20]" behind "gnode": every number with its zeros.
void append_range(const std::string& prefix, std::string_view range, const std::string& suffix,
                  const std::string& list, std::vector<std::string>& hosts) {
  const std::size_t dash = range.find('-');
  const std::string_view low = range.substr(0, dash);
  const std::string_view high = dash == std::string_view::npos ? low : range.substr(dash + 1);
  const auto first = Variables::parse(low);
  const auto last = Variables::parse(high);
  constexpr int kMostHosts = 1 << 20;
  if (!first || !last || *last < *first || *last - *first > kMostHosts) {
    fail_user("the host list '{}' has the range '{}', which is no range of numbers", list, range);
  }
  for (int number = *first; number <= *last; ++number) {
    hosts.push_back(fmt::format("{}{:0{}}{}", prefix, number, low.size(), suffix));
  }
}

// Cuts at commas that are not between brackets.
std::vector<std::string> split_outside_brackets(const std::string& list) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : list) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  if (depth != 0) fail_user("the host list '{}' has a bracket without its other", list);
  return parts;
}

void append_hosts(const std::string& part, const std::string& list,
                  std::vector<std::string>& hosts) {
  const std::size_t open = part.find('[');
  if (open == std::string::npos) {
    hosts.push_back(part);
    return;
  }
  const std::size_t close = part.find(']', open);
  std::vector<std::string> heads;
  std::string ranges = part.substr(open + 1, close - open - 1) + ",";
  for (std::size_t comma = 0; (comma = ranges.find(',')) != std::string::npos;) {
    append_range(part.substr(0, open), std::string_view(ranges).substr(0, comma), "", list, heads);
    ranges.erase(0, comma + 1);
  }
  for (const std::string& head : heads) {
    append_hosts(head + part.substr(close + 1), list, hosts);
  }
}

}  // namespace

Environment read_environment() {
  Environment all;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) {
      all.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return all;
}

std::string_view name_of(Launch::By by) {
  switch (by) {
    case Launch::By::kOrthant: return "orthant launch";
    case Launch::By::kTorchrun: return "torchrun";
    case Launch::By::kOpenMpi: return "mpirun";
    case Launch::By::kSlurm: return "srun";
    case Launch::By::kPmi: return "a PMI launcher";
  }
  return "?";
}

// The innermost launcher first: torchrun and mpirun run inside of Slurm's jobs, and hand on its
// variables.
std::optional<Launch> detect_launch(const Environment& environment) {
  const auto has = [&](const char* name) {
    return environment.contains(name);
  };
  const auto variables = [&](Launch::By by) {
    return Variables(environment, name_of(by));
  };
  std::optional<Launch> launch;
  if (has("ORTHANT_RANK")) {
    launch = of_orthant(variables(Launch::By::kOrthant));
  } else if ((has("RANK") && has("WORLD_SIZE")) ||
             ((has("RANK") || has("WORLD_SIZE")) && has("MASTER_ADDR"))) {
    launch = of_torchrun(variables(Launch::By::kTorchrun));
  } else if (has("OMPI_COMM_WORLD_RANK")) {
    launch = of_open_mpi(variables(Launch::By::kOpenMpi));
  } else if (has("SLURM_PROCID") && (has("SLURM_NTASKS") || has("SLURM_NPROCS"))) {
    launch = of_slurm(variables(Launch::By::kSlurm));
    // The shell of a job is a task too: its ranks are threads.
    if (launch->size == 1) return std::nullopt;
  } else if (has("PMI_RANK") || has("PMIX_RANK")) {
    launch = of_pmi(variables(Launch::By::kPmi));
  }
  if (launch && launch->size > 0 && launch->rank >= launch->size) {
    fail_user(
        "{} says that this is rank {} of a world of {}; ranks are 0..{}: start all of them "
        "with one call of the launcher",
        name_of(launch->by), launch->rank, launch->size, launch->size - 1);
  }
  return launch;
}

std::string check_roll(std::span<const Launch> come) {
  if (come.empty()) return "no rank has come";
  const int size = come.front().size;
  std::vector<int> times(static_cast<std::size_t>(size));
  for (const Launch& launch : come) {
    if (launch.size != size) {
      return fmt::format(
          "rank {} is of a world of {}, rank {} of one of {}; start all ranks with "
          "one call of the launcher",
          come.front().rank, size, launch.rank, launch.size);
    }
    ++times[static_cast<std::size_t>(launch.rank)];
  }
  std::vector<std::string> missing;
  for (int rank = 0; rank < size; ++rank) {
    const int count = times[static_cast<std::size_t>(rank)];
    if (count > 1) {
      return fmt::format("{} processes say that they are rank {} of {}; give each its own rank",
                         count, rank, size);
    }
    if (count == 0) missing.push_back(fmt::format("{}", rank));
  }
  if (missing.empty()) return {};
  constexpr std::size_t kMostListed = 16;
  const std::size_t num_missing = missing.size();
  if (num_missing > kMostListed) missing.resize(kMostListed);
  return fmt::format("of {} ranks {} have not come: {}{}", size, num_missing, join(missing),
                     num_missing > kMostListed ? ", ..." : "");
}

std::vector<std::string> expand_hosts(const std::string& list) {
  std::vector<std::string> hosts;
  for (const std::string& part : split_outside_brackets(list)) {
    append_hosts(part, list, hosts);
  }
  return hosts;
}

std::vector<int> expand_tasks(const std::string& list) {
  std::vector<int> tasks;
  if (list.empty()) return tasks;
  for (const std::string& part : split_outside_brackets(list)) {
    const std::size_t times = part.find("(x");
    const auto count = Variables::parse(std::string_view(part).substr(0, times));
    auto repeats = std::optional<int>(1);
    if (times != std::string::npos && part.ends_with(')')) {
      repeats = Variables::parse(std::string_view(part).substr(times + 2, part.size() - times - 3));
    }
    if (!count || !repeats) {
      fail_user("the tasks per node '{}' have the part '{}'; as in 8(x4),2 was expected", list,
                part);
    }
    tasks.insert(tasks.end(), static_cast<std::size_t>(*repeats), *count);
  }
  return tasks;
}

}  // namespace orthant
