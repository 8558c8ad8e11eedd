#include "data/count_pieces.h"

#include <utility>

#include "base/check.h"
#include "data/input_files.h"
#include "data/json_lines.h"
#include "data/ordered_workers.h"
#include "data/pack_input.h"
#include "data/unicode.h"
#include "data/word_patterns.h"

namespace orthant {
namespace {

class Counter {
 public:
  explicit Counter(const PieceSource& source) : source_(source) {}

  PieceCounts run(const InputBlock& block) const {
    PieceCounts counts;
    if (block.kind == InputKind::kText) {
      add(block.text, block.path, block.first_line, counts);
      return counts;
    }
    read_json_lines(
        block.text, source_.json_key, block.first_line,
        [&](std::string_view text, std::int64_t line) { add(text, block.path, line, counts); },
        [&](const std::string& why, std::int64_t line) {
          fail_user("{}, line {}: {}", block.path, line, why);
        });
    return counts;
  }

 private:
  void add(std::string_view text, const std::string& path, std::int64_t line,
           PieceCounts& counts) const {
    if (find_invalid_utf8(text) != std::string_view::npos) {
      fail_user("{}, from line {}: the text is not UTF-8; convert it", path, line);
    }
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = match_end(text, at);
      ++counts[std::string(text.substr(at, end - at))];
      at = end;
    }
  }

  std::size_t match_end(std::string_view text, std::size_t at) const {
    if (source_.pattern == kGpt2Pattern) return gpt2_match_end(classes_, text, at);
    return llama3_match_end(classes_, text, at, source_.pattern == kLlama3Pattern ? 3 : 1);
  }

  const PieceSource& source_;
  CharClasses classes_;
};

}  // namespace

PieceCounts count_pieces(const PieceSource& source) {
  const Counter counter(source);
  const InputFiles found = find_input_files(source.inputs);
  InputBlocks blocks(found.files, cut_behind_letter, {});
  OrderedWorkers<InputBlock, PieceCounts> workers(
      [&counter](InputBlock& block) { return counter.run(block); }, source.num_threads);
  PieceCounts all;
  const auto take = [&] {
    const auto [block, counts] = workers.take();
    for (const auto& [piece, count] : counts) {
      all[piece] += count;
    }
  };
  const auto most = 2 * static_cast<std::size_t>(source.num_threads) + 1;
  while (std::optional<InputBlock> block = blocks.next()) {
    workers.put(*std::move(block));
    if (workers.num_jobs() >= most) take();
  }
  while (workers.num_jobs() > 0) {
    take();
  }
  return all;
}

}  // namespace orthant
