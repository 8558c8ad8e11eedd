// Reads tokenizer.json. Every field that changes ids is read or refused; the rest is ignored:
// post_processor (it adds special tokens), truncation and padding (they concern batches).
#include "data/tokenizer_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "data/token_texts.h"
#include "data/unicode.h"

namespace orthant {
namespace {

// A value of the file and the path that leads to it.
class Field {
 public:
  Field(const Json& value, std::string name) : value_(&value), name_(std::move(name)) {}

  const Json& value() const { return *value_; }
  const std::string& name() const { return name_; }
  bool is_null() const { return value_->is_null(); }

  Field at(const std::string& key) const {
    static const Json kNull;
    const auto found = value_->is_object() ? value_->find(key) : value_->end();
    return {value_->is_object() && found != value_->end() ? *found : kNull, name_ + "." + key};
  }
  Field at(std::size_t i) const { return {(*value_)[i], fmt::format("{}[{}]", name_, i)}; }

  std::size_t size() const {
    if (!value_->is_array()) refuse("a list");
    return value_->size();
  }
  std::string text() const {
    if (!value_->is_string()) refuse("a text");
    return value_->get<std::string>();
  }
  bool flag(bool when_absent) const {
    if (is_null()) return when_absent;
    if (!value_->is_boolean()) refuse("true or false");
    return value_->get<bool>();
  }
  std::int32_t id() const {
    const std::int64_t number = value_->is_number_integer() ? value_->get<std::int64_t>() : -1;
    if (number < 0 || number >= 0x7fffffff) refuse("an id from 0 to 2147483646");
    return static_cast<std::int32_t>(number);
  }
  [[noreturn]] void refuse(std::string_view supported) const {
    std::string found = value_->dump(-1, ' ', false, Json::error_handler_t::replace);
    if (found.size() > 80) found = found.substr(0, 77) + "...";
    fail_user("{} is {}; supported: {}", name_, found, supported);
  }

 private:
  const Json* value_;
  std::string name_;
};

std::string literal_pattern(const Field& pattern) {
  const Field text = pattern.at("String");
  if (text.is_null()) pattern.refuse("{\"String\": ...}");
  std::string literal = text.text();
  if (literal.empty()) text.refuse("a text that is not empty");
  return literal;
}

void read_normalizer(const Field& field, std::vector<NormalizerStep>& steps) {
  if (field.is_null()) return;
  const std::string type = field.at("type").text();
  if (type == "Sequence") {
    const Field parts = field.at("normalizers");
    for (std::size_t i = 0; i < parts.size(); ++i) {
      read_normalizer(parts.at(i), steps);
    }
  } else if (type == "Prepend") {
    steps.push_back({NormalizerStep::Kind::kPrepend, "", field.at("prepend").text()});
  } else if (type == "Replace") {
    steps.push_back({NormalizerStep::Kind::kReplace, literal_pattern(field.at("pattern")),
                     field.at("content").text()});
  } else {
    field.at("type").refuse("Sequence, Prepend, Replace");
  }
}

Prepend read_prepend(const Field& field) {
  const Field scheme = field.at("prepend_scheme");
  if (scheme.is_null()) {
    return field.at("add_prefix_space").flag(true) ? Prepend::kAlways : Prepend::kNever;
  }
  const std::string name = scheme.text();
  if (name == "always") return Prepend::kAlways;
  if (name == "first") return Prepend::kFirst;
  if (name == "never") return Prepend::kNever;
  scheme.refuse("always, first, never");
}

std::string read_replacement(const Field& field) {
  const Field replacement = field.at("replacement");
  return replacement.is_null() ? std::string(kMetaspace) : replacement.text();
}

PieceStep regex_step(const std::string& pattern, const Field& field) {
  PieceStep step;
  if (pattern == kGpt2Pattern) return step;
  step.kind = PieceStep::Kind::kRegex;
  step.regex.emplace(pcre2_pattern(pattern, field.name()), field.name());
  return step;
}

PieceStep read_split(const Field& field) {
  const Field behavior = field.at("behavior");
  if (behavior.value() != "Isolated") behavior.refuse("\"Isolated\"");
  if (field.at("invert").flag(false)) field.at("invert").refuse("false");
  const Field pattern = field.at("pattern");
  if (!pattern.at("Regex").is_null()) {
    return regex_step(pattern.at("Regex").text(), pattern.at("Regex"));
  }
  const std::string literal = literal_pattern(pattern);
  if (literal.find("\\E") != std::string::npos) pattern.at("String").refuse("a text without \\E");
  PieceStep step;
  step.kind = PieceStep::Kind::kRegex;
  step.regex.emplace("\\Q" + literal + "\\E", pattern.name());
  return step;
}

// Appends the steps of one pre-tokenizer; true when it was ByteLevel.
bool read_simple_pre_tokenizer(const Field& field, std::vector<PieceStep>& steps) {
  const std::string type = field.at("type").text();
  if (type == "ByteLevel") {
    if (field.at("add_prefix_space").flag(true)) {
      steps.emplace_back().kind = PieceStep::Kind::kPrefixSpace;
    }
    if (field.at("use_regex").flag(true)) steps.emplace_back().kind = PieceStep::Kind::kGpt2;
    return true;
  }
  if (type == "Split") {
    steps.push_back(read_split(field));
  } else if (type == "Digits") {
    const bool single = field.at("individual_digits").flag(false);
    steps.push_back(regex_step(single ? "\\p{N}" : "\\p{N}+", field));
  } else {
    field.at("type").refuse("Sequence of Split, Digits, ByteLevel; ByteLevel; Metaspace");
  }
  return false;
}

BpeAlphabet read_pre_tokenizer(const Field& field, std::vector<PieceStep>& steps) {
  if (field.is_null()) return BpeAlphabet::kCodePoints;
  const std::string type = field.at("type").text();
  if (type == "Metaspace") {
    PieceStep& step = steps.emplace_back();
    step.kind = PieceStep::Kind::kMetaspace;
    step.space = read_replacement(field);
    step.prepend = read_prepend(field);
    step.cuts = field.at("split").flag(true);
    return BpeAlphabet::kCodePoints;
  }
  if (type != "Sequence") {
    return read_simple_pre_tokenizer(field, steps) ? BpeAlphabet::kBytes : BpeAlphabet::kCodePoints;
  }
  const Field parts = field.at("pretokenizers");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (read_simple_pre_tokenizer(parts.at(i), steps)) {
      if (i + 1 < parts.size()) parts.at(i).refuse("ByteLevel as the last of a Sequence");
      return BpeAlphabet::kBytes;
    }
  }
  return BpeAlphabet::kCodePoints;
}

void refuse_unless_empty(const Field& field) {
  if (!field.is_null() && field.value() != "") field.refuse("null");
}

// The ids of one merge, written "a b" or ["a", "b"].
Merge read_merge(const Field& field, std::size_t rank, const TokenTexts& texts) {
  std::array<std::string, 2> parts;
  if (field.value().is_array()) {
    if (field.size() != 2) field.refuse("two token texts");
    parts = {field.at(std::size_t{0}).text(), field.at(std::size_t{1}).text()};
  } else {
    const std::string both = field.text();
    const std::size_t space = both.find(' ');
    if (space == std::string::npos) field.refuse("two token texts with a blank between them");
    parts = {both.substr(0, space), both.substr(space + 1)};
  }
  const Merge merge = {texts.id_of(parts[0]), texts.id_of(parts[1]),
                       texts.id_of(parts[0] + parts[1]), static_cast<std::int32_t>(rank)};
  if (merge.left < 0 || merge.right < 0 || merge.merged < 0) {
    field.refuse("merges whose parts and result are in model.vocab");
  }
  return merge;
}

void read_model(const Field& field, TokenizerFile& file, TokenTexts& texts) {
  if (!field.at("type").is_null() && field.at("type").value() != "BPE") {
    field.at("type").refuse("\"BPE\"");
  }
  const Field vocab = field.at("vocab");
  if (!vocab.value().is_object()) vocab.refuse("an object of token texts and ids, as BPE has it");
  const Field dropout = field.at("dropout");
  if (!dropout.is_null() && dropout.value() != 0.0)
    dropout.refuse("null, since ids must be certain");
  refuse_unless_empty(field.at("continuing_subword_prefix"));
  refuse_unless_empty(field.at("end_of_word_suffix"));

  BpeSpec& model = file.model;
  for (const auto& [text, id] : vocab.value().items()) {
    texts.add(text, Field(id, vocab.name() + "['" + text + "']").id());
  }
  for (const auto& [text, id] : texts.ids()) {
    std::string bytes = text;
    // A text outside the byte alphabet is never found in a piece.
    if (model.alphabet == BpeAlphabet::kBytes && !byte_level_bytes(text, bytes)) bytes.clear();
    model.vocab.push_back({bytes, id});
  }
  const Field merges = field.at("merges");
  model.merges.reserve(merges.size());
  for (std::size_t i = 0; i < merges.value().size(); ++i) {
    model.merges.push_back(read_merge(merges.at(i), i, texts));
  }
  model.fuse_unknown = field.at("fuse_unk").flag(false);
  model.ignore_merges = field.at("ignore_merges").flag(false);
  const Field unknown = field.at("unk_token");
  if (!unknown.is_null()) {
    model.unknown_id = texts.id_of(unknown.text());
    if (model.unknown_id < 0) unknown.refuse("a token of model.vocab");
  }
  model.byte_ids.fill(-1);
  if (!field.at("byte_fallback").flag(false)) return;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    model.byte_ids[byte] = texts.id_of(fmt::format("<0x{:02X}>", byte));
  }
}

void read_added_tokens(const Field& field, TokenizerFile& file, TokenTexts& texts) {
  if (field.is_null()) return;
  for (std::size_t i = 0; i < field.size(); ++i) {
    const Field token = field.at(i);
    AddedToken added;
    added.content = token.at("content").text();
    added.id = token.at("id").id();
    added.single_word = token.at("single_word").flag(false);
    added.lstrip = token.at("lstrip").flag(false);
    added.rstrip = token.at("rstrip").flag(false);
    added.normalized = token.at("normalized").flag(!token.at("special").flag(false));
    if (added.content.empty()) continue;
    const std::int32_t known = texts.id_of(added.content);
    if (known >= 0 && known != added.id) {
      token.at("id").refuse(fmt::format("{}, the id of the same text in model.vocab", known));
    }
    texts.add(added.content, added.id);
    file.added.push_back(std::move(added));
  }
}

std::vector<Field> decoder_parts(const Field& field) {
  if (field.at("type").value() != "Sequence") return {field};
  std::vector<Field> parts;
  const Field list = field.at("decoders");
  for (std::size_t i = 0; i < list.size(); ++i) {
    parts.push_back(list.at(i));
  }
  return parts;
}

void read_decoder(const Field& field, TokenTexts& texts, DecoderSpec& decoder) {
  if (field.is_null()) {
    decoder.joins_with_space = true;
    return;
  }
  bool is_fused = false;
  for (const Field& part : decoder_parts(field)) {
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

std::optional<std::int32_t> find_end_of_document(const std::string& path, const TokenTexts& texts) {
  std::vector<std::string> names = {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"};
  const std::string beside =
      (std::filesystem::path(path).parent_path() / "tokenizer_config.json").string();
  if (std::filesystem::exists(beside)) {
    const Json config = Json::parse(read_text_file(beside), nullptr, false);
    if (config.is_discarded()) fail_user("{} is not JSON; mend or remove it", beside);
    const Field token = Field(config, beside).at("eos_token");
    if (!token.is_null()) {
      names = {token.value().is_object() ? token.at("content").text() : token.text()};
    }
  }
  for (const std::string& name : names) {
    if (texts.id_of(name) >= 0) return texts.id_of(name);
  }
  return std::nullopt;
}

}  // namespace

TokenizerFile read_tokenizer_file(const std::string& path) {
  const Json json = Json::parse(read_text_file(path), nullptr, false);
  if (json.is_discarded() || !json.is_object() || !json.contains("model")) {
    fail_user(
        "tokenizer {}: this is not a tokenizer.json (no JSON object with 'model'); give "
        "another file",
        path);
  }
  const Field root(json, path + ": ");
  const auto part = [&](const char* key) {
    return Field(root.at(key).value(), path + ": " + key);
  };
  TokenizerFile file;
  file.path = path;
  read_normalizer(part("normalizer"), file.normalizer);
  file.model.alphabet = read_pre_tokenizer(part("pre_tokenizer"), file.pre_tokenizer);
  TokenTexts texts;
  read_model(part("model"), file, texts);
  read_added_tokens(part("added_tokens"), file, texts);
  file.vocab_size = texts.max_id() + 1;
  file.end_of_document = find_end_of_document(path, texts);
  texts.start_decoding();
  read_decoder(part("decoder"), texts, file.decoder);
  texts.finish_decoding(file.decoder);
  return file;
}

}  // namespace orthant
