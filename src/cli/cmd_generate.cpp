// orthant generate: text to standard output as it is produced.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/text.h"
#include "cli/commands.h"
#include "comm/backends.h"
#include "infer/generator.h"
#include "infer/text_model.h"
#include "infer/text_stream.h"
#include "train/host_memory.h"
#include "train/run_ranks.h"

namespace orthant {
namespace {

struct GenerateArguments {
  ModelRequest model;
  std::string prompt;
  std::string tokenizer;
  std::int64_t num_tokens = 200;
  SamplerConfig sampler;
};

void print_now(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) {
    fail_run("the text cannot be written to standard output: {}", std::strerror(errno));
  }
}

void require_memory(const MemoryPlan& plan, std::string_view device, std::int64_t num_tokens) {
  const std::int64_t free_bytes =
      device == "cuda" ? available_gpu_bytes().front() : available_host_bytes();
  if (plan.device_bytes() <= free_bytes) return;
  throw Error(
      Fault::kPlan,
      fmt::format("generate needs {} ({} for parameters, {} for keys and values), {} are "
                  "free; lower --tokens={} or use a machine with more memory",
                  format_bytes(plan.device_bytes()), format_bytes(plan.find("params")->bytes),
                  format_bytes(plan.find("cache")->bytes), format_bytes(free_bytes), num_tokens));
}

TextRequest text_request(const TextModel& text, const Tokenizer& tokenizer,
                         std::vector<std::int32_t> prompt, std::int64_t num_tokens) {
  TextRequest request{.prompt = std::move(prompt), .num_tokens = num_tokens, .ends = text.ends};
  request.num_ids = static_cast<std::int32_t>(std::min(text.model.vocab, tokenizer.vocab_size()));
  if (const auto end = tokenizer.end_of_document()) request.ends.push_back(*end);
  return request;
}

int generate(const GenerateArguments& arguments) {
  Sampler sampler(arguments.sampler);
  const TextModel text = find_text_model(arguments.model);
  for (const std::string& damage : text.weights.passed_over) {
    fmt::print(stderr, "{}\n", damage);
  }
  const auto tokenizer = find_tokenizer(arguments.tokenizer, text);
  std::vector<std::int32_t> prompt = encode_prompt(*tokenizer, text, arguments.prompt);
  GeneratorConfig config = generator_config(
      text.model, text.compute, static_cast<std::int64_t>(prompt.size()), arguments.num_tokens);
  config.target = target_of(text.device);
  const MemoryPlan plan = plan_generation(config);
  require_memory(plan, text.device, arguments.num_tokens);

  const std::unique_ptr<Device> device = make_device(text.device, 0);
  ThreadWorld world(1, LayoutConfig{}.deadline_s);
  const Backend backend{.device = *device,
                        .ops = text.device,
                        .join_world = [&](const CommParts& parts) { return world.join(0, parts); },
                        .num_threads = threads_per_rank(1)};
  Generator generator(config, backend, plan);
  text.weights.source->verify({});
  generator.store().load(*text.weights.source);

  const TextRequest request =
      text_request(text, *tokenizer, std::move(prompt), tokens_that_fit(config));
  TextStream stream(*tokenizer, request.prompt);
  print_now(arguments.prompt);
  std::int64_t written = 0;
  const auto start = std::chrono::steady_clock::now();
  const TextEnd end = write_text(generator, sampler, request, [&](std::int32_t token) {
    ++written;
    print_now(stream.push(token));
  });
  print_now(stream.finish() + "\n");
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (end == TextEnd::kTokens && written < arguments.num_tokens) {
    fmt::print(stderr,
               "the text ends after {} of {} tokens: model.max_positions={} learned positions are "
               "all that there is\n",
               written, arguments.num_tokens, text.model.max_positions);
  }
  fmt::print(stderr, "{} tokens, {:.1f} tokens/s; weights: {}; seed {}\n", written,
             static_cast<double>(written) / elapsed.count(), text.weights.origin,
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
  command.add_option("--prompt", arguments->prompt, "what the text begins with").required();
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
