// Megatron's indexed dataset: PREFIX.idx and PREFIX.bin, mapped. Everything about them is checked
// when they are opened.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

namespace orthant {

// The code byte of the file; codes of floats are not tokens.
enum class TokenType : std::uint8_t { kU8 = 1, kI8 = 2, kI16 = 3, kI32 = 4, kI64 = 5, kU16 = 8 };

std::int64_t size_of(TokenType type);
std::string_view name_of(TokenType type);

struct TokenRange {
  std::int64_t min = 0;
  std::int64_t max = 0;
};

// Safe to use from several threads at once.
class IndexedDataset {
 public:
  explicit IndexedDataset(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  TokenType token_type() const { return type_; }
  std::int64_t num_sequences() const { return num_sequences_; }
  std::int64_t num_documents() const { return num_boundaries_ - 1; }
  std::int64_t num_tokens() const { return num_tokens_; }
  bool has_modes() const { return has_modes_; }  // a multimodal file

  // The first token of a sequence in the stream of all of them; num_tokens() for `num_sequences()`.
  std::int64_t sequence_begin(std::int64_t sequence) const;
  std::int64_t sequence_length(std::int64_t sequence) const;
  // The first sequence of a document; num_sequences() for `num_documents()`.
  std::int64_t document_begin(std::int64_t document) const;
  std::int64_t document_length(std::int64_t document) const;  // tokens
  // The document that has a token of the stream.
  std::int64_t document_of(std::int64_t token) const;

  // Copies tokens of the stream that the sequences form one after another.
  void copy_tokens(std::int64_t first_token, std::span<std::int32_t> into) const;

  // Reads every token. {0, -1} when there is none.
  TokenRange token_range() const;
  std::int64_t max_token() const { return token_range().max; }

 private:
  void read_header();
  void check_sequences() const;
  void check_documents() const;
  template <class T>
  T index_value(std::int64_t offset) const;

  std::string prefix_;
  MappedFile index_;
  MappedFile tokens_;
  TokenType type_ = TokenType::kU16;
  bool has_modes_ = false;
  std::int64_t num_sequences_ = 0;
  std::int64_t num_boundaries_ = 0;  // documents + 1
  std::int64_t num_tokens_ = 0;
};

}  // namespace orthant
