// Tokenizer: text to token ids and back. Safe to use from several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

// What a tokenizer's template puts around a single text.
struct TemplateIds {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text`; none are added for its begin or end. Text that is not UTF-8 is a
  // user error, except for bytes.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& out) const = 0;

  // The text of `ids`, special tokens included. Bytes that are no UTF-8 stay as they are, so that
  // a part of a text can be decoded alone. An id outside the vocabulary is a user error.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  virtual std::int64_t vocab_size() const = 0;

  // Whether encode refuses text that is not UTF-8.
  virtual bool needs_utf8() const { return true; }

  // Of the file that it was read from; equal files give equal ids.
  virtual std::uint32_t fingerprint() const = 0;

  virtual TemplateIds around_text() const { return {}; }

  // What ends a document: by tokenizer_config.json's eos_token, the model's own, or a known name.
  virtual std::optional<std::int32_t> end_of_document() const = 0;

  // The largest c <= limit at which text may be cut: encode(text) == encode(text[:c]) followed by
  // encode(text[c:]). text.size() when no such place is known.
  virtual std::size_t safe_cut(std::string_view text, std::size_t limit) const = 0;
};

// `spec`: "bytes" (id = byte), a tokenizer.json, a SentencePiece .model, or a folder with one of
// them (tokenizer.json is preferred). What a file asks and we cannot do is refused by its name.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec);

}  // namespace orthant
