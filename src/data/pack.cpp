// One thread cuts the inputs into blocks, others tokenize them, the first writes them in order.
#include "data/pack.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "data/indexed_dataset_writer.h"
#include "data/pack_input.h"

namespace orthant {
namespace {

// Tokens of a block and where in it documents end.
struct PackedBlock {
  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> document_ends;
};

class BlockTokenizer {
 public:
  BlockTokenizer(const Tokenizer& tokenizer, const PackOptions& options)
      : tokenizer_(tokenizer),
        options_(options) {
    if (!options.append_end_of_document) return;
    end_ = tokenizer.end_of_document();
    if (!end_.has_value()) {
      fail_user(
          "data pack: the tokenizer has no end-of-document token to append; leave the option "
          "out");
    }
  }

  PackedBlock run(const InputBlock& block) const {
    PackedBlock packed;
    packed.tokens.reserve(block.text.size() / 3);
    if (block.kind == InputKind::kLines) {
      add_lines(block, packed);
    } else {
      encode(block, block.text, 0, packed);
      if (block.ends_document) end_document(packed);
    }
    return packed;
  }

 private:
  void encode(const InputBlock& block, std::string_view text, std::int64_t line,
              PackedBlock& packed) const {
    try {
      tokenizer_.encode(text, packed.tokens);
    } catch (const Error& error) {
      const std::string place =
          line > 0 ? fmt::format("line {}", line) : fmt::format("text from byte {}", block.offset);
      throw Error(error.fault(), fmt::format("{}, {}: {}", block.path, place, error.what()));
    }
  }

  void end_document(PackedBlock& packed) const {
    if (end_.has_value()) packed.tokens.push_back(*end_);
    packed.document_ends.push_back(packed.tokens.size());
  }

  void add_lines(const InputBlock& block, PackedBlock& packed) const {
    std::int64_t line = block.first_line;
    for (std::size_t at = 0; at < block.text.size(); ++line) {
      const std::size_t end = std::min(block.text.find('\n', at), block.text.size());
      const std::string_view row = block.text.substr(at, end - at);
      at = end + 1;
      if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      encode(block, text_of(block, row, line), line, packed);
      end_document(packed);
    }
  }

  std::string text_of(const InputBlock& block, std::string_view row, std::int64_t line) const {
    Json json;
    try {
      json = Json::parse(row);
    } catch (const Json::exception& error) {
      fail_user("{}, line {}: this is not JSON ({}); every line must be one object", block.path,
                line, error.what());
    }
    const bool has_key = json.is_object() && json.contains(options_.json_key);
    if (!has_key || !json[options_.json_key].is_string()) {
      fail_user(
          "{}, line {}: there is no text under the key '{}'; give the key that holds the text",
          block.path, line, options_.json_key);
    }
    return std::move(json[options_.json_key].get_ref<std::string&>());
  }

  const Tokenizer& tokenizer_;
  const PackOptions& options_;
  std::optional<std::int32_t> end_;
};

// Threads that tokenize blocks. Results come back in the order in which blocks were put in.
class Workers {
 public:
  Workers(const BlockTokenizer& tokenizer, int num_threads) : tokenizer_(tokenizer) {
    for (int i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this] { run(); });
    }
  }
  ~Workers() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void put(const InputBlock& block) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::make_unique<Job>(Job{block, {}, nullptr, false}));
      waiting_.push_back(jobs_.back().get());
    }
    changed_.notify_all();
  }

  // The oldest block's tokens; what failed in it is thrown.
  PackedBlock take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return jobs_.front()->is_done; });
    const std::unique_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    if (job->failure != nullptr) std::rethrow_exception(job->failure);
    return std::move(job->packed);
  }

  std::size_t num_jobs() const { return jobs_.size(); }

 private:
  struct Job {
    InputBlock block;
    PackedBlock packed;
    std::exception_ptr failure;
    bool is_done;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_stopping_ || !waiting_.empty(); });
      if (is_stopping_) return;
      Job& job = *waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      try {
        job.packed = tokenizer_.run(job.block);
      } catch (...) {
        job.failure = std::current_exception();
      }
      lock.lock();
      job.is_done = true;
      changed_.notify_all();
    }
  }

  const BlockTokenizer& tokenizer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>>
      jobs_;  // all that were put and not taken; only the owner changes it
  std::deque<Job*> waiting_;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

void write_block(const PackedBlock& block, IndexedDatasetWriter& writer) {
  const std::span<const std::int32_t> tokens(block.tokens);
  std::size_t begin = 0;
  for (const std::size_t end : block.document_ends) {
    writer.append(tokens.subspan(begin, end - begin));
    writer.end_document();
    begin = end;
  }
  writer.append(tokens.subspan(begin));
}

void check_options(const PackOptions& options) {
  if (options.inputs.empty()) fail_user("data pack: no input is given; give a .txt or .jsonl file");
  if (options.output.empty()) fail_user("data pack: no --output is given; give a prefix");
  if (options.num_threads < 1) {
    fail_user("data pack: {} threads are asked; use at least 1", options.num_threads);
  }
  if (!(options.valid_fraction >= 0 && options.valid_fraction < 1)) {
    fail_user("data pack: the fraction for validation is {}; it must be at least 0 and below 1",
              options.valid_fraction);
  }
}

// Moves the last part of `all` to `valid`.
void hold_out(double fraction, IndexedDatasetWriter& all, IndexedDatasetWriter& valid) {
  const auto share = [fraction](std::int64_t count) {
    return std::max<std::int64_t>(1, std::llround(fraction * static_cast<double>(count)));
  };
  if (all.num_documents() > 1) {
    all.move_documents(std::max<std::int64_t>(1, all.num_documents() - share(all.num_documents())),
                       valid);
  } else if (all.num_tokens() > 1) {
    all.move_tokens(std::max<std::int64_t>(1, all.num_tokens() - share(all.num_tokens())), valid);
  } else {
    fail_user(
        "data pack: the input has {} tokens, which leaves none for validation; give more text "
        "or no fraction",
        all.num_tokens());
  }
}

}  // namespace

PackResult pack(const Tokenizer& tokenizer, const PackOptions& options) {
  check_options(options);
  const BlockTokenizer block_tokenizer(tokenizer, options);
  InputBlocks blocks(options.inputs, tokenizer);
  IndexedDatasetWriter writer(options.output, tokenizer.vocab_size());
  {
    // Blocks are views of mapped inputs, which live as long as `blocks`.
    Workers workers(block_tokenizer, options.num_threads);
    const auto most = static_cast<std::size_t>(2 * options.num_threads + 1);
    while (const std::optional<InputBlock> block = blocks.next()) {
      workers.put(*block);
      if (workers.num_jobs() >= most) write_block(workers.take(), writer);
    }
    while (workers.num_jobs() > 0) {
      write_block(workers.take(), writer);
    }
  }
  PackResult result;
  result.all = {writer.num_documents(), writer.num_tokens(), blocks.num_bytes()};
  if (options.valid_fraction > 0) {
    IndexedDatasetWriter valid(options.output + "-valid", tokenizer.vocab_size());
    hold_out(options.valid_fraction, writer, valid);
    result.valid = {valid.num_documents(), valid.num_tokens(), 0};
    valid.commit();
  }
  writer.commit();
  return result;
}

}  // namespace orthant
