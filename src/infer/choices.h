// Multiple-choice tasks by log-likelihood: of the texts that could follow a context the model
// chooses the likeliest. Tokens are counted as EleutherAI's evaluation harness does (api/model.py,
// TemplateLM._encode_pair): spaces at the context's end go to the choices, and what a choice's
// tokens are is seen behind its context.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infer/generator.h"
#include "infer/text_model.h"

namespace orthant {

struct ChoiceTask {
  std::string context;
  std::vector<std::string> choices;  // two or more
  std::size_t answer = 0;            // the right one, from 0
  std::string place = {};            // "tasks.jsonl:12", for messages
};

// A file of lines {"context": "...", "choices": ["...", "..."], "answer": 0}. A line that is none
// is a user error with its number.
std::vector<ChoiceTask> read_choice_tasks(const std::string& path);

// A choice as the model reads it: the tokens of context and choice, of which those from `first` on
// count.
struct ChoiceTokens {
  std::vector<std::int32_t> tokens;
  std::size_t first = 0;   // at least 1
  std::int64_t bytes = 0;  // of the choice's text
};
using TaskTokens = std::vector<ChoiceTokens>;

TaskTokens encode_choices(const Tokenizer& tokenizer, const TextModel& model,
                          const ChoiceTask& task);

// The config that reads every one of them.
GeneratorConfig choices_config(const ModelConfig& model, DType compute,
                               const std::vector<TaskTokens>& tasks);

// The log-likelihood of each choice behind its context, in nats.
std::vector<double> score_choices(Generator& generator, const TaskTokens& task);

struct ChoiceResult {
  std::int64_t tasks = 0;
  std::int64_t right = 0;           // the likeliest is the answer
  std::int64_t right_by_bytes = 0;  // the likeliest for each byte of its text is

  void add(const TaskTokens& task, const std::vector<double>& scores, std::size_t answer);
};

}  // namespace orthant
