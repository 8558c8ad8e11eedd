// One function for each part; what a part may be is listed where it is refused.
#include "data/tokenizer_parts.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "data/regex_dialect.h"
#include "data/unicode.h"

namespace orthant {
namespace {

constexpr int kMostNested = 8;

// The parts of a Sequence, whose parts may be Sequences.
void flatten(const Field& field, const char* list, int depth, std::vector<Field>& parts) {
  if (field.at("type").value() != "Sequence") {
    parts.push_back(field);
    return;
  }
  if (depth == kMostNested) field.at("type").refuse("8 Sequences in one another");
  const Field inner = field.at(list);
  for (std::size_t i = 0; i < inner.size(); ++i) {
    flatten(inner.at(i), list, depth + 1, parts);
  }
}

std::vector<Field> parts_of(const Field& field, const char* list) {
  std::vector<Field> parts;
  if (!field.is_null()) flatten(field, list, 0, parts);
  return parts;
}

std::string literal_pattern(const Field& pattern) {
  const Field text = pattern.at("String");
  if (text.is_null()) pattern.refuse("{\"String\": ...}");
  std::string literal = text.text();
  if (literal.empty()) text.refuse("a text that is not empty");
  return literal;
}

Regex regex_of(const Field& pattern) {
  return {pcre2_pattern(pattern.text(), pattern.name()), pattern.name()};
}

NormalizerStep replacement(const Field& field) {
  NormalizerStep step;
  const Field regex = field.at("pattern").at("Regex");
  if (regex.is_null()) {
    step.kind = NormalizerStep::Kind::kReplace;
    step.pattern = literal_pattern(field.at("pattern"));
  } else {
    step.kind = NormalizerStep::Kind::kReplaceRegex;
    step.regex.emplace(regex_of(regex));
  }
  step.content = field.at("content").text();
  return step;
}

NormalizerStep normal_form(NormalForm::Kind kind) {
  NormalizerStep step;
  step.kind = NormalizerStep::Kind::kForm;
  step.form.emplace(kind);
  return step;
}

NormalizerStep normalizer_step(const Field& field) {
  const std::string type = field.at("type").text();
  NormalizerStep step;
  if (type == "Prepend") {
    step.content = field.at("prepend").text();
    return step;
  }
  if (type == "Replace") return replacement(field);
  if (type == "NFC") return normal_form(NormalForm::Kind::kNfc);
  if (type == "NFD") return normal_form(NormalForm::Kind::kNfd);
  if (type == "NFKC") return normal_form(NormalForm::Kind::kNfkc);
  if (type == "NFKD") return normal_form(NormalForm::Kind::kNfkd);
  if (type == "Lowercase") {
    step.kind = NormalizerStep::Kind::kLowercase;
    return step;
  }
  if (type != "Strip") {
    field.at("type").refuse("Sequence, Prepend, Replace, NFC, NFD, NFKC, NFKD, Lowercase, Strip");
  }
  step.kind = NormalizerStep::Kind::kStrip;
  step.strips_left = field.at("strip_left").flag(true);
  step.strips_right = field.at("strip_right").flag(true);
  return step;
}

Prepend read_prepend(const Field& field) {
  const bool may_prepend = field.at("add_prefix_space").flag(true);
  const Field scheme = field.at("prepend_scheme");
  if (scheme.is_null()) return may_prepend ? Prepend::kAlways : Prepend::kNever;
  const std::string name = scheme.text();
  if (name == "never") return Prepend::kNever;
  if (!may_prepend) scheme.refuse("never, since add_prefix_space is false");
  if (name == "always") return Prepend::kAlways;
  if (name == "first") return Prepend::kFirst;
  scheme.refuse("always, first, never");
}

std::string read_replacement(const Field& field) {
  std::string text = field.at("replacement").text_or(kMetaspace);
  const bool is_one =
      !text.empty() && static_cast<std::size_t>(decode_utf8(text.data()).length) == text.size();
  if (!is_one) field.at("replacement").refuse("one character");
  return text;
}

SplitBehavior read_behavior(const Field& field, std::string_view when_absent) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames = {
      {{"Removed", SplitBehavior::kRemoved},
       {"Isolated", SplitBehavior::kIsolated},
       {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
       {"MergedWithNext", SplitBehavior::kMergedWithNext},
       {"Contiguous", SplitBehavior::kContiguous}}};
  const std::string name = field.text_or(when_absent);
  for (const auto& [known, behavior] : kNames) {
    if (known == name) return behavior;
  }
  field.refuse("Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

// A pattern that we have by hand, when the step cuts a text to its matches. Those patterns match
// everywhere, so that nothing lies between matches.
bool is_known_pattern(const std::string& pattern, PieceStep& step) {
  const bool keeps_matches = step.inverts ? step.behavior == SplitBehavior::kRemoved
                                          : step.behavior == SplitBehavior::kIsolated;
  if (!keeps_matches) return false;
  step.kind = PieceStep::Kind::kLlama3;
  step.most_digits = pattern == kLlama3Pattern ? 3 : 1;
  if (pattern == kGpt2Pattern) step.kind = PieceStep::Kind::kGpt2;
  return pattern == kGpt2Pattern || pattern == kLlama3Pattern || pattern == kQwen2Pattern;
}

PieceStep read_split(const Field& field) {
  PieceStep step;
  step.behavior = read_behavior(field.at("behavior"), "");
  step.inverts = field.at("invert").flag(false);
  const Field pattern = field.at("pattern");
  const Field regex = pattern.at("Regex");
  if (regex.is_null()) {
    step.kind = PieceStep::Kind::kLiteral;
    step.literal = literal_pattern(pattern);
  } else if (!is_known_pattern(regex.text(), step)) {
    step.kind = PieceStep::Kind::kRegex;
    step.regex.emplace(regex_of(regex));
  }
  return step;
}

PieceStep read_metaspace(const Field& field) {
  PieceStep step;
  step.kind = PieceStep::Kind::kMetaspace;
  step.space = read_replacement(field);
  step.prepend = read_prepend(field);
  step.cuts = field.at("split").flag(true);
  return step;
}

void add_byte_level(const Field& field, std::vector<PieceStep>& steps) {
  if (field.at("add_prefix_space").flag(true)) {
    steps.emplace_back().kind = PieceStep::Kind::kPrefixSpace;
  }
  if (field.at("use_regex").flag(true)) steps.emplace_back().kind = PieceStep::Kind::kGpt2;
}

PieceStep piece_step(const Field& field) {
  const std::string type = field.at("type").text();
  PieceStep step;
  if (type == "Split") return read_split(field);
  if (type == "Metaspace") return read_metaspace(field);
  if (type == "Digits") {
    step.kind = PieceStep::Kind::kNumbers;
    const bool single = field.at("individual_digits").flag(false);
    step.behavior = single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    return step;
  }
  if (type != "Punctuation") {
    field.at("type").refuse("Sequence, Split, Digits, Punctuation, Metaspace, ByteLevel");
  }
  step.kind = PieceStep::Kind::kPunctuation;
  step.behavior = read_behavior(field.at("behavior"), "Isolated");
  return step;
}

// The ids that a template's piece stands for.
std::vector<std::int32_t> template_ids(const Field& special_tokens, const Field& piece) {
  std::vector<std::int32_t> ids;
  const Field list = special_tokens.at(piece.at("id").text()).at("ids");
  for (std::size_t i = 0; i < list.size(); ++i) {
    ids.push_back(list.at(i).id());
  }
  return ids;
}

TemplateIds read_template(const Field& field) {
  TemplateIds around;
  const Field pieces = field.at("single");
  int num_texts = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Field special = pieces.at(i).at("SpecialToken");
    if (!special.is_null()) {
      const std::vector<std::int32_t> ids = template_ids(field.at("special_tokens"), special);
      std::vector<std::int32_t>& side = num_texts == 0 ? around.before : around.after;
      side.insert(side.end(), ids.begin(), ids.end());
    } else if (pieces.at(i).at("Sequence").at("id").value() == "A") {
      ++num_texts;
    } else {
      pieces.at(i).refuse("SpecialToken, or Sequence with the id A");
    }
  }
  if (num_texts != 1) pieces.refuse("a list with the text, Sequence A, once in it");
  return around;
}

// ["<s>", 0]: the id.
std::int32_t named_id(const Field& field) {
  if (field.size() != 2) field.refuse("a token's text and its id");
  return field.at(std::size_t{1}).id();
}

}  // namespace

std::vector<NormalizerStep> read_normalizer(const Field& field) {
  std::vector<NormalizerStep> steps;
  for (const Field& part : parts_of(field, "normalizers")) {
    steps.push_back(normalizer_step(part));
  }
  return steps;
}

PreTokenizerSteps read_pre_tokenizer(const Field& field) {
  PreTokenizerSteps read;
  for (const Field& part : parts_of(field, "pretokenizers")) {
    if (read.alphabet == BpeAlphabet::kBytes) {
      part.at("type").refuse("nothing behind ByteLevel, which is the last of a Sequence");
    }
    if (part.at("type").value() == "ByteLevel") {
      add_byte_level(part, read.steps);
      read.alphabet = BpeAlphabet::kBytes;
    } else {
      read.steps.push_back(piece_step(part));
    }
  }
  return read;
}

TemplateIds read_post_processor(const Field& field) {
  TemplateIds around;
  for (const Field& part : parts_of(field, "processors")) {
    const std::string type = part.at("type").text();
    TemplateIds outer;
    if (type == "TemplateProcessing") {
      outer = read_template(part);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      outer = {{named_id(part.at("cls"))}, {named_id(part.at("sep"))}};
    } else if (type != "ByteLevel") {
      part.at("type").refuse(
          "Sequence, TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel");
    }
    around.before.insert(around.before.begin(), outer.before.begin(), outer.before.end());
    around.after.insert(around.after.end(), outer.after.begin(), outer.after.end());
  }
  return around;
}

void read_decoder(const Field& field, TokenTexts& texts, DecoderSpec& decoder) {
  if (field.is_null()) {
    decoder.joins_with_space = true;
    return;
  }
  bool is_fused = false;
  for (const Field& part : parts_of(field, "decoders")) {
    const std::string type = part.at("type").text();
    if (type == "ByteLevel") {
      texts.decode_byte_level();
    } else if (type == "Replace") {
      texts.replace(literal_pattern(part.at("pattern")), part.at("content").text());
    } else if (type == "ByteFallback") {
      texts.decode_byte_names();
    } else if (type == "Metaspace") {
      texts.decode_metaspace(read_replacement(part), read_prepend(part) != Prepend::kNever);
    } else if (type == "Fuse") {
      is_fused = true;
    } else if (type == "Strip" && is_fused) {
      const std::string content = part.at("content").text();
      if (content.size() != 1) part.at("content").refuse("one ASCII character");
      decoder.strip = content[0];
      decoder.strip_start = part.at("start").id();
      decoder.strip_stop = part.at("stop").id();
    } else {
      part.at("type").refuse("ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip after Fuse");
    }
  }
}

}  // namespace orthant
