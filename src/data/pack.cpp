// The calling thread cuts the inputs into blocks and writes their tokens in order; others tokenize.
#include "data/pack.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "data/indexed_dataset.h"
#include "data/indexed_dataset_writer.h"
#include "data/input_files.h"
#include "data/ordered_workers.h"
#include "data/pack_block.h"
#include "data/pack_input.h"
#include "data/pack_progress.h"

namespace orthant {
namespace {

using Clock = std::chrono::steady_clock;

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

// What must be the same when a packing goes on. Not what is done with bad lines: so far there was
// none, or they were left out.
std::string job_of(const Tokenizer& tokenizer, const PackOptions& options,
                   const std::vector<InputFile>& files) {
  std::string text =
      fmt::format("{} {} {} {} {}", tokenizer.fingerprint(), options.json_key,
                  options.append_end_of_document, options.adds_special, options.valid_fraction);
  for (const InputFile& file : files) {
    text += fmt::format("\n{} {} {}", file.path, file.bytes, file.modified);
  }
  return fmt::format("{} files, {} bytes, {:08x}", files.size(), total_bytes(files), crc32c(text));
}

// PREFIX.bad-lines.txt, which is there when it has a line.
class BadLineList {
 public:
  BadLineList(const std::string& prefix, const PackProgress& progress)
      : path_(prefix + ".bad-lines.txt"),
        count_(progress.num_bad_lines) {
    std::error_code ignored;
    if (count_ == 0) {
      std::filesystem::remove(path_, ignored);
      return;
    }
    file_.emplace(path_, File::Mode::kWrite);
    file_->resize(progress.bad_lines_bytes);
  }

  void add(const std::string& path, const std::vector<BadLine>& lines) {
    std::string text;
    for (const BadLine& bad : lines) {
      text += fmt::format("{}, line {}: {}\n", path, bad.line, bad.why);
    }
    if (text.empty()) return;
    if (!file_.has_value()) file_.emplace(path_, File::Mode::kCreate);
    file_->append(text);
    count_ += static_cast<std::int64_t>(lines.size());
  }

  void sync(PackProgress& progress) {
    if (file_.has_value()) file_->sync();
    progress.num_bad_lines = count_;
    progress.bad_lines_bytes = file_.has_value() ? file_->size() : 0;
  }

 private:
  std::string path_;
  std::optional<File> file_;
  std::int64_t count_;
};

class Packing {
 public:
  Packing(const Tokenizer& tokenizer, const PackOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        found_(find_input_files(options.inputs)),
        block_tokenizer_(tokenizer, options),
        type_(IndexedDatasetWriter::type_for(tokenizer.vocab_size())) {
    progress_.job = job_of(tokenizer, options, found_.files);
  }

  PackResult run() {
    if (options_.restarts) remove_progress(options_.output);
    const std::optional<PackProgress> before = load_progress(options_.output, progress_.job);
    if (before.has_value()) progress_ = *before;
    if (!progress_.written.is_whole) write(before.has_value());
    IndexedDatasetWriter::publish(options_.output, type_, progress_.written);
    remove_progress(options_.output);
    return result();
  }

 private:
  void write(bool goes_on) {
    std::optional<IndexedDatasetWriter> writer;
    if (goes_on) {
      require_partial_files();
      writer.emplace(options_.output, type_, progress_.written);
    } else {
      writer.emplace(options_.output, type_);
    }
    BadLineList bad_lines(options_.output, progress_);
    try {
      write_blocks(*writer, bad_lines);
    } catch (const Error& error) {
      if (!has_saved_ && !goes_on) throw;
      throw Error(error.fault(),
                  fmt::format("{}; what was packed before is kept, and the same command goes on "
                              "from there",
                              error.what()));
    }
    if (options_.valid_fraction > 0) {
      if (has_saved_) save(*writer, bad_lines);
      hold_out(*writer);
    }
    progress_.written = writer->finish();
    bad_lines.sync(progress_);
    writer->sync();
    save_progress(options_.output, progress_);
  }

  void require_partial_files() const {
    for (const char* ending : {".bin.partial", ".lengths.partial", ".documents.partial"}) {
      if (std::filesystem::exists(options_.output + ending)) continue;
      fail_user("{}{} is missing, from which {} would go on; begin anew with --restart",
                options_.output, ending, progress_path(options_.output));
    }
  }

  void write_blocks(IndexedDatasetWriter& writer, BadLineList& bad_lines) {
    InputBlocks blocks(
        found_.files,
        [this](std::string_view text, std::size_t limit) {
          return tokenizer_.safe_cut(text, limit);
        },
        progress_.position);
    OrderedWorkers<InputBlock, PackedBlock> workers(
        [this](InputBlock& block) { return block_tokenizer_.run(block); }, options_.num_threads);
    const auto take = [&] {
      const auto [block, packed] = workers.take();
      write_block(packed, writer);
      bad_lines.add(block.path, packed.bad_lines);
      progress_.position = block.end;
      const std::chrono::duration<double> since_save = Clock::now() - last_save_;
      if (since_save.count() >= options_.seconds_between_saves) save(writer, bad_lines);
      if (options_.on_progress) options_.on_progress(block.bytes_read, total_bytes(found_.files));
    };
    const auto most = 2 * static_cast<std::size_t>(options_.num_threads) + 1;
    while (std::optional<InputBlock> block = blocks.next()) {
      workers.put(*std::move(block));
      if (workers.num_jobs() >= most) take();
    }
    while (workers.num_jobs() > 0) {
      take();
    }
  }

  static void write_block(const PackedBlock& block, IndexedDatasetWriter& writer) {
    const std::span<const std::int32_t> tokens(block.tokens);
    std::size_t begin = 0;
    for (const std::size_t end : block.document_ends) {
      writer.append(tokens.subspan(begin, end - begin));
      writer.end_document();
      begin = end;
    }
    writer.append(tokens.subspan(begin));
  }

  void save(IndexedDatasetWriter& writer, BadLineList& bad_lines) {
    progress_.written = writer.sync();
    bad_lines.sync(progress_);
    save_progress(options_.output, progress_);
    last_save_ = Clock::now();
    has_saved_ = true;
  }

  // Copies the last part to PREFIX-valid, then forgets it here.
  void hold_out(IndexedDatasetWriter& all) const {
    const auto share = [this](std::int64_t count) {
      const double exact = options_.valid_fraction * static_cast<double>(count);
      return std::max<std::int64_t>(1, count - std::max<std::int64_t>(1, std::llround(exact)));
    };
    IndexedDatasetWriter valid(options_.output + "-valid", type_);
    if (all.num_documents() > 1) {
      const std::int64_t kept = share(all.num_documents());
      all.copy_documents_to(kept, valid);
      valid.commit();
      all.keep_documents(kept);
    } else if (all.num_tokens() > 1) {
      const std::int64_t kept = share(all.num_tokens());
      all.copy_tokens_to(kept, valid);
      valid.commit();
      all.keep_tokens(kept);
    } else {
      fail_user(
          "data pack: the input has {} tokens, which leaves none for validation; give more text "
          "or no fraction",
          all.num_tokens());
    }
  }

  PackResult result() const {
    PackResult result;
    result.all = {progress_.written.num_documents, progress_.written.num_tokens,
                  total_bytes(found_.files)};
    result.num_bad_lines = progress_.num_bad_lines;
    result.num_files_left_out = found_.num_left_out;
    if (options_.valid_fraction > 0) {
      const IndexedDataset valid(options_.output + "-valid");
      result.valid = {valid.num_documents(), valid.num_tokens(), 0};
      // Of a single document both parts are documents.
      result.all.num_documents += result.valid.num_documents;
      result.all.num_tokens += result.valid.num_tokens;
    }
    return result;
  }

  const Tokenizer& tokenizer_;
  const PackOptions& options_;
  InputFiles found_;
  BlockTokenizer block_tokenizer_;
  TokenType type_;
  PackProgress progress_;
  Clock::time_point last_save_ = Clock::now();
  bool has_saved_ = false;
};

}  // namespace

PackResult pack(const Tokenizer& tokenizer, const PackOptions& options) {
  check_options(options);
  return Packing(tokenizer, options).run();
}

}  // namespace orthant
