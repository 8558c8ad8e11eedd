// orthant generate: text to standard output as it is produced.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/run_generators.h"
#include "infer/text_model.h"
#include "infer/text_stream.h"
#include "infer/write_text.h"

namespace orthant {
namespace {

struct GenerateArguments {
  ModelRequest model;
  std::optional<std::string> prompt;
  std::string prompts;  // a file
  std::string tokenizer;
  std::int64_t num_tokens = 200;
  std::int64_t batch = 8;
  int tp = 1;
  int pp = 1;
  SamplerConfig sampler;
};

void print_now(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) {
    fail_run("the text cannot be written to standard output: {}", std::strerror(errno));
  }
}

std::vector<std::string> prompts_of(const GenerateArguments& arguments) {
  if (arguments.prompt.has_value() == !arguments.prompts.empty()) {
    fail_user("generate needs either --prompt TEXT or --prompts FILE; give one of them");
  }
  if (arguments.prompt) return {*arguments.prompt};
  std::vector<std::string> prompts = split(read_text_file(arguments.prompts), '\n');
  std::erase_if(prompts, [](const std::string& line) { return line.empty(); });
  if (prompts.empty())
    fail_user("--prompts {} has no line; give a prompt a line", arguments.prompts);
  return prompts;
}

// Everything that texts are written with; alike on all ranks.
struct Writing {
  const GenerateArguments& arguments;
  const TextModel& text;
  const Tokenizer& tokenizer;
  std::vector<std::string> prompts;
  std::vector<TextRequest> requests = {};
  std::int64_t written = 0;  // tokens, by rank 0
  bool was_short = false;    // learned positions have ended a text

  void note(TextEnd end, std::int64_t count) {
    written += count;
    was_short = was_short || (end == TextEnd::kTokens && count < arguments.num_tokens);
  }
};

GeneratorConfig add_requests(Writing& writing) {
  const TextModel& text = writing.text;
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < writing.prompts.size(); ++i) {
    TextRequest request{.prompt = encode_prompt(writing.tokenizer, text, writing.prompts[i]),
                        .ends = text.ends,
                        .sequence = i};
    request.num_ids =
        static_cast<std::int32_t>(std::min(text.model.vocab, writing.tokenizer.vocab_size()));
    if (const auto end = writing.tokenizer.end_of_document()) request.ends.push_back(*end);
    longest = std::max(longest, static_cast<std::int64_t>(request.prompt.size()));
    writing.requests.push_back(std::move(request));
  }
  GeneratorConfig config =
      generator_config(text.model, text.compute, longest, writing.arguments.num_tokens);
  for (TextRequest& request : writing.requests) {
    const auto count = static_cast<std::int64_t>(request.prompt.size());
    request.num_tokens = std::min(writing.arguments.num_tokens, tokens_that_fit(config, count));
  }
  if (writing.arguments.batch < 1) {
    fail_user("--batch={}: one text at a time is the least; give 1 or more",
              writing.arguments.batch);
  }
  config.batch =
      std::min(writing.arguments.batch, static_cast<std::int64_t>(writing.requests.size()));
  const auto batch = static_cast<std::size_t>(config.batch);
  config.max_forward = 0;
  for (std::size_t first = 0; first < writing.requests.size(); first += batch) {
    const std::size_t count = std::min(batch, writing.requests.size() - first);
    const auto requests = std::span(writing.requests).subspan(first, count);
    config.max_forward =
        std::max(config.max_forward, static_cast<std::int64_t>(shortest_prompt(requests)));
  }
  config.tp = writing.arguments.tp;
  config.pp = writing.arguments.pp;
  return config;
}

// The only text, as it comes.
void write_one(Writing& writing, Generator& generator, int rank) {
  Sampler sampler(writing.arguments.sampler);
  const TextRequest& request = writing.requests.front();
  TextStream stream(writing.tokenizer, request.prompt);
  std::int64_t count = 0;
  if (rank == 0) print_now(writing.prompts.front());
  const auto ends = write_texts(generator, sampler, writing.requests,
                                [&](std::size_t /*text*/, std::int32_t token) {
                                  ++count;
                                  if (rank == 0) print_now(stream.push(token));
                                });
  if (rank != 0) return;
  print_now(stream.finish() + "\n");
  writing.note(ends.front(), count);
}

// A batch after the other, a JSON object a text.
void write_all(Writing& writing, Generator& generator, int rank, std::size_t batch) {
  Sampler sampler(writing.arguments.sampler);
  for (std::size_t first = 0; first < writing.requests.size(); first += batch) {
    const std::size_t count = std::min(batch, writing.requests.size() - first);
    std::vector<TextRequest> requests(
        writing.requests.begin() + static_cast<std::ptrdiff_t>(first),
        writing.requests.begin() + static_cast<std::ptrdiff_t>(first + count));
    requests.resize(batch, requests.back());  // the last batch is as wide as the others
    std::vector<TextStream> streams;
    streams.reserve(batch);
    std::vector<std::string> texts(batch);
    std::vector<std::int64_t> counts(batch);
    for (const TextRequest& request : requests) {
      streams.emplace_back(writing.tokenizer, request.prompt);
    }
    generator.restart();
    const auto ends =
        write_texts(generator, sampler, requests, [&](std::size_t i, std::int32_t token) {
          ++counts[i];
          texts[i] += streams[i].push(token);
        });
    for (std::size_t i = 0; i < count && rank == 0; ++i) {
      const OrderedJson line = {{"prompt", writing.prompts[first + i]},
                                {"text", texts[i] + streams[i].finish()},
                                {"tokens", counts[i]},
                                {"end", ends[i] == TextEnd::kDocument ? "document" : "tokens"}};
      print_now(line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
      writing.note(ends[i], counts[i]);
    }
  }
}

int generate(const GenerateArguments& arguments) {
  const Sampler checked(arguments.sampler);
  std::vector<std::string> prompts = prompts_of(arguments);
  const TextModel text = find_text_model(arguments.model);
  for (const std::string& damage : text.weights.passed_over) {
    fmt::print(stderr, "{}\n", damage);
  }
  const auto tokenizer = find_tokenizer(arguments.tokenizer, text);
  Writing writing{
      .arguments = arguments, .text = text, .tokenizer = *tokenizer, .prompts = std::move(prompts)};
  const GeneratorConfig config = add_requests(writing);
  std::chrono::duration<double> elapsed{};
  run_generators(config, text, "lower --tokens or --batch", [&](Generator& generator, int rank) {
    const auto start = std::chrono::steady_clock::now();
    if (arguments.prompt) {
      write_one(writing, generator, rank);
    } else {
      write_all(writing, generator, rank, static_cast<std::size_t>(config.batch));
    }
    if (rank == 0) elapsed = std::chrono::steady_clock::now() - start;
  });
  if (writing.was_short) {
    fmt::print(stderr,
               "{} after fewer than {} tokens: model.max_positions={} learned positions are all "
               "that there is\n",
               arguments.prompt ? "the text ends" : "some texts end", arguments.num_tokens,
               text.model.max_positions);
  }
  fmt::print(stderr, "{} tokens, {:.1f} tokens/s; weights: {}; seed {}\n", writing.written,
             static_cast<double>(writing.written) / elapsed.count(), text.weights.origin,
             arguments.sampler.seed);
  return 0;
}

}  // namespace

void add_generate(Parser& app, Command& chosen) {
  Parser& command = app.add_command(
      "generate",
      "writes text that follows a prompt; the newest checkpoint of a run, or any other");
  const auto arguments = std::make_shared<GenerateArguments>();
  command
      .add_option("RUN_OR_CHECKPOINT", arguments->model.path,
                  "a run file, a checkpoint, a directory of checkpoints, or a Hugging Face folder")
      .required();
  command.add_option("--prompt", arguments->prompt, "what the text begins with");
  command.add_option("--prompts", arguments->prompts,
                     "a file with a prompt a line: texts as JSON lines, --batch of them at once");
  command.add_option("--batch", arguments->batch, "of --prompts: texts written at once")
      .show_default();
  command.add_option("--tp", arguments->tp, "ranks that share each layer, threads of this process")
      .show_default();
  command.add_option("--pp", arguments->pp, "ranks that share the layers one after another")
      .show_default();
  command.add_option("--tokens", arguments->num_tokens, "tokens to write at most").show_default();
  command
      .add_option("--temperature", arguments->sampler.temperature,
                  "spread of the choice; 0: always the most likely token")
      .show_default();
  command.add_option("--top-k", arguments->sampler.top_k, "only the K most likely; 0: all")
      .show_default();
  command
      .add_option("--top-p", arguments->sampler.top_p,
                  "only the most likely that share this probability; 1: all")
      .show_default();
  command.add_option("--seed", arguments->sampler.seed, "another seed writes another text")
      .show_default();
  command.add_option("--tokenizer", arguments->tokenizer,
                     "bytes, a tokenizer.json, a SentencePiece .model, or a folder with one; "
                     "without it, the model folder's, or bytes for up to 256 tokens");
  command.add_option("--checkpoint", arguments->model.checkpoint,
                     "of a run file: a checkpoint, or a directory of them, in place of its own");
  command.keep_extras(arguments->model.overrides);
  command.when_chosen([arguments, &chosen] {
    chosen = [arguments] {
      return generate(*arguments);
    };
  });
}

}  // namespace orthant
