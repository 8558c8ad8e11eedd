// One block of data pack's input to tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/pack.h"
#include "data/pack_input.h"

namespace orthant {

struct BadLine {
  std::int64_t line = 0;
  std::string why;
};

// Tokens of a block, where in them documents end, and the lines that were left out.
struct PackedBlock {
  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> document_ends;
  std::vector<BadLine> bad_lines;
};

// Safe to use from several threads at once.
class BlockTokenizer {
 public:
  // Both outlive this object.
  BlockTokenizer(const Tokenizer& tokenizer, const PackOptions& options);

  // A bad line is a user error or is left out, as the options say.
  PackedBlock run(InputBlock& block) const;

 private:
  void add_lines(const InputBlock& block, PackedBlock& packed) const;
  void add_text(InputBlock& block, PackedBlock& packed) const;
  void leave_out_bad_lines(InputBlock& block, PackedBlock& packed) const;
  void encode(const InputBlock& block, std::string_view text, std::int64_t line,
              PackedBlock& packed) const;
  void begin_document(PackedBlock& packed) const;
  void end_document(PackedBlock& packed) const;
  void report(const InputBlock& block, std::int64_t line, const std::string& why,
              PackedBlock& packed) const;

  const Tokenizer& tokenizer_;
  const PackOptions& options_;
  TemplateIds around_;
  std::optional<std::int32_t> end_;
};

}  // namespace orthant
