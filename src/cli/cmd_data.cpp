// orthant data: pack, info, tokens; cli/cmd_datasets.cpp has the others.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <thread>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "data/indexed_dataset.h"
#include "data/pack.h"
#include "data/tokenizer.h"

namespace orthant {
namespace {

// A line on standard error every ten seconds.
class PackProgressLine {
 public:
  void operator()(std::int64_t done, std::int64_t all) {
    const std::chrono::duration<double> since_last = Clock::now() - last_;
    if (since_last.count() < 10) return;
    last_ = Clock::now();
    if (first_ < 0) {
      first_ = done;  // of a packing that goes on, what it began with counts for no speed
      first_time_ = last_;
      return;
    }
    const std::chrono::duration<double> since_first = last_ - first_time_;
    const double rate = static_cast<double>(done - first_) / since_first.count();
    fmt::print(stderr, "data pack: {} of {}, {:.1f} MB/s\n", format_bytes(done), format_bytes(all),
               rate / 1e6);
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
  Clock::time_point first_time_;
  std::int64_t first_ = -1;
};

void add_pack(Parser& data, Command& chosen) {
  Parser& command = data.add_command("pack", "text or JSONL to PREFIX.bin and PREFIX.idx");
  struct Arguments {
    PackOptions options;
    std::string tokenizer;
    std::string bad_lines = "stop";
  };
  const auto arguments = std::make_shared<Arguments>();
  PackOptions& options = arguments->options;
  options.num_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  command
      .add_option(
          "INPUT", options.inputs,
          "files and folders: texts, or .jsonl with a document a line; .gz and .zst are read")
      .required();
  command
      .add_option("--tokenizer", arguments->tokenizer,
                  "bytes, a tokenizer.json, a SentencePiece .model, or a folder that has one")
      .required();
  command.add_option("--output", options.output, "prefix of the dataset").required();
  command.add_option("--json-key", options.json_key, "key of the text in a JSONL line")
      .show_default();
  command.add_flag("--append-eod", options.append_end_of_document,
                   "append the end-of-document token");
  command.add_flag("--add-special", options.adds_special,
                   "put what the tokenizer.json's template has around a text around each document");
  command
      .add_option("--bad-lines", arguments->bad_lines,
                  "at a line that cannot be read: stop, or skip it and list it in "
                  "PREFIX.bad-lines.txt")
      .one_of({"stop", "skip"})
      .show_default();
  command.add_flag("--restart", options.restarts, "do not go on from what a killed packing left");
  command
      .add_option("--save-interval", options.seconds_between_saves,
                  "seconds after which a killed packing goes on from a later place; 0: each block")
      .not_negative()
      .show_default();
  command
      .add_option(
          "--valid-fraction", options.valid_fraction,
          "share of documents (of a single one: tokens) at the end that goes to PREFIX-valid")
      .show_default();
  command.add_option("--threads", options.num_threads, "threads that tokenize").show_default();
  command.when_chosen([arguments, &chosen] {
    chosen = [arguments] {
      const auto tokenizer = make_tokenizer(arguments->tokenizer);
      PackOptions& options = arguments->options;
      options.bad_lines = arguments->bad_lines == "skip" ? BadLines::kSkip : BadLines::kStop;
      options.on_progress = PackProgressLine();
      const PackResult result = pack(*tokenizer, options);
      fmt::print("{}: {} documents, {} tokens from {}\n", arguments->options.output,
                 result.all.num_documents - result.valid.num_documents,
                 result.all.num_tokens - result.valid.num_tokens,
                 format_bytes(result.all.input_bytes));
      if (arguments->options.valid_fraction > 0) {
        fmt::print("{}-valid: {} documents, {} tokens\n", arguments->options.output,
                   result.valid.num_documents, result.valid.num_tokens);
      }
      if (result.num_files_left_out > 0) {
        fmt::print("{} files of the folders have another ending and were left out\n",
                   result.num_files_left_out);
      }
      if (result.num_bad_lines > 0) {
        fmt::print("{} bad lines were left out: {}.bad-lines.txt\n", result.num_bad_lines,
                   arguments->options.output);
      }
      return 0;
    };
  });
}

void add_info(Parser& data, Command& chosen) {
  Parser& command = data.add_command("info", "what a dataset holds; checks it");
  struct Arguments {
    std::string prefix;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  command.add_option("PREFIX", arguments->prefix, "of PREFIX.bin and PREFIX.idx").required();
  command.add_flag("--json", arguments->json, "one JSON object on standard output");
  command.when_chosen([arguments, &chosen] {
    chosen = [arguments] {
      const IndexedDataset dataset(arguments->prefix);
      const TokenRange range = dataset.token_range();
      if (arguments->json) {
        const OrderedJson json = {{"prefix", arguments->prefix},
                                  {"type", name_of(dataset.token_type())},
                                  {"documents", dataset.num_documents()},
                                  {"sequences", dataset.num_sequences()},
                                  {"tokens", dataset.num_tokens()},
                                  {"min_token", range.min},
                                  {"max_token", range.max}};
        fmt::print("{}\n", json.dump());
      } else {
        fmt::print("{}: {} documents, {} sequences, {} tokens of type {}, ids {} to {}\n",
                   arguments->prefix, dataset.num_documents(), dataset.num_sequences(),
                   dataset.num_tokens(), name_of(dataset.token_type()), range.min, range.max);
      }
      return 0;
    };
  });
}

std::string read_all_input() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

void write_ids(const Tokenizer& tokenizer, bool adds_special) {
  const TemplateIds around = adds_special ? tokenizer.around_text() : TemplateIds{};
  std::vector<std::int32_t> ids = around.before;
  tokenizer.encode(read_all_input(), ids);
  ids.insert(ids.end(), around.after.begin(), around.after.end());
  std::string line;
  for (const std::int32_t id : ids) {
    line += fmt::format("{}{}", line.empty() ? "" : " ", id);
    if (line.size() > (1 << 16)) {
      fmt::print("{} ", line);
      line.clear();
    }
  }
  fmt::print("{}\n", line);
}

void write_text(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  for (std::string word; std::cin >> word;) {
    std::size_t used = 0;
    try {
      ids.push_back(std::stoi(word, &used));
    } catch (const std::exception&) {
      used = 0;
    }
    if (used != word.size())
      fail_user("data tokens --decode: '{}' is not a token id; give numbers", word);
  }
  const std::string text = tokenizer.decode(ids);
  std::cout.write(text.data(), static_cast<std::streamsize>(text.size()));
  std::cout.flush();
}

void add_tokens(Parser& data, Command& chosen) {
  Parser& command =
      data.add_command("tokens", "text on standard input, token ids on standard output");
  struct Arguments {
    std::string tokenizer;
    bool decodes = false;
    bool adds_special = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  command
      .add_option("--tokenizer", arguments->tokenizer,
                  "bytes, a tokenizer.json, a SentencePiece .model, or a folder that has one")
      .required();
  command.add_flag("--decode", arguments->decodes, "token ids in, text out");
  command.add_flag("--add-special", arguments->adds_special,
                   "put what the tokenizer.json's template has around a text around it");
  command.when_chosen([arguments, &chosen] {
    chosen = [arguments] {
      const auto tokenizer = make_tokenizer(arguments->tokenizer);
      if (arguments->decodes) {
        write_text(*tokenizer);
      } else {
        write_ids(*tokenizer, arguments->adds_special);
      }
      return 0;
    };
  });
}

}  // namespace

void add_data(Parser& app, Command& chosen) {
  Parser& command = app.add_command("data", "datasets and tokenizers");
  command.require_command();
  add_pack(command, chosen);
  add_info(command, chosen);
  add_tokens(command, chosen);
  add_dataset_commands(command, chosen);
  add_data_show(command, chosen);
}

}  // namespace orthant
