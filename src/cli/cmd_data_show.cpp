// orthant data show: which documents a step reads, and which rank reads them.
#include <algorithm>
#include <memory>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "data/tokenizer.h"
#include "train/run_config.h"
#include "train/run_data.h"
#include "train/weights.h"

namespace orthant {
namespace {

struct Sample {
  std::int64_t position = 0;
  std::int64_t dp = 0;
  std::int64_t micro = 0;
  std::int64_t row = 0;
  std::int64_t loss_tokens = 0;  // that its loss is the mean of
  std::vector<DocumentPart> parts;
};

std::vector<Sample> samples_of_step(const RunConfig& config, const TokenSource& source,
                                    std::int64_t step) {
  const std::int64_t b = config.layout.micro_batch;
  const std::int64_t dp = config.layout.dp();
  const std::int64_t first = config.samples_before(step);
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < config.global_batch_at(step); ++i) {
    Sample& sample = samples.emplace_back();
    sample.position = first + i;
    sample.row = i % b;
    sample.dp = i / b % dp;
    sample.micro = i / (b * dp);
    sample.loss_tokens =
        config.data.cross_documents ? source.seq_length() : source.num_targets(sample.position);
    source.visit_parts(sample.position,
                       [&sample](const DocumentPart& part) { sample.parts.push_back(part); });
  }
  return samples;
}

std::string text_of(const Tokenizer& tokenizer, const TokenSource& source, std::int64_t position) {
  constexpr std::size_t kMostTokens = 24;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source.seq_length() + 1));
  source.copy_sample(position, tokens);
  tokens.resize(std::min(tokens.size(), kMostTokens));
  return tokenizer.decode(tokens);
}

const std::string& prefix_of(const TokenSource& source, const DocumentPart& part) {
  return source.datasets()[static_cast<std::size_t>(part.dataset)]->prefix();
}

void print_text(const std::vector<Sample>& samples, const TokenSource& source,
                const Tokenizer* tokenizer) {
  for (const Sample& sample : samples) {
    std::vector<std::string> parts;
    parts.reserve(sample.parts.size());
    for (const DocumentPart& part : sample.parts) {
      parts.push_back(fmt::format("{} document {} tokens {} to {}", prefix_of(source, part),
                                  part.document, part.first_token,
                                  part.first_token + part.count - 1));
    }
    fmt::print("sample {}, dp {} micro-batch {} row {}: {}\n", sample.position, sample.dp,
               sample.micro, sample.row, join(parts));
    if (tokenizer != nullptr) {
      fmt::print("  {}\n", Json(text_of(*tokenizer, source, sample.position))
                               .dump(-1, ' ', false, Json::error_handler_t::replace));
    }
  }
}

void print_json(const std::vector<Sample>& samples, const TokenSource& source, std::int64_t step) {
  OrderedJson list = OrderedJson::array();
  for (const Sample& sample : samples) {
    OrderedJson parts = OrderedJson::array();
    for (const DocumentPart& part : sample.parts) {
      parts.push_back({{"dataset", prefix_of(source, part)},
                       {"document", part.document},
                       {"first_token", part.first_token},
                       {"tokens", part.count}});
    }
    list.push_back({{"position", sample.position},
                    {"dp", sample.dp},
                    {"micro", sample.micro},
                    {"row", sample.row},
                    {"loss_tokens", sample.loss_tokens},
                    {"parts", std::move(parts)}});
  }
  fmt::print("{}\n", OrderedJson({{"step", step}, {"samples", std::move(list)}}).dump());
}

struct Arguments {
  RunArguments run;
  std::int64_t step = 0;
  std::string tokenizer;
  bool json = false;
};

int show(const Arguments& arguments) {
  const RunConfig config = load_run_config(arguments.run.path, arguments.run.overrides);
  if (arguments.step < 1 || arguments.step > config.train.steps) {
    fail_user("data show --step {}: this run has steps 1 to {}; name one of them", arguments.step,
              config.train.steps);
  }
  std::unique_ptr<Tokenizer> tokenizer;
  if (!arguments.tokenizer.empty()) tokenizer = make_tokenizer(arguments.tokenizer);
  const Weights weights = find_weights(config);
  const auto source = open_train_data(config, weights.resumed ? &*weights.resumed : nullptr);
  const std::vector<Sample> samples = samples_of_step(config, *source, arguments.step);
  if (arguments.json) {
    print_json(samples, *source, arguments.step);
  } else {
    print_text(samples, *source, tokenizer.get());
  }
  return 0;
}

}  // namespace

void add_data_show(Parser& data, Command& chosen) {
  Parser& command =
      data.add_command("show", "which documents a training step reads, and which rank reads them");
  const auto arguments = std::make_shared<Arguments>();
  add_run_arguments(command, arguments->run);
  command.add_option("--step", arguments->step, "from 1").required();
  command.add_option("--tokenizer", arguments->tokenizer,
                     "also writes how each sample begins; as in data pack");
  command.add_flag("--json", arguments->json, "one JSON object on standard output");
  command.when_chosen([arguments, &chosen] {
    chosen = [arguments] {
      return show(*arguments);
    };
  });
}

}  // namespace orthant
