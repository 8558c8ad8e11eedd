// Added tokens, normalizer, pre-tokenizer, model: in the order in which Hugging Face applies them.
#include "data/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace orthant {
namespace {

enum class MatchedIn { kRawText, kNormalizedText };

std::vector<AddedToken> tokens_matched_in(const TokenizerFile& file, MatchedIn where) {
  std::vector<AddedToken> chosen;
  NormalizerScratch scratch;
  for (const AddedToken& token : file.added) {
    if (token.normalized != (where == MatchedIn::kNormalizedText)) continue;
    chosen.push_back(token);
    if (token.normalized) {
      chosen.back().content = std::string(normalize(file.normalizer, token.content, scratch));
      if (chosen.back().content.empty()) chosen.pop_back();
    }
  }
  std::stable_partition(chosen.begin(), chosen.end(),
                        [](const AddedToken& token) { return token.special; });
  return chosen;
}

// The patterns that we have by hand end a piece at every blank or newline after a letter, whatever
// is around, and no normal form joins anything there; an added token must not reach over it.
bool can_cut_at_words(const TokenizerFile& file) {
  const bool is_plain =
      file.pre_tokenizer.size() == 1 &&
      (file.pre_tokenizer[0].kind == PieceStep::Kind::kGpt2 ||
       file.pre_tokenizer[0].kind == PieceStep::Kind::kLlama3) &&
      std::all_of(file.normalizer.begin(), file.normalizer.end(), [](const NormalizerStep& step) {
        return step.kind == NormalizerStep::Kind::kForm;
      });
  const auto may_reach_over = [&file](const AddedToken& token) {
    const bool may_change = token.normalized && !file.normalizer.empty() &&
                            std::any_of(token.content.begin(), token.content.end(),
                                        [](char c) { return static_cast<signed char>(c) < 0; });
    return token.lstrip || token.rstrip || token.single_word || may_change ||
           token.content.find_first_of(" \n") != std::string::npos;
  };
  return is_plain && std::none_of(file.added.begin(), file.added.end(), may_reach_over);
}

}  // namespace

BpeTokenizer::BpeTokenizer(TokenizerFile file)
    : file_(std::move(file)),
      raw_tokens_(tokens_matched_in(file_, MatchedIn::kRawText)),
      normalized_tokens_(tokens_matched_in(file_, MatchedIn::kNormalizedText)),
      pre_tokenizer_(classes_, file_.pre_tokenizer),
      model_(file_.model),
      can_cut_(can_cut_at_words(file_)) {
  file_.model = {};
}

void BpeTokenizer::encode(std::string_view text, std::vector<std::int32_t>& out) const {
  const std::size_t invalid = find_invalid_utf8(text);
  if (invalid != std::string_view::npos) {
    fail_user("tokenizer {}: the text is not UTF-8 at byte {}; convert it", file_.path, invalid);
  }
  const ScratchPool<Scratch>::Lease lease(pool_);
  Scratch& scratch = *lease;
  raw_tokens_.split(
      classes_, text,
      [&](std::string_view part) { encode_part(part, part.data() == text.data(), scratch, out); },
      [&](std::int32_t id) { out.push_back(id); });
}

void BpeTokenizer::encode_part(std::string_view part, bool is_first, Scratch& scratch,
                               std::vector<std::int32_t>& out) const {
  const std::string_view normalized = normalize(file_.normalizer, part, scratch.normalizer);
  normalized_tokens_.split(
      classes_, normalized,
      [&](std::string_view rest) {
        pre_tokenizer_.run(rest, is_first && rest.data() == normalized.data(), scratch.pieces,
                           [&](std::string_view piece) { model_.encode(piece, scratch.bpe, out); });
      },
      [&](std::int32_t id) { out.push_back(id); });
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  const DecoderSpec& decoder = file_.decoder;
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(ids[i]);
    if (ids[i] < 0 || id >= decoder.texts.size() || !decoder.is_known[id]) {
      fail_user("tokenizer {}: id {} is not in its vocabulary, which ends at {}", file_.path,
                ids[i], file_.vocab_size - 1);
    }
    if (i > 0 && decoder.joins_with_space) text += ' ';
    text += i == 0 && !decoder.first_texts.empty() ? decoder.first_texts[id] : decoder.texts[id];
  }
  std::size_t begin = 0;
  std::size_t end = text.size();
  for (int i = 0; i < decoder.strip_start && begin < end && text[begin] == decoder.strip; ++i) {
    ++begin;
  }
  for (int i = 0; i < decoder.strip_stop && begin < end && text[end - 1] == decoder.strip; ++i) {
    --end;
  }
  return text.substr(begin, end - begin);
}

std::size_t BpeTokenizer::safe_cut(std::string_view text, std::size_t limit) const {
  if (!can_cut_ || limit >= text.size()) return text.size();
  return cut_behind_letter(text, limit);
}

}  // namespace orthant
