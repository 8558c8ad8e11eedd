#include "infer/choices.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/check.h"
#include "base/json.h"

namespace orthant {
namespace {

ChoiceTask parse_task(const std::string& line, const std::string& place) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) fail_user("{} is no JSON object; give one task a line", place);
  const auto context = json.find("context");
  const auto choices = json.find("choices");
  const auto answer = json.find("answer");
  if (context == json.end() || !context->is_string()) {
    fail_user("{} has no text under 'context'; add what the choices follow", place);
  }
  ChoiceTask task{.context = *context, .choices = {}, .answer = 0, .place = place};
  const bool is_list = choices != json.end() && choices->is_array() && choices->size() >= 2;
  if (!is_list || !std::all_of(choices->begin(), choices->end(), [](const Json& choice) {
        return choice.is_string() && !choice.get_ref<const std::string&>().empty();
      })) {
    fail_user("{} has no list of two or more texts under 'choices'; add them", place);
  }
  task.choices = choices->get<std::vector<std::string>>();
  const std::int64_t last = static_cast<std::int64_t>(task.choices.size()) - 1;
  if (answer == json.end() || !answer->is_number_integer() || answer->get<std::int64_t>() < 0 ||
      answer->get<std::int64_t>() > last) {
    fail_user("{} has no number from 0 to {} under 'answer'; give the place of the right choice",
              place, last);
  }
  task.answer = answer->get<std::size_t>();
  return task;
}

double log_probability(std::span<const float> logits, std::int32_t token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) {
    sum += std::exp(logit - largest);
  }
  const double result = logits[static_cast<std::size_t>(token)] - largest - std::log(sum);
  if (!std::isfinite(result)) fail_run("the model gives logits that are not finite");
  return result;
}

std::size_t best(const std::vector<double>& scores) {
  return static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

}  // namespace

std::vector<ChoiceTask> read_choice_tasks(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_user("{} cannot be read; give a file with one task a line", path);
  std::vector<ChoiceTask> tasks;
  std::int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    tasks.push_back(parse_task(line, fmt::format("{}:{}", path, number)));
  }
  if (tasks.empty()) fail_user("{} has no task; give one a line", path);
  return tasks;
}

TaskTokens encode_choices(const Tokenizer& tokenizer, const TextModel& model,
                          const ChoiceTask& task) {
  const std::size_t last = task.context.find_last_not_of(" \t\n");
  const std::size_t end = last == std::string::npos ? 0 : last + 1;
  const std::string context = task.context.substr(0, end);
  TaskTokens all;
  try {
    const std::size_t first = encode_prompt(tokenizer, model, context).size();
    for (const std::string& choice : task.choices) {
      const std::string text = task.context.substr(end) + choice;
      ChoiceTokens one{.tokens = encode_prompt(tokenizer, model, context + text),
                       .first = first,
                       .bytes = static_cast<std::int64_t>(text.size())};
      // An empty context is the token that begins a document.
      if (context.empty()) {
        one.tokens.insert(one.tokens.begin(), encode_prompt(tokenizer, model, "").front());
      }
      one.first = std::min(first, one.tokens.size() - 1);
      all.push_back(std::move(one));
    }
  } catch (const Error& error) {
    throw Error(error.fault(), task.place + ": " + error.what());
  }
  for (const ChoiceTokens& one : all) {
    const auto count = static_cast<std::int64_t>(one.tokens.size());
    if (one.first == 0) fail_user("{}: context and choice are one token; lengthen one", task.place);
    if (model.model.position != "learned" || count <= model.model.max_positions + 1) continue;
    fail_user(
        "{} has {} tokens, model.max_positions={} learned positions are all that there is; "
        "shorten its context",
        task.place, count, model.model.max_positions);
  }
  return all;
}

GeneratorConfig choices_config(const ModelConfig& model, DType compute,
                               const std::vector<TaskTokens>& tasks) {
  GeneratorConfig config{.model = model, .compute = compute};
  for (const TaskTokens& task : tasks) {
    for (const ChoiceTokens& one : task) {
      config.max_forward = std::max(config.max_forward, static_cast<std::int64_t>(one.first));
      // The last token is not read by the model.
      config.max_tokens =
          std::max(config.max_tokens, static_cast<std::int64_t>(one.tokens.size()) - 1);
    }
  }
  return config;
}

std::vector<double> score_choices(Generator& generator, const TaskTokens& task) {
  std::vector<double> scores;
  std::vector<std::int32_t> context;  // what the cache begins with, ...
  std::vector<float> behind;          // ... and the logits behind it
  for (const ChoiceTokens& one : task) {
    const std::span<const std::int32_t> tokens = one.tokens;
    const auto begin = tokens.first(one.first);
    if (!std::equal(begin.begin(), begin.end(), context.begin(), context.end())) {
      context.assign(begin.begin(), begin.end());
      generator.restart();
      const std::span<const float> logits = generator.forward(context);
      behind.assign(logits.begin(), logits.end());
    }
    generator.rewind(static_cast<std::int64_t>(one.first));
    double sum = log_probability(behind, tokens[one.first]);
    for (std::size_t i = one.first + 1; i < tokens.size(); ++i) {
      sum += log_probability(generator.forward(tokens.subspan(i - 1, 1)), tokens[i]);
    }
    scores.push_back(sum);
  }
  return scores;
}

void ChoiceResult::add(const TaskTokens& task, const std::vector<double>& scores,
                       std::size_t answer) {
  std::vector<double> by_bytes = scores;
  for (std::size_t i = 0; i < task.size(); ++i) {
    by_bytes[i] /= static_cast<double>(task[i].bytes);
  }
  ++tasks;
  right += best(scores) == answer ? 1 : 0;
  right_by_bytes += best(by_bytes) == answer ? 1 : 0;
}

}  // namespace orthant
