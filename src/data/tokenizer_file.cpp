// Reads tokenizer.json. Every field that changes ids is read or refused; the rest is ignored:
// truncation and padding, which concern batches.
#include "data/tokenizer_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/json.h"
#include "data/json_field.h"
#include "data/token_texts.h"
#include "data/tokenizer_parts.h"

namespace orthant {
namespace {

void refuse_unless_empty(const Field& field) {
  if (!field.is_null() && field.value() != Json(std::string())) field.refuse("null");
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
  if (model.alphabet == BpeAlphabet::kBytes) {
    field.at("byte_fallback").refuse("false, since ByteLevel has every byte");
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    model.byte_ids[byte] = texts.id_of(fmt::format("<0x{:02X}>", byte));
  }
}

// Hugging Face gives a token that is not in the vocabulary the next free id, whatever the file
// says.
std::int64_t next_id(const TokenizerFile& file, std::int64_t vocab_size) {
  std::int64_t next = vocab_size;
  for (const AddedToken& token : file.added) {
    next = std::max<std::int64_t>(next, token.id + 1);
  }
  return next;
}

void read_added_tokens(const Field& field, TokenizerFile& file, TokenTexts& texts) {
  if (field.is_null()) return;
  const auto vocab_size = static_cast<std::int64_t>(texts.ids().size());
  for (std::size_t i = 0; i < field.size(); ++i) {
    const Field token = field.at(i);
    AddedToken added;
    added.content = token.at("content").text();
    added.id = token.at("id").id();
    added.single_word = token.at("single_word").flag(false);
    added.lstrip = token.at("lstrip").flag(false);
    added.rstrip = token.at("rstrip").flag(false);
    added.special = token.at("special").flag(false);
    added.normalized = token.at("normalized").flag(!added.special);
    if (added.content.empty()) continue;
    const std::int32_t known = texts.id_of(added.content);
    if (known >= 0 && known != added.id) {
      token.at("id").refuse(fmt::format("{}, the id of the same text before it", known));
    }
    if (known < 0 && added.id != next_id(file, vocab_size)) {
      token.at("id").refuse(fmt::format("{}, the next free id", next_id(file, vocab_size)));
    }
    texts.add(added.content, added.id);
    file.added.push_back(std::move(added));
  }
}

// Metaspace's "first" means pieces that begin at the first character of the text before it was
// normalized, of which there can be several where a normalizer makes many characters of one.
void refuse_first_of_many(const Field& field, const TokenizerFile& file) {
  if (file.normalizer.empty()) return;
  const auto is_first = [](const PieceStep& step) {
    return step.kind == PieceStep::Kind::kMetaspace && step.prepend == Prepend::kFirst;
  };
  const auto first = std::find_if(file.pre_tokenizer.begin(), file.pre_tokenizer.end(), is_first);
  const bool has_normalized = std::any_of(file.added.begin(), file.added.end(),
                                          [](const AddedToken& token) { return token.normalized; });
  if (first == file.pre_tokenizer.end()) return;
  if (first != file.pre_tokenizer.begin() || has_normalized) {
    field.refuse("no Metaspace with the prepend_scheme first behind a normalizer and other cuts");
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
  const std::string content = read_text_file(path);
  const Json json = Json::parse(content, nullptr, false);
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
  file.checksum = crc32c(content);
  file.normalizer = read_normalizer(part("normalizer"));
  PreTokenizerSteps pieces = read_pre_tokenizer(part("pre_tokenizer"));
  file.pre_tokenizer = std::move(pieces.steps);
  file.model.alphabet = pieces.alphabet;
  file.around_text = read_post_processor(part("post_processor"));
  TokenTexts texts;
  read_model(part("model"), file, texts);
  read_added_tokens(part("added_tokens"), file, texts);
  refuse_first_of_many(part("pre_tokenizer"), file);
  file.vocab_size = texts.max_id() + 1;
  file.end_of_document = find_end_of_document(path, texts);
  texts.start_decoding();
  NormalizerScratch scratch;
  for (const AddedToken& token : file.added) {
    // Hugging Face writes such a token as it looks for it.
    if (token.normalized) {
      texts.set(token.id, std::string(normalize(file.normalizer, token.content, scratch)));
    }
  }
  read_decoder(part("decoder"), texts, file.decoder);
  texts.finish_decoding(file.decoder);
  return file;
}

}  // namespace orthant
