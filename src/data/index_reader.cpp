#include "data/index_reader.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "data/index_layout.h"

namespace orthant {
namespace {

constexpr std::string_view kLegacyMagic("TNTIDX\0\0", 8);
constexpr std::size_t kArrayValues = 1 << 16;
constexpr std::int64_t kTokenBytes = 1 << 20;  // whole tokens of any type

template <class T>
T value_at(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

TokenType read_type(const std::string& prefix, std::uint8_t code) {
  if (code == 0 || code > 8 || code == 6 || code == 7) {
    fail_user(
        "{}.idx has dtype code {}; tokens are u8 (1), i8 (2), i16 (3), i32 (4), i64 (5) or u16 "
        "(8)",
        prefix, code);
  }
  return static_cast<TokenType>(code);
}

IndexHeader read_header(const std::string& prefix, const File& file) {
  std::vector<std::byte> begin(static_cast<std::size_t>(std::min(file.size(), kIndexHeaderBytes)));
  file.read(begin, 0);
  return parse_index_header(prefix, begin, file.size());
}

}  // namespace

IndexHeader parse_index_header(const std::string& prefix, std::span<const std::byte> begin,
                               std::int64_t file_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
  if (text.starts_with(kLegacyMagic)) {
    fail_user(
        "{}.idx is a legacy TNTIDX index (lazy or cached); pack the text again, or convert it "
        "with Megatron's tools to the mmap form",
        prefix);
  }
  if (!text.starts_with(kIndexMagic)) {
    fail_user("{}.idx does not begin with MMIDIDX; it is no indexed dataset, give another prefix",
              prefix);
  }
  if (file_bytes < kIndexHeaderBytes) {
    fail_user("{}.idx has {} bytes, its header alone has {}; the file is truncated", prefix,
              file_bytes, kIndexHeaderBytes);
  }
  const auto version = value_at<std::uint64_t>(begin, 9);
  if (version != 1) {
    fail_user("{}.idx has version {}; version 1 is supported, pack the text again", prefix,
              version);
  }
  IndexHeader header;
  header.type = read_type(prefix, value_at<std::uint8_t>(begin, 17));
  const auto sequences = value_at<std::uint64_t>(begin, 18);
  const auto boundaries = value_at<std::uint64_t>(begin, 26);
  // Compared without products, which could overflow.
  const auto rest = static_cast<std::uint64_t>(file_bytes - kIndexHeaderBytes);
  const bool can_fit = sequences <= rest / kSequenceBytes &&
                       boundaries <= (rest - sequences * kSequenceBytes) / kBoundaryBytes;
  const std::uint64_t used =
      can_fit ? sequences * kSequenceBytes + boundaries * kBoundaryBytes : rest + 1;
  if (used != rest && (!can_fit || rest - used != sequences)) {
    fail_user(
        "{}.idx has {} bytes, which does not fit {} sequences and {} document boundaries; the "
        "file is truncated or damaged",
        prefix, file_bytes, sequences, boundaries);
  }
  if (boundaries == 0) {
    fail_user("{}.idx has no document boundaries; the file is damaged, pack the text again",
              prefix);
  }
  header.has_modes = used != rest;
  header.num_sequences = static_cast<std::int64_t>(sequences);
  header.num_boundaries = static_cast<std::int64_t>(boundaries);
  return header;
}

template <class T>
T IndexArray<T>::next() {
  if (at_ == buffer_.size()) {
    ORTHANT_CHECK(rest_ > 0, "index: an array is read beyond its end");
    buffer_.resize(std::min(kArrayValues, static_cast<std::size_t>(rest_)));
    file_.read(std::as_writable_bytes(std::span(buffer_)), offset_);
    offset_ += static_cast<std::int64_t>(buffer_.size() * sizeof(T));
    rest_ -= static_cast<std::int64_t>(buffer_.size());
    at_ = 0;
  }
  return buffer_[at_++];
}

DatasetStream::DatasetStream(const std::string& prefix)
    : prefix_(prefix),
      index_(prefix + ".idx", File::Mode::kRead),
      tokens_(prefix + ".bin", File::Mode::kRead),
      header_(read_header(prefix, index_)),
      lengths_(index_, length_offset(0), header_.num_sequences),
      pointers_(index_, pointer_offset(header_.num_sequences, 0), header_.num_sequences),
      boundaries_(index_, boundary_offset(header_.num_sequences, 0), header_.num_boundaries),
      token_bytes_(tokens_.size()) {
  const std::int64_t first = boundaries_.next();
  if (first != 0) {
    fail_user("{}.idx: the first document begins at sequence {}; the file is damaged", prefix_,
              first);
  }
}

std::int64_t DatasetStream::begin_sequence() {
  const std::int64_t length = lengths_.next();
  const std::int64_t pointer = pointers_.next();
  const std::int64_t bytes = length * size_of(header_.type);
  if (length < 0) {
    fail_user("{}.idx: sequence {} has length {}; the file is damaged, pack the text again",
              prefix_, sequence_, length);
  }
  if (pointer != at_byte_) {
    fail_user(
        "{}.idx: sequence {} begins at byte {} of the .bin, the lengths before it say {}; the file "
        "is damaged (an overflow while merging does this), merge or pack it again",
        prefix_, sequence_, pointer, at_byte_);
  }
  if (bytes > token_bytes_ - at_byte_) {
    fail_user(
        "{}.bin has {} bytes, sequence {} of its index ends at byte {}; the file is truncated, "
        "pack or copy it again",
        prefix_, token_bytes_, sequence_, at_byte_ + bytes);
  }
  ++sequence_;
  return bytes;
}

std::int64_t DatasetStream::sequences_of_next_document() {
  ORTHANT_CHECK(document_ < num_documents(), "dataset {}: document {} of {} is asked", prefix_,
                document_, num_documents());
  const std::int64_t end = boundaries_.next();
  if (end < sequence_ || end > header_.num_sequences) {
    fail_user(
        "{}.idx: document {} ends at sequence {} of {} and begins at {}; the file is damaged, pack "
        "the text again",
        prefix_, document_, end, header_.num_sequences, sequence_);
  }
  ++document_;
  return end - sequence_;
}

std::span<const std::byte> DatasetStream::read_some(std::int64_t most) {
  std::int64_t in_buffer = buffer_begin_ + static_cast<std::int64_t>(buffer_.size()) - at_byte_;
  if (in_buffer <= 0) {
    in_buffer = std::min(kTokenBytes, token_bytes_ - at_byte_);
    buffer_.resize(static_cast<std::size_t>(in_buffer));
    tokens_.read(buffer_, at_byte_);
    buffer_begin_ = at_byte_;
  }
  const auto offset = static_cast<std::size_t>(at_byte_ - buffer_begin_);
  const std::int64_t size = std::min(most, in_buffer);
  at_byte_ += size;
  return std::span(buffer_).subspan(offset, static_cast<std::size_t>(size));
}

void DatasetStream::next_document(const std::function<void(std::span<const std::byte>)>& on_tokens,
                                  const std::function<void()>& on_sequence_end) {
  for (std::int64_t rest = sequences_of_next_document(); rest > 0; --rest) {
    for (std::int64_t bytes = begin_sequence(); bytes > 0;) {
      const std::span<const std::byte> part = read_some(bytes);
      on_tokens(part);
      bytes -= static_cast<std::int64_t>(part.size());
    }
    on_sequence_end();
  }
}

void DatasetStream::skip_document() {
  for (std::int64_t rest = sequences_of_next_document(); rest > 0; --rest) {
    at_byte_ += begin_sequence();
  }
}

void DatasetStream::check_end() const {
  if (document_ != num_documents() || sequence_ != header_.num_sequences) {
    fail_user(
        "{}.idx: its {} documents have {} of {} sequences; the file is damaged, pack the text "
        "again",
        prefix_, document_, sequence_, header_.num_sequences);
  }
  if (at_byte_ != token_bytes_) {
    fail_user("{}.bin has {} bytes, its index says {}; one of them is of another dataset", prefix_,
              token_bytes_, at_byte_);
  }
}

}  // namespace orthant
