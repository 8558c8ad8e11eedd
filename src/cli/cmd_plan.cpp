// orthant plan: the dry run of every rank, without training.
#include <cstdio>
#include <memory>

#include "base/check.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/parser.h"
#include "plan/pictures.h"

namespace orthant {
namespace {

struct PlanArguments {
  RunArguments run;
  int ranks = 0;
  int hosts = 0;
  std::string machine;
  std::string transport = "threads";
  std::string chart;
  std::string trace;
  bool json = false;
};

int run_plan(const PlanArguments& arguments) {
  std::vector<std::string> overrides = arguments.run.overrides;
  if (arguments.ranks > 0) overrides.push_back(fmt::format("--layout.ranks={}", arguments.ranks));
  check_picture_names(arguments.chart, arguments.trace);
  const RunConfig config = load_run_config(arguments.run.path, overrides);
  const std::string name = !arguments.machine.empty()     ? arguments.machine
                           : config.device.kind == "cuda" ? "h200"
                                                          : "cpu";
  const Machine machine = load_machine(name);
  const Plan plan =
      make_plan({.job = {.config = config, .transport = transport_of(arguments.transport)},
                 .machine = machine,
                 .num_hosts = arguments.hosts});
  fmt::print("{}", arguments.json ? plan_json(plan) + "\n" : plan_text(plan));
  if (!plan.match.is_whole()) return static_cast<int>(Fault::kRun);
  write_pictures(plan, arguments.chart, arguments.trace);
  if (plan.fit.fits) return 0;
  if (!arguments.json) {
    throw Error(Fault::kPlan, explain_misfit(plan.request.job, plan.memory, plan.limit));
  }
  return static_cast<int>(Fault::kPlan);
}

}  // namespace

void add_plan(Parser& app, Command& chosen) {
  Parser& command = app.add_command(
      "plan", "dry run of every rank without training: memory by class, messages, deadlock check");
  const auto arguments = std::make_shared<PlanArguments>();
  add_run_arguments(command, arguments->run);
  command.add_option("--ranks", arguments->ranks, "ranks in place of layout.ranks").positive();
  command.add_option("--machine", arguments->machine,
                     "what it would run on, or a file of that kind: " + join(machine_names()) +
                         "; without it h200 for device.kind=cuda, else cpu, which is this host");
  command.add_option("--hosts", arguments->hosts, "hosts that are there; without it: enough")
      .positive();
  command.add_option("--transport", arguments->transport,
                     "what connects ranks: threads, shm (of orthant launch and torchrun), mpi, or "
                     "sockets (of torchrun on several hosts); the host memory of the last three "
                     "is counted, and GPUs that go by mpi or sockets go by NCCL");
  command.add_option("--chart", arguments->chart,
                     "FILE.svg or FILE.html: the schedule, and memory over a step, drawn");
  command.add_option("--trace", arguments->trace,
                     "FILE.json: the predicted step as a Chrome trace");
  command.add_flag("--json", arguments->json, "one JSON object on standard output");
  command.when_chosen([arguments, &chosen] {
    chosen = [arguments] {
      return run_plan(*arguments);
    };
  });
}

}  // namespace orthant
