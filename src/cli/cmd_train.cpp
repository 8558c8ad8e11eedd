// orthant train and orthant eval.
#include <cmath>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "base/check.h"
#include "base/json.h"
#include "cli/commands.h"
#include "train/loop.h"

namespace orthant {

void add_train(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand(
      "train", "trains; resumes from the newest whole checkpoint in checkpoint.dir");
  struct Arguments {
    RunArguments run;
    std::vector<std::string> dump;
  };
  const auto arguments = std::make_shared<Arguments>();
  add_run_arguments(*command, arguments->run);
  command
      ->add_option("--dump-gradients", arguments->dump,
                   "STEP FILE: writes the gradients of that step, before clipping, as safetensors "
                   "with Hugging Face's "
                   "names")
      ->expected(2);
  command->final_callback([arguments, &chosen] {
    chosen = [arguments] {
      const RunConfig config = load_run_config(arguments->run.path, arguments->run.overrides);
      std::optional<GradientDump> dump;
      if (!arguments->dump.empty()) {
        std::size_t used = 0;
        std::int64_t step = 0;
        try {
          step = std::stoll(arguments->dump[0], &used);
        } catch (const std::exception&) {
          used = 0;
        }
        if (used != arguments->dump[0].size()) {
          fail_user(
              "--dump-gradients {}: a step and a file were expected, as in --dump-gradients 1 "
              "grads.safetensors",
              arguments->dump[0]);
        }
        dump = GradientDump{.step = step, .path = arguments->dump[1]};
      }
      return train(config, dump);
    };
  });
}

void add_eval(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("eval", "loss and perplexity on the validation data");
  struct Arguments {
    RunArguments run;
    std::string checkpoint;
    std::string logits;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  add_run_arguments(*command, arguments->run);
  command->add_option("--checkpoint", arguments->checkpoint,
                      "a checkpoint folder; without it, what training would start from");
  command->add_option(
      "--logits", arguments->logits,
      "writes logits [B*S,V] and losses [B*S] of the first global batch as safetensors");
  command->add_flag("--json", arguments->json, "one JSON object on standard output");
  command->final_callback([arguments, &chosen] {
    chosen = [arguments] {
      const RunConfig config = load_run_config(arguments->run.path, arguments->run.overrides);
      const EvalResult result = evaluate(config, arguments->checkpoint, arguments->logits);
      if (arguments->json) {
        const OrderedJson json = {{"loss", result.loss},
                                  {"perplexity", std::exp(result.loss)},
                                  {"tokens", result.tokens}};
        fmt::print("{}\n", json.dump());
      } else {
        fmt::print("loss {:.6f} nats per token, perplexity {:.4f}, over {} tokens\n", result.loss,
                   std::exp(result.loss), result.tokens);
      }
      return 0;
    };
  });
}

}  // namespace orthant
