// orthant data: merge, split, verify, train-tokenizer.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/commands.h"
#include "data/bpe_trainer.h"
#include "data/count_pieces.h"
#include "data/dataset_files.h"
#include "data/tokenizer.h"
#include "data/word_patterns.h"

namespace orthant {
namespace {

void print_counts(const std::string& prefix, const DatasetCounts& counts) {
  fmt::print("{}: {} documents, {} sequences, {} tokens\n", prefix, counts.num_documents,
             counts.num_sequences, counts.num_tokens);
}

void add_merge(Parser& data, Command& chosen) {
  Parser& command = data.add_command("merge", "several datasets to one, in the order given");
  struct Arguments {
    std::vector<std::string> inputs;
    std::string output;
  };
  const auto arguments = std::make_shared<Arguments>();
  command.add_option("PREFIX", arguments->inputs, "datasets").required();
  command.add_option("--output", arguments->output, "prefix of the dataset of all").required();
  command.when_chosen([arguments, &chosen] {
    chosen = [arguments] {
      print_counts(arguments->output, merge_datasets(arguments->inputs, arguments->output));
      return 0;
    };
  });
}

// "corpus-valid=0.05"
DatasetShare parse_share(const std::string& text) {
  const std::size_t equals = text.rfind('=');
  const std::string number = equals == std::string::npos ? "" : text.substr(equals + 1);
  char* end = nullptr;
  const double share = std::strtod(number.c_str(), &end);
  if (number.empty() || *end != '\0' || equals == 0) {
    fail_user("data split --into: '{}' is not PREFIX=SHARE; give, for example, valid=0.05", text);
  }
  return {text.substr(0, equals), share};
}

void add_split(Parser& data, Command& chosen) {
  Parser& command = data.add_command("split", "one dataset to several, documents in their order");
  struct Arguments {
    std::string input;
    std::vector<std::string> into;
  };
  const auto arguments = std::make_shared<Arguments>();
  command.add_option("PREFIX", arguments->input, "the dataset").required();
  command
      .add_option("--into", arguments->into,
                  "PREFIX=SHARE of each part; shares of the documents, whatever their sum")
      .required();
  command.when_chosen([arguments, &chosen] {
    chosen = [arguments] {
      std::vector<DatasetShare> shares;
      shares.reserve(arguments->into.size());
      for (const std::string& text : arguments->into) {
        shares.push_back(parse_share(text));
      }
      const std::vector<DatasetCounts> counts = split_dataset(arguments->input, shares);
      for (std::size_t i = 0; i < counts.size(); ++i) {
        print_counts(shares[i].output, counts[i]);
      }
      return 0;
    };
  });
}

void print_report(const std::string& prefix, const DatasetReport& report, bool as_json) {
  if (as_json) {
    const OrderedJson json = {{"prefix", prefix},
                              {"type", name_of(report.type)},
                              {"documents", report.counts.num_documents},
                              {"empty_documents", report.num_empty_documents},
                              {"longest_document", report.longest_document},
                              {"sequences", report.counts.num_sequences},
                              {"tokens", report.counts.num_tokens},
                              {"min_token", report.range.min},
                              {"max_token", report.range.max},
                              {"crc32c", fmt::format("{:08x}", report.checksum)}};
    fmt::print("{}\n", json.dump());
    return;
  }
  fmt::print(
      "{} is whole: {} documents ({} of them empty, the longest of {} tokens), {} sequences, {} "
      "tokens of type {}, ids {} to {}, CRC-32C of the tokens {:08x}\n",
      prefix, report.counts.num_documents, report.num_empty_documents, report.longest_document,
      report.counts.num_sequences, report.counts.num_tokens, name_of(report.type), report.range.min,
      report.range.max, report.checksum);
}

void add_verify(Parser& data, Command& chosen) {
  Parser& command = data.add_command("verify", "reads every byte of a dataset and checks it");
  struct Arguments {
    std::string prefix;
    std::string tokenizer;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  command.add_option("PREFIX", arguments->prefix, "the dataset").required();
  command.add_option("--tokenizer", arguments->tokenizer, "whose ids all tokens must be");
  command.add_flag("--json", arguments->json, "one JSON object on standard output");
  command.when_chosen([arguments, &chosen] {
    chosen = [arguments] {
      const bool has_tokenizer = !arguments->tokenizer.empty();
      const std::int64_t vocab =
          has_tokenizer ? make_tokenizer(arguments->tokenizer)->vocab_size() : 0;
      print_report(arguments->prefix, verify_dataset(arguments->prefix, vocab), arguments->json);
      return 0;
    };
  });
}

std::string_view pattern_of(const std::string& name) {
  if (name == "gpt2") return kGpt2Pattern;
  return name == "llama3" ? kLlama3Pattern : kQwen2Pattern;
}

void add_train_tokenizer(Parser& data, Command& chosen) {
  Parser& command = data.add_command("train-tokenizer", "a byte-level BPE from texts");
  struct Arguments {
    PieceSource source;
    BpeTraining training;
    std::string pattern = "gpt2";
    std::string output;
  };
  const auto arguments = std::make_shared<Arguments>();
  PieceSource& source = arguments->source;
  BpeTraining& training = arguments->training;
  source.num_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  training.special_tokens = {"<|endoftext|>"};
  command.add_option("INPUT", source.inputs, "files and folders, as data pack takes them")
      .required();
  command.add_option("--vocab", training.vocab_size, "tokens, bytes and special ones included")
      .required();
  command.add_option("--output", arguments->output, "the tokenizer.json to write").required();
  command.add_option("--special", training.special_tokens, "special tokens, the first ids")
      .show_default();
  command.add_option("--pattern", arguments->pattern, "what cuts texts to pieces")
      .one_of({"gpt2", "llama3", "qwen2"})
      .show_default();
  command.add_option("--min-count", training.min_count, "a rarer pair becomes no token")
      .positive()
      .show_default();
  command.add_option("--json-key", source.json_key, "key of the text in a JSONL line")
      .show_default();
  command.add_option("--threads", source.num_threads, "threads that count").show_default();
  command.when_chosen([arguments, &chosen] {
    chosen = [arguments] {
      require_file_can_be_made(arguments->output, "--output");
      arguments->source.pattern = pattern_of(arguments->pattern);
      const PieceCounts pieces = count_pieces(arguments->source);
      const TrainedBpe trained = train_bpe(pieces, arguments->training);
      write_file_atomically(arguments->output, tokenizer_json(trained, arguments->training,
                                                              arguments->source.pattern));
      fmt::print("{}: {} tokens, {} merges, from {} different pieces\n", arguments->output,
                 trained.tokens.size(), trained.merges.size(), pieces.size());
      return 0;
    };
  });
}

}  // namespace

void add_dataset_commands(Parser& data, Command& chosen) {
  add_merge(data, chosen);
  add_split(data, chosen);
  add_verify(data, chosen);
  add_train_tokenizer(data, chosen);
}

}  // namespace orthant
