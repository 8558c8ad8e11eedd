#include "data/pack_block.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "data/json_lines.h"
#include "data/unicode.h"

namespace orthant {
namespace {

constexpr std::string_view kNotUtf8 = "this is not UTF-8";

}  // namespace

BlockTokenizer::BlockTokenizer(const Tokenizer& tokenizer, const PackOptions& options)
    : tokenizer_(tokenizer),
      options_(options) {
  if (options.adds_special) around_ = tokenizer.around_text();
  if (!options.append_end_of_document) return;
  end_ = tokenizer.end_of_document();
  if (!end_.has_value()) {
    fail_user(
        "data pack: the tokenizer has no end-of-document token to append; leave the option out");
  }
}

PackedBlock BlockTokenizer::run(InputBlock& block) const {
  PackedBlock packed;
  packed.tokens.reserve(block.text.size() / 3);
  if (block.kind == InputKind::kLines) {
    add_lines(block, packed);
  } else {
    add_text(block, packed);
  }
  block.text = {};
  return packed;
}

void BlockTokenizer::add_lines(const InputBlock& block, PackedBlock& packed) const {
  read_json_lines(
      block.text, options_.json_key, block.first_line,
      [&](std::string_view text, std::int64_t line) {
        begin_document(packed);
        encode(block, text, line, packed);
        end_document(packed);
      },
      [&](const std::string& why, std::int64_t line) { report(block, line, why, packed); });
}

void BlockTokenizer::add_text(InputBlock& block, PackedBlock& packed) const {
  if (tokenizer_.needs_utf8() && find_invalid_utf8(block.text) != std::string_view::npos) {
    leave_out_bad_lines(block, packed);
  }
  if (block.begins_document) begin_document(packed);
  encode(block, block.text, block.first_line, packed);
  if (block.ends_document) end_document(packed);
}

void BlockTokenizer::leave_out_bad_lines(InputBlock& block, PackedBlock& packed) const {
  std::string kept;
  const std::string_view text = block.text;
  std::int64_t line = block.first_line;
  for (std::size_t at = 0; at < text.size(); ++line) {
    const std::size_t newline = text.find('\n', at);
    const std::size_t end = newline == std::string_view::npos ? text.size() : newline + 1;
    const std::string_view row = text.substr(at, end - at);
    at = end;
    if (find_invalid_utf8(row) == std::string_view::npos) {
      kept += row;
    } else {
      report(block, line, std::string(kNotUtf8), packed);
    }
  }
  block.text = std::move(kept);
}

void BlockTokenizer::encode(const InputBlock& block, std::string_view text, std::int64_t line,
                            PackedBlock& packed) const {
  try {
    tokenizer_.encode(text, packed.tokens);
  } catch (const Error& error) {
    throw Error(error.fault(), fmt::format("{}, from line {}: {}", block.path, line, error.what()));
  }
}

void BlockTokenizer::begin_document(PackedBlock& packed) const {
  packed.tokens.insert(packed.tokens.end(), around_.before.begin(), around_.before.end());
}

void BlockTokenizer::end_document(PackedBlock& packed) const {
  packed.tokens.insert(packed.tokens.end(), around_.after.begin(), around_.after.end());
  if (end_.has_value()) packed.tokens.push_back(*end_);
  packed.document_ends.push_back(packed.tokens.size());
}

void BlockTokenizer::report(const InputBlock& block, std::int64_t line, const std::string& why,
                            PackedBlock& packed) const {
  if (options_.bad_lines == BadLines::kStop) {
    fail_user("{}, line {}: {}; mend the line, or leave such lines out with --bad-lines skip",
              block.path, line, why);
  }
  packed.bad_lines.push_back({line, why});
}

}  // namespace orthant
