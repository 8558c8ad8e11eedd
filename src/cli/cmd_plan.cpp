// orthant plan: the dry run of every rank, without training.
#include <cstdio>
#include <memory>

#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "train/plan_memory.h"
#include "train/run_schedule.h"

namespace orthant {
namespace {

OrderedJson rank_json(const RankConfig& config, const RunPlan& plan, int rank) {
  const auto coords = mesh_shape(config.layout).coords_of(rank);
  const MemoryPlan& memory = plan.of(rank).memory;
  OrderedJson classes = OrderedJson::object();
  const ClassBytes by_class = memory.by_class();
  for (int i = 0; i < kNumMemClasses; ++i) {
    classes[std::string(name_of(static_cast<MemClass>(i)))] = by_class[static_cast<std::size_t>(i)];
  }
  classes["libraries"] = 0;
  return {{"rank", rank},
          {"pp", coords[static_cast<std::size_t>(Axis::kPp)]},
          {"dp", coords[static_cast<std::size_t>(Axis::kDp)]},
          {"tp", coords[static_cast<std::size_t>(Axis::kTp)]},
          {"device_bytes", memory.device_bytes()},
          {"host_bytes", memory.host_bytes()},
          {"classes", classes}};
}

int plan(const RunConfig& config, bool json) {
  const RankConfig rank = rank_config(config);
  const bool evaluates = !config.data.valid.empty() || !config.data.split.empty();
  const RunPlan plan = plan_run(rank, evaluates ? eval_micros(config) : 0);
  Programs programs(schedule_choice(config.layout));  // throws when a rank could wait for ever
  const double idle = bubble(programs.training(rank.max_micros), programs.placement(), 1, 1, 1);
  const std::int64_t available = available_host_bytes();
  const bool fits = plan.total_bytes() <= available;
  if (json) {
    OrderedJson ranks = OrderedJson::array();
    for (int r = 0; r < config.layout.ranks; ++r) {
      ranks.push_back(rank_json(rank, plan, r));
    }
    const OrderedJson all = {{"fits", fits},
                             {"step_ms", nullptr},
                             {"bubble", idle},
                             {"deadlock_free", true},
                             {"ranks", ranks}};
    fmt::print("{}\n", all.dump(1));
  } else {
    fmt::print(
        "{} parameters, {} ranks: tp {}, pp {}, dp {}; {} micro-batches a step, schedule {}\n",
        count_parameters(config.model), config.layout.ranks, config.layout.tp, config.layout.pp,
        config.layout.dp(), rank.max_micros, config.layout.schedule);
    fmt::print("{}", memory_table(rank, plan));
    fmt::print("all ranks on this host: {} of {} free: {}\n", format_bytes(plan.total_bytes()),
               format_bytes(available), fits ? "fits" : "does not fit");
    fmt::print("no rank can wait for ever; idle share of a step {:.1f} % at equal stage times\n",
               idle * 100);
  }
  if (!fits && !json) require_fit(rank, plan, available);
  return fits ? 0 : 3;
}

}  // namespace

void add_plan(Parser& app, Command& chosen) {
  Parser& command = app.add_command(
      "plan", "dry run of every rank without training: memory by class, messages, deadlock check");
  struct Arguments {
    RunArguments run;
    int ranks = 0;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  add_run_arguments(command, arguments->run);
  command.add_option("--ranks", arguments->ranks, "ranks in place of layout.ranks").positive();
  command.add_flag("--json", arguments->json, "one JSON object on standard output");
  command.when_chosen([arguments, &chosen] {
    chosen = [arguments] {
      std::vector<std::string> overrides = arguments->run.overrides;
      if (arguments->ranks > 0)
        overrides.push_back(fmt::format("--layout.ranks={}", arguments->ranks));
      return plan(load_run_config(arguments->run.path, overrides), arguments->json);
    };
  });
}

}  // namespace orthant
