// The commands of the binary. Each adds itself to the parser and, when chosen, leaves what to run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/parser.h"

namespace orthant {

class ProcessWorld;
struct RunConfig;

// What the parsed command line asks for: returns the exit status.
using Command = std::function<int()>;

void add_train(Parser& app, Command& chosen);
void add_eval(Parser& app, Command& chosen);
void add_plan(Parser& app, Command& chosen);
void add_data(Parser& app, Command& chosen);
void add_dataset_commands(Parser& data, Command& chosen);
void add_data_show(Parser& data, Command& chosen);  // of data
void add_convert(Parser& app, Command& chosen);
void add_generate(Parser& app, Command& chosen);
void add_score(Parser& app, Command& chosen);
void add_launch(Parser& app, Command& chosen);
void add_bench(Parser& app, Command& chosen);
void add_doctor(Parser& app, Command& chosen);
void add_version(Parser& app, Command& chosen);

// A run file, with the --section.key=value arguments that follow it.
struct RunArguments {
  std::string path;
  std::vector<std::string> overrides;
};
// Adds RUN.toml and its overrides to a command, and every option of the run file to its --help.
void add_run_arguments(Parser& command, RunArguments& arguments);

// The exit status when parsing alone has ended it: --help, or a message that is said.
std::optional<int> parse_command_line(const std::vector<std::string>& words, Command& chosen);
int run_command_line(int argc, char** argv);

// A line on standard error.
void say(const std::string& message);

// Runs `body` on ranks that are processes with a GPU each: this process is one of them, or starts
// `ranks` with its own command line.
int run_processes(int ranks, const std::function<int(ProcessWorld& world)>& body);

// Runs `body` with the run file's config, where its ranks are: `world` is null when they are
// threads of this process, else this process is one of them. Without anything to print from other
// ranks. Without a launcher, ranks on GPUs become processes, one a GPU, where there are enough
// GPUs.
using RankBody = std::function<int(const RunConfig& config, ProcessWorld* world)>;
int run_with_ranks(const std::function<RunConfig()>& load, const RankBody& body);
int run_with_ranks(const RunArguments& arguments, const RankBody& body);

}  // namespace orthant
