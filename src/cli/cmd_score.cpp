// orthant score: multiple-choice tasks by log-likelihood.
#include <cmath>
#include <cstdio>
#include <memory>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/run_generators.h"
#include "infer/choices.h"

namespace orthant {
namespace {

struct ScoreArguments {
  ModelRequest model;
  std::string file;
  std::string tokenizer;
  int tp = 1;
  int pp = 1;
  bool json = false;
};

// Of a share of `count` tasks: the deviation of its mean.
double standard_error(double share, std::int64_t count) {
  return count < 2 ? 0 : std::sqrt(share * (1 - share) / static_cast<double>(count - 1));
}

void print(const ChoiceResult& result, bool json) {
  const auto count = static_cast<double>(result.tasks);
  const double accuracy = static_cast<double>(result.right) / count;
  const double by_bytes = static_cast<double>(result.right_by_bytes) / count;
  if (json) {
    const OrderedJson object = {
        {"tasks", result.tasks},
        {"accuracy", accuracy},
        {"accuracy_stderr", standard_error(accuracy, result.tasks)},
        {"accuracy_by_bytes", by_bytes},
        {"accuracy_by_bytes_stderr", standard_error(by_bytes, result.tasks)}};
    fmt::print("{}\n", object.dump());
    return;
  }
  fmt::print(
      "{} of {} tasks right: accuracy {:.4f} +- {:.4f}; by likelihood for each byte {}: "
      "{:.4f} +- {:.4f}\n",
      result.right, result.tasks, accuracy, standard_error(accuracy, result.tasks),
      result.right_by_bytes, by_bytes, standard_error(by_bytes, result.tasks));
}

int score(const ScoreArguments& arguments) {
  const std::vector<ChoiceTask> tasks = read_choice_tasks(arguments.file);
  const TextModel text = find_text_model(arguments.model);
  for (const std::string& damage : text.weights.passed_over) {
    fmt::print(stderr, "{}\n", damage);
  }
  const auto tokenizer = find_tokenizer(arguments.tokenizer, text);
  std::vector<TaskTokens> tokens;
  tokens.reserve(tasks.size());
  for (const ChoiceTask& task : tasks) {
    tokens.push_back(encode_choices(*tokenizer, text, task));
  }
  GeneratorConfig config = choices_config(text.model, text.compute, tokens);
  config.tp = arguments.tp;
  config.pp = arguments.pp;
  fmt::print(stderr, "weights: {}\n", text.weights.origin);
  ChoiceResult result;
  run_generators(config, text, "shorten the longest context", [&](Generator& generator, int rank) {
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const std::vector<double> scores = score_choices(generator, tokens[i]);
      if (rank == 0) result.add(tokens[i], scores, tasks[i].answer);
    }
  });
  print(result, arguments.json);
  return 0;
}

}  // namespace

void add_score(Parser& app, Command& chosen) {
  Parser& command = app.add_command(
      "score", "multiple-choice tasks: how often the answer is the likeliest of the choices");
  const auto arguments = std::make_shared<ScoreArguments>();
  command
      .add_option("RUN_OR_CHECKPOINT", arguments->model.path,
                  "a run file, a checkpoint, a directory of checkpoints, or a Hugging Face folder")
      .required();
  command
      .add_option("--choices", arguments->file,
                  "a file of lines {\"context\": TEXT, \"choices\": [TEXT, ...], \"answer\": N}, N "
                  "from 0")
      .required();
  command.add_option("--tokenizer", arguments->tokenizer,
                     "bytes, a tokenizer.json, a SentencePiece .model, or a folder with one; "
                     "without it, the model folder's, or bytes for up to 256 tokens");
  command.add_option("--checkpoint", arguments->model.checkpoint,
                     "of a run file: a checkpoint, or a directory of them, in place of its own");
  command.add_option("--tp", arguments->tp, "ranks that share each layer, threads of this process")
      .show_default();
  command.add_option("--pp", arguments->pp, "ranks that share the layers one after another")
      .show_default();
  command.add_flag("--json", arguments->json, "one JSON object on standard output");
  command.keep_extras(arguments->model.overrides);
  command.when_chosen([arguments, &chosen] {
    chosen = [arguments] {
      return score(*arguments);
    };
  });
}

}  // namespace orthant
