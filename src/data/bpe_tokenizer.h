// The tokenizer that a tokenizer.json describes.
#pragma once

#include <string>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe_model.h"
#include "data/pre_tokenizer.h"
#include "data/scratch_pool.h"
#include "data/tokenizer.h"
#include "data/tokenizer_file.h"

namespace orthant {

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(TokenizerFile file);

  void encode(std::string_view text, std::vector<std::int32_t>& out) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::int64_t vocab_size() const override { return file_.vocab_size; }
  std::uint32_t fingerprint() const override { return file_.checksum; }
  TemplateIds around_text() const override { return file_.around_text; }
  std::optional<std::int32_t> end_of_document() const override { return file_.end_of_document; }
  std::size_t safe_cut(std::string_view text, std::size_t limit) const override;

 private:
  struct Scratch {
    NormalizerScratch normalizer;
    PieceScratch pieces;
    BpeScratch bpe;
  };

  void encode_part(std::string_view part, bool is_first, Scratch& scratch,
                   std::vector<std::int32_t>& out) const;

  TokenizerFile file_;
  CharClasses classes_;
  AddedTokens raw_tokens_;         // looked for in the text as it is
  AddedTokens normalized_tokens_;  // looked for in the normalized text
  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  bool can_cut_ = false;
  mutable ScratchPool<Scratch> pool_;
};

}  // namespace orthant
