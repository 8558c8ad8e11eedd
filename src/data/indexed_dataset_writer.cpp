// Lengths and boundaries are written while tokens come; the index is made of them at the end.
#include "data/indexed_dataset_writer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/check.h"
#include "data/index_layout.h"

namespace orthant {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;
constexpr std::int64_t kBlockTokens = 1 << 18;
constexpr std::int64_t kMaxSequenceTokens = std::numeric_limits<std::int32_t>::max();

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

void rename_file(const std::string& from, const std::string& to) {
  std::error_code error;
  std::filesystem::rename(from, to, error);
  if (error) fail_run("cannot rename {} to {}: {}", from, to, error.message());
}

}  // namespace

IndexedDatasetWriter::Stream::Stream(const std::string& path, File::Mode mode)
    : path_(path),
      file_(path, mode),
      flushed_(file_.size()) {
  buffer_.reserve(kBufferBytes);
}

void IndexedDatasetWriter::Stream::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(),
                   bytes.begin() + static_cast<std::ptrdiff_t>(count));
    bytes = bytes.subspan(count);
    if (buffer_.size() == kBufferBytes) flush();
  }
}

void IndexedDatasetWriter::Stream::flush() {
  file_.write(buffer_, flushed_);
  flushed_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void IndexedDatasetWriter::Stream::read(std::span<std::byte> into, std::int64_t offset) {
  flush();
  file_.read(into, offset);
}

void IndexedDatasetWriter::Stream::truncate(std::int64_t bytes) {
  flush();
  if (flushed_ < bytes) {
    fail_user("{} has {} bytes, {} were written before; begin anew with --restart", path_, flushed_,
              bytes);
  }
  file_.resize(bytes);
  flushed_ = bytes;
}

void IndexedDatasetWriter::Stream::sync() {
  flush();
  file_.sync();
}

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, TokenType type)
    : prefix_(prefix),
      type_(type),
      tokens_(prefix + ".bin.partial", File::Mode::kCreate),
      lengths_(prefix + ".lengths.partial", File::Mode::kCreate),
      boundaries_(prefix + ".documents.partial", File::Mode::kCreate) {
  boundaries_.append(bytes_of(std::int64_t{0}));
}

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, TokenType type,
                                           const State& state)
    : prefix_(prefix),
      type_(type),
      state_(state),
      tokens_(prefix + ".bin.partial", File::Mode::kWrite),
      lengths_(prefix + ".lengths.partial", File::Mode::kWrite),
      boundaries_(prefix + ".documents.partial", File::Mode::kWrite),
      keeps_files_(true) {
  tokens_.truncate(state.num_tokens * size_of(type));
  lengths_.truncate(state.num_sequences * kLengthBytes);
  boundaries_.truncate((state.num_documents + 1) * static_cast<std::int64_t>(kBoundaryBytes));
}

IndexedDatasetWriter::~IndexedDatasetWriter() {
  if (keeps_files_) return;
  for (const char* ending : {".bin", ".lengths", ".documents", ".idx"}) {
    std::remove((prefix_ + ending + ".partial").c_str());
  }
}

TokenType IndexedDatasetWriter::type_for(std::int64_t vocab_size) {
  return vocab_size < 65500 ? TokenType::kU16 : TokenType::kI32;
}

void IndexedDatasetWriter::append(std::span<const std::int32_t> tokens) {
  if (type_ == TokenType::kI32) {
    append_raw(std::as_bytes(tokens));
    return;
  }
  ORTHANT_CHECK(type_ == TokenType::kU16, "dataset {}: tokens of type {} are copied, not appended",
                prefix_, name_of(type_));
  std::array<std::uint16_t, 4096> words;
  while (!tokens.empty()) {
    const auto part = tokens.first(std::min(tokens.size(), words.size()));
    std::copy(part.begin(), part.end(), words.begin());
    append_raw(std::as_bytes(std::span(words).first(part.size())));
    tokens = tokens.subspan(part.size());
  }
}

void IndexedDatasetWriter::append_raw(std::span<const std::byte> tokens) {
  const std::int64_t size = size_of(type_);
  while (!tokens.empty()) {
    const std::int64_t space = kMaxSequenceTokens - state_.open_tokens;
    const std::int64_t given = static_cast<std::int64_t>(tokens.size()) / size;
    const std::int64_t part = std::min(given, space);
    tokens_.append(tokens.first(static_cast<std::size_t>(part * size)));
    tokens = tokens.subspan(static_cast<std::size_t>(part * size));
    state_.open_tokens += part;
    state_.num_tokens += part;
    if (state_.open_tokens == kMaxSequenceTokens) end_sequence();  // lengths are i32
  }
}

void IndexedDatasetWriter::end_sequence() {
  if (state_.open_tokens == 0) return;
  lengths_.append(bytes_of(static_cast<std::int32_t>(state_.open_tokens)));
  state_.open_tokens = 0;
  ++state_.num_sequences;
}

void IndexedDatasetWriter::end_document() {
  end_sequence();
  boundaries_.append(bytes_of(state_.num_sequences));
  ++state_.num_documents;
}

template <class T>
T IndexedDatasetWriter::value_at(Stream& stream, std::int64_t index) {
  T value;
  stream.read(std::as_writable_bytes(std::span(&value, 1)),
              index * static_cast<std::int64_t>(sizeof(T)));
  return value;
}

std::int64_t IndexedDatasetWriter::length_of(std::int64_t sequence) {
  if (last_length_ >= 0 && sequence + 1 == state_.num_sequences) return last_length_;
  return value_at<std::int32_t>(lengths_, sequence);
}

void IndexedDatasetWriter::copy_range_to(std::int64_t first_token, std::int64_t count,
                                         IndexedDatasetWriter& to) {
  std::vector<std::byte> block;
  const std::int64_t size = size_of(type_);
  while (count > 0) {
    const std::int64_t part = std::min(count, kBlockTokens);
    block.resize(static_cast<std::size_t>(part * size));
    tokens_.read(block, first_token * size);
    to.append_raw(block);
    first_token += part;
    count -= part;
  }
}

void IndexedDatasetWriter::copy_documents_to(std::int64_t first_document,
                                             IndexedDatasetWriter& to) {
  ORTHANT_CHECK(state_.open_tokens == 0 && first_document <= state_.num_documents,
                "dataset {}: document {} of {} cannot begin the part that is copied", prefix_,
                first_document, state_.num_documents);
  std::int64_t sequence = value_at<std::int64_t>(boundaries_, first_document);
  std::int64_t token = state_.num_tokens;
  for (std::int64_t i = sequence; i < state_.num_sequences; ++i) {
    token -= length_of(i);
  }
  for (std::int64_t document = first_document; document < state_.num_documents; ++document) {
    const auto end = value_at<std::int64_t>(boundaries_, document + 1);
    for (; sequence < end; ++sequence) {
      const std::int64_t length = length_of(sequence);
      copy_range_to(token, length, to);
      token += length;
    }
    to.end_document();
  }
}

void IndexedDatasetWriter::copy_tokens_to(std::int64_t first_token, IndexedDatasetWriter& to) {
  ORTHANT_CHECK(state_.num_documents == 1 && first_token <= state_.num_tokens,
                "dataset {}: token {} of {} in {} documents cannot begin the part that is copied",
                prefix_, first_token, state_.num_tokens, state_.num_documents);
  copy_range_to(first_token, state_.num_tokens - first_token, to);
  to.end_document();
}

void IndexedDatasetWriter::keep_documents(std::int64_t count) {
  const auto sequences = value_at<std::int64_t>(boundaries_, count);
  for (std::int64_t i = sequences; i < state_.num_sequences; ++i) {
    state_.num_tokens -= length_of(i);
  }
  state_.num_documents = count;
  state_.num_sequences = sequences;
}

void IndexedDatasetWriter::keep_tokens(std::int64_t count) {
  std::int64_t sequences = 0;
  for (std::int64_t rest = count; rest > 0; ++sequences) {
    last_length_ = std::min<std::int64_t>(rest, length_of(sequences));
    rest -= last_length_;
  }
  state_.num_tokens = count;
  state_.num_sequences = sequences;
}

template <class T>
void IndexedDatasetWriter::copy_values(Stream& from, std::int64_t count, Stream& to) {
  std::vector<T> values;
  for (std::int64_t done = 0; done < count;) {
    values.resize(static_cast<std::size_t>(std::min(count - done, kBlockTokens)));
    from.read(std::as_writable_bytes(std::span(values)),
              done * static_cast<std::int64_t>(sizeof(T)));
    to.append(std::as_bytes(std::span(values)));
    done += static_cast<std::int64_t>(values.size());
  }
}

void IndexedDatasetWriter::write_header(Stream& index) const {
  std::array<std::byte, kIndexHeaderBytes> header;
  const std::uint64_t numbers[] = {1, static_cast<std::uint64_t>(state_.num_sequences),
                                   static_cast<std::uint64_t>(state_.num_documents + 1)};
  std::memcpy(header.data(), kIndexMagic.data(), kIndexMagic.size());
  std::memcpy(header.data() + 9, &numbers[0], 8);
  header[17] = static_cast<std::byte>(type_);
  std::memcpy(header.data() + 18, &numbers[1], 16);
  index.append(header);
}

void IndexedDatasetWriter::write_pointers(Stream& index) {
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> pointers;
  std::int64_t bytes = 0;
  for (std::int64_t done = 0; done < state_.num_sequences;) {
    lengths.resize(static_cast<std::size_t>(std::min(state_.num_sequences - done, kBlockTokens)));
    lengths_.read(std::as_writable_bytes(std::span(lengths)), done * kLengthBytes);
    pointers.clear();
    for (const std::int32_t length : lengths) {
      pointers.push_back(bytes);
      bytes += length * size_of(type_);
    }
    index.append(std::as_bytes(std::span(pointers)));
    done += static_cast<std::int64_t>(lengths.size());
  }
}

IndexedDatasetWriter::State IndexedDatasetWriter::sync() {
  tokens_.sync();
  lengths_.sync();
  boundaries_.sync();
  keeps_files_ = true;
  return state_;
}

IndexedDatasetWriter::State IndexedDatasetWriter::finish() {
  ORTHANT_CHECK(state_.open_tokens == 0, "dataset {}: a document is still open", prefix_);
  if (state_.is_whole) return state_;
  Stream index(prefix_ + ".idx.partial", File::Mode::kCreate);
  write_header(index);
  const bool is_cut = last_length_ >= 0;
  copy_values<std::int32_t>(lengths_, state_.num_sequences - (is_cut ? 1 : 0), index);
  if (is_cut) index.append(bytes_of(static_cast<std::int32_t>(last_length_)));
  write_pointers(index);
  if (is_cut) {
    index.append(bytes_of(std::int64_t{0}));
    index.append(bytes_of(state_.num_sequences));
  } else {
    copy_values<std::int64_t>(boundaries_, state_.num_documents + 1, index);
  }
  index.sync();
  tokens_.sync();
  state_.is_whole = true;
  return state_;
}

void IndexedDatasetWriter::commit() {
  finish();
  publish(prefix_, type_, state_);
  keeps_files_ = true;  // what is left has its name
}

// Each step is done or has been done before a kill.
void IndexedDatasetWriter::publish(const std::string& prefix, TokenType type, const State& state) {
  const std::string tokens = prefix + ".bin.partial";
  const std::string index = prefix + ".idx.partial";
  if (std::filesystem::exists(tokens)) {
    File file(tokens, File::Mode::kWrite);
    file.resize(state.num_tokens * size_of(type));
    file.sync();
    // An index never stands without its tokens: an old one goes first, the new one comes last.
    std::remove((prefix + ".idx").c_str());
    rename_file(tokens, prefix + ".bin");
  }
  if (std::filesystem::exists(index)) rename_file(index, prefix + ".idx");
  sync_folder(std::filesystem::path(prefix).parent_path().string());
  std::remove((prefix + ".lengths.partial").c_str());
  std::remove((prefix + ".documents.partial").c_str());
}

}  // namespace orthant
