// Parsing, and the one place where errors become messages and exit statuses.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include <CLI/CLI.hpp>

#include "base/check.h"
#include "base/text.h"
#include "cli/commands.h"
#include "comm/board.h"
#include "train/run_config.h"

namespace orthant {
namespace {

constexpr int kWrongUse = static_cast<int>(Fault::kUser);

int say(const std::string& message, int status) {
  fmt::print(stderr, "orthant: {}\n", message);
  return status;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

bool is_command(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> names = command_names(app);
  return std::find(names.begin(), names.end(), word) != names.end();
}

// A word that is no command names the nearest.
std::string unknown_command(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> names = command_names(app);
  return fmt::format("'{}' is not a command; did you mean '{}'? The commands are {}", word,
                     nearest(word, names), join(names));
}

}  // namespace

void add_run_arguments(CLI::App& command, RunArguments& arguments) {
  command.add_option("RUN.toml", arguments.path, "the run file")->required();
  command.allow_extras();
  // The final callback is the command's own.
  command.parse_complete_callback(
      [&command, &arguments] { arguments.overrides = command.remaining(); });
  RunConfig defaults;
  command.footer("Options of the run file, each also --section.key=value, with its default:\n" +
                 help_text(list_fields(defaults)));
}

std::optional<int> parse_command_line(const std::vector<std::string>& words, Command& chosen) {
  CLI::App app("orthant trains large language models with 3D parallelism", "orthant");
  app.require_subcommand(1);
  for (const auto add : {add_data, add_train, add_plan, add_eval, add_generate, add_convert,
                         add_launch, add_bench, add_doctor, add_version}) {
    add(app, chosen);
  }
  if (words.empty()) {
    return say("no command is given; the commands are " + join(command_names(app)), kWrongUse);
  }
  const std::string& word = words.front();
  if (word != "--help" && word != "-h" && !is_command(app, word)) {
    return say(unknown_command(app, word), kWrongUse);
  }
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    const std::string text = error.what();
    return say(fmt::format("{}; see orthant {}--help", text.substr(0, text.find('\n')),
                           is_command(app, word) ? word + " " : ""),
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
    return say(error.what(), static_cast<int>(error.fault()));
  } catch (const std::bad_alloc&) {
    return say("the host has no memory left", static_cast<int>(Fault::kRun));
  } catch (const std::exception& error) {
    return say(error.what(), static_cast<int>(Fault::kRun));
  }
}

}  // namespace orthant
