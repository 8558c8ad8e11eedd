// Reads MMIDIDX. The arrays of the index are not aligned: every value is read with memcpy.
#include "data/indexed_dataset.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "data/index_layout.h"
#include "data/index_reader.h"

namespace orthant {
namespace {

std::string index_path(const std::string& prefix) {
  if (prefix.ends_with(".idx") || prefix.ends_with(".bin")) {
    fail_user("dataset {}: give the prefix without the ending: {}", prefix,
              prefix.substr(0, prefix.size() - 4));
  }
  return prefix + ".idx";
}

// Calls f with a value of the C++ type of the tokens.
template <class F>
auto with_type(TokenType type, F&& f) {
  switch (type) {
    case TokenType::kU8: return f(std::uint8_t{});
    case TokenType::kI8: return f(std::int8_t{});
    case TokenType::kI16: return f(std::int16_t{});
    case TokenType::kI32: return f(std::int32_t{});
    case TokenType::kI64: return f(std::int64_t{});
    case TokenType::kU16: break;
  }
  return f(std::uint16_t{});
}

}  // namespace

std::int64_t size_of(TokenType type) {
  return with_type(type, [](auto zero) { return static_cast<std::int64_t>(sizeof(zero)); });
}

std::string_view name_of(TokenType type) {
  switch (type) {
    case TokenType::kU8: return "u8";
    case TokenType::kI8: return "i8";
    case TokenType::kI16: return "i16";
    case TokenType::kI32: return "i32";
    case TokenType::kI64: return "i64";
    case TokenType::kU16: break;
  }
  return "u16";
}

IndexedDataset::IndexedDataset(const std::string& prefix)
    : prefix_(prefix),
      index_(index_path(prefix)),
      tokens_(prefix + ".bin") {
  read_header();
  check_sequences();
  check_documents();
  const auto bin_bytes = static_cast<std::int64_t>(tokens_.bytes().size());
  const std::int64_t all_bytes =
      num_sequences_ == 0
          ? 0
          : index_value<std::int64_t>(pointer_offset(num_sequences_, num_sequences_ - 1)) +
                sequence_length(num_sequences_ - 1) * size_of(type_);
  num_tokens_ = all_bytes / size_of(type_);
  if (bin_bytes < all_bytes) {
    fail_user(
        "{}.bin has {} bytes, its index needs {}; the file is truncated, pack or copy it again",
        prefix_, bin_bytes, all_bytes);
  }
}

template <class T>
T IndexedDataset::index_value(std::int64_t offset) const {
  T value;
  std::memcpy(&value, index_.bytes().data() + offset, sizeof(value));
  return value;
}

void IndexedDataset::read_header() {
  const std::size_t begin =
      std::min(index_.bytes().size(), static_cast<std::size_t>(kIndexHeaderBytes));
  const IndexHeader header = parse_index_header(prefix_, index_.bytes().first(begin),
                                                static_cast<std::int64_t>(index_.bytes().size()));
  type_ = header.type;
  has_modes_ = header.has_modes;
  num_sequences_ = header.num_sequences;
  num_boundaries_ = header.num_boundaries;
}

void IndexedDataset::check_sequences() const {
  const auto token_bytes = static_cast<std::uint64_t>(size_of(type_));
  std::uint64_t expected = 0;
  for (std::int64_t i = 0; i < num_sequences_; ++i) {
    const std::int64_t length = sequence_length(i);
    if (length < 0) {
      fail_user("{}.idx: sequence {} has length {}; the file is damaged, pack the text again",
                prefix_, i, length);
    }
    const auto pointer = index_value<std::uint64_t>(pointer_offset(num_sequences_, i));
    if (pointer != expected) {
      fail_user(
          "{}.idx: sequence {} begins at byte {} of the .bin, the lengths before it say {}; the "
          "file is damaged (an overflow while merging does this), merge or pack it again",
          prefix_, i, static_cast<std::int64_t>(pointer), expected);
    }
    expected +=
        static_cast<std::uint64_t>(length) * token_bytes;  // < 2^31 sequences' worth of 2^34
    if (expected > std::uint64_t{1} << 62) {
      fail_user("{}.idx: the sequences up to {} have more than 2^62 bytes; the file is damaged",
                prefix_, i);
    }
  }
}

void IndexedDataset::check_documents() const {
  std::int64_t previous = 0;
  for (std::int64_t i = 0; i < num_boundaries_; ++i) {
    const std::int64_t boundary = document_begin(i);
    const bool is_right =
        i == 0 ? boundary == 0 : boundary >= previous && boundary <= num_sequences_;
    if (!is_right) {
      fail_user(
          "{}.idx: document boundary {} is {} after {}, of {} sequences; the file is damaged, "
          "pack the text again",
          prefix_, i, boundary, previous, num_sequences_);
    }
    previous = boundary;
  }
  if (previous != num_sequences_) {
    fail_user(
        "{}.idx: the last document ends at sequence {} of {}; the file is damaged, pack the "
        "text again",
        prefix_, previous, num_sequences_);
  }
}

std::int64_t IndexedDataset::sequence_begin(std::int64_t sequence) const {
  if (sequence == num_sequences_) return num_tokens_;
  return index_value<std::int64_t>(pointer_offset(num_sequences_, sequence)) / size_of(type_);
}

std::int64_t IndexedDataset::sequence_length(std::int64_t sequence) const {
  return index_value<std::int32_t>(length_offset(sequence));
}

std::int64_t IndexedDataset::document_begin(std::int64_t document) const {
  return index_value<std::int64_t>(boundary_offset(num_sequences_, document));
}

std::int64_t IndexedDataset::document_length(std::int64_t document) const {
  return sequence_begin(document_begin(document + 1)) - sequence_begin(document_begin(document));
}

std::int64_t IndexedDataset::document_of(std::int64_t token) const {
  ORTHANT_CHECK(token >= 0 && token < num_tokens_, "dataset {}: token {} of {}", prefix_, token,
                num_tokens_);
  std::int64_t document = 0;  // begins at or before the token, and `end` after it
  for (std::int64_t end = num_documents(); end - document > 1;) {
    const std::int64_t middle = document + (end - document) / 2;
    (sequence_begin(document_begin(middle)) <= token ? document : end) = middle;
  }
  return document;
}

void IndexedDataset::copy_tokens(std::int64_t first_token, std::span<std::int32_t> into) const {
  const auto count = static_cast<std::int64_t>(into.size());
  ORTHANT_CHECK(first_token >= 0 && count <= num_tokens_ && first_token <= num_tokens_ - count,
                "dataset {}: tokens {} to {} of {} were asked", prefix_, first_token,
                first_token + count - 1, num_tokens_);
  const std::byte* from = tokens_.bytes().data() + first_token * size_of(type_);
  with_type(type_, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, std::int32_t>) {
      if (!into.empty()) std::memcpy(into.data(), from, into.size_bytes());
    } else {
      for (std::size_t i = 0; i < into.size(); ++i) {
        T value;
        std::memcpy(&value, from + i * sizeof(T), sizeof(T));
        into[i] = static_cast<std::int32_t>(std::int64_t{value});
      }
    }
  });
}

TokenRange IndexedDataset::token_range() const {
  if (num_tokens_ == 0) return {0, -1};
  return with_type(type_, [this](auto zero) {
    using T = decltype(zero);
    constexpr std::int64_t kBlock = 4096;  // in aligned memory, where the compiler uses vectors
    T block[kBlock];
    T min = std::numeric_limits<T>::max();
    T max = std::numeric_limits<T>::min();
    for (std::int64_t done = 0; done < num_tokens_; done += kBlock) {
      const std::int64_t count = std::min(kBlock, num_tokens_ - done);
      std::memcpy(block, tokens_.bytes().data() + done * static_cast<std::int64_t>(sizeof(T)),
                  static_cast<std::size_t>(count) * sizeof(T));
      std::fill(block + count, block + kBlock, block[0]);
      for (std::int64_t i = 0; i < kBlock; ++i) {
        min = std::min(min, block[i]);
        max = std::max(max, block[i]);
      }
    }
    return TokenRange{static_cast<std::int64_t>(min), static_cast<std::int64_t>(max)};
  });
}

}  // namespace orthant
