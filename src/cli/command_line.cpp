// Parsing, and the one place where errors become messages and exit statuses.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include "base/check.h"
#include "base/text.h"
#include "cli/commands.h"
#include "comm/board.h"
#include "train/run_config.h"

namespace orthant {
namespace {

constexpr int kWrongUse = static_cast<int>(Fault::kUser);

int end_with(const std::string& message, int status) {
  say(message);
  return status;
}

// A word that is no command names the nearest.
std::string unknown_command(const std::vector<std::string>& names, const std::string& word) {
  return fmt::format("'{}' is not a command; did you mean '{}'? The commands are {}", word,
                     nearest(word, names), join(names));
}

}  // namespace

void say(const std::string& message) {
  fmt::print(stderr, "orthant: {}\n", message);
}

void add_run_arguments(Parser& command, RunArguments& arguments) {
  command.add_option("RUN.toml", arguments.path, "the run file").required();
  command.keep_extras(arguments.overrides);
  RunConfig defaults;
  command.footer("Options of the run file, each also --section.key=value, with its default:\n" +
                 help_text(list_fields(defaults)));
}

std::optional<int> parse_command_line(const std::vector<std::string>& words, Command& chosen) {
  Parser program("orthant", "orthant trains large language models with 3D parallelism");
  program.require_command();
  for (const auto add : {add_data, add_train, add_plan, add_eval, add_generate, add_score,
                         add_convert, add_launch, add_bench, add_doctor, add_version}) {
    add(program, chosen);
  }
  const std::vector<std::string> names = program.command_names();
  if (words.empty()) {
    return end_with("no command is given; the commands are " + join(names), kWrongUse);
  }
  const std::string& word = words.front();
  const bool is_command = std::find(names.begin(), names.end(), word) != names.end();
  if (word != "--help" && word != "-h" && !is_command) {
    return end_with(unknown_command(names, word), kWrongUse);
  }
  try {
    if (!program.parse(words)) return 0;
  } catch (const Error& error) {
    return end_with(
        fmt::format("{}; see orthant {}--help", error.what(), is_command ? word + " " : ""),
        kWrongUse);
  }
  return std::nullopt;
}

int run_command_line(int argc, char** argv) {
  // A file that grows beyond the limit of its size is an error with a name, not the end.
  std::signal(SIGXFSZ, SIG_IGN);
  Command chosen;
  const auto ended = parse_command_line(std::vector<std::string>(argv + 1, argv + argc), chosen);
  if (ended) return *ended;
  try {
    const int status = chosen();
    if (std::fflush(stdout) != 0) fail_run("standard output: {}", std::strerror(errno));
    return status;
  } catch (const Reported& error) {
    return static_cast<int>(error.fault());
  } catch (const Error& error) {
    return end_with(error.what(), static_cast<int>(error.fault()));
  } catch (const std::bad_alloc&) {
    return end_with("the host has no memory left", static_cast<int>(Fault::kRun));
  } catch (const std::exception& error) {
    return end_with(error.what(), static_cast<int>(Fault::kRun));
  }
}

}  // namespace orthant
