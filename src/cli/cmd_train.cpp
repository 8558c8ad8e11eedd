// orthant train and orthant eval.
#include <cstdio>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "cli/commands.h"
#include "train/loop.h"
#include "train/run_ranks.h"

namespace orthant {
namespace {

std::optional<GradientDump> parse_dump(const std::vector<std::string>& words) {
  if (words.empty()) return std::nullopt;
  std::size_t used = 0;
  std::int64_t step = 0;
  try {
    step = std::stoll(words[0], &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used != words[0].size()) {
    fail_user(
        "--dump-gradients {}: a step and a file were expected, as in --dump-gradients 1 "
        "grads.safetensors",
        words[0]);
  }
  return GradientDump{.step = step, .path = words[1]};
}

OrderedJson loss_json(double loss, std::int64_t tokens) {
  return {{"loss", loss}, {"perplexity", perplexity(loss)}, {"tokens", tokens}};
}

std::string loss_text(double loss, std::int64_t tokens) {
  return fmt::format("loss {:.6f} nats per token, perplexity {:.4f}, over {} tokens", loss,
                     perplexity(loss), tokens);
}

// Of all sources, then of each where there are several.
void print_loss(const EvalResult& result, bool json) {
  if (json) {
    OrderedJson object = loss_json(result.loss, result.tokens);
    object["sources"] = OrderedJson::array();
    for (const SourceLoss& source : result.sources) {
      OrderedJson part = {{"prefix", source.prefix}};
      part.update(loss_json(source.loss, source.tokens));
      object["sources"].push_back(std::move(part));
    }
    fmt::print("{}\n", object.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
    return;
  }
  fmt::print("{}\n", loss_text(result.loss, result.tokens));
  if (result.sources.size() < 2) return;
  for (const SourceLoss& source : result.sources) {
    fmt::print("{}: {}\n", source.prefix, loss_text(source.loss, source.tokens));
  }
}

}  // namespace

void add_train(Parser& app, Command& chosen) {
  Parser& command = app.add_command(
      "train", "trains; resumes from the newest whole checkpoint in checkpoint.dir");
  struct Arguments {
    RunArguments run;
    std::vector<std::string> dump;
    bool self_check = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  add_run_arguments(command, arguments->run);
  command
      .add_option("--dump-gradients", arguments->dump,
                  "STEP FILE: writes the gradients of that step, before clipping, as safetensors "
                  "with Hugging Face's "
                  "names")
      .expected(2);
  command.add_flag("--self-check", arguments->self_check,
                   "before the first step: tries the layout on a small model against one rank, "
                   "and examines the start of the run; a fault ends it with status 1");
  command.when_chosen([arguments, &chosen] {
    chosen = [arguments] {
      TrainExtras extras;
      extras.dump = parse_dump(arguments->dump);
      extras.self_check = arguments->self_check;
      return run_with_ranks(arguments->run,
                            [&extras](const RunConfig& config, ProcessWorld* world) {
                              return train(config, extras, world);
                            });
    };
  });
}

void add_eval(Parser& app, Command& chosen) {
  Parser& command = app.add_command("eval", "loss and perplexity on the validation data");
  struct Arguments {
    RunArguments run;
    std::string checkpoint;
    std::string logits;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  add_run_arguments(command, arguments->run);
  command.add_option("--checkpoint", arguments->checkpoint,
                     "a checkpoint folder; without it, what training would start from");
  command.add_option(
      "--logits", arguments->logits,
      "writes logits [B*S,V] and losses [B*S] of the first global batch as safetensors");
  command.add_flag("--json", arguments->json, "one JSON object on standard output");
  command.when_chosen([arguments, &chosen] {
    chosen = [arguments] {
      return run_with_ranks(arguments->run, [&arguments](const RunConfig& config,
                                                         ProcessWorld* world) {
        const EvalResult result = evaluate(config, arguments->checkpoint, arguments->logits, world);
        if (has_first_rank(world)) print_loss(result, arguments->json);
        return 0;
      });
    };
  });
}

}  // namespace orthant
