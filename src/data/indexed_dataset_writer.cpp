// Lengths are written while tokens come; pointers, which are their sums, when everything is known.
#include "data/indexed_dataset_writer.h"

#include <algorithm>
#include <cerrno>
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

IndexedDatasetWriter::Stream::Stream(const std::string& path)
    : path_(path),
      file_(path, File::Mode::kCreate) {
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
  file_.resize(bytes);
  flushed_ = bytes;
}

void IndexedDatasetWriter::Stream::sync() {
  flush();
  file_.sync();
}

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, std::int64_t vocab_size)
    : prefix_(prefix),
      vocab_size_(vocab_size),
      type_(vocab_size < 65500 ? TokenType::kU16 : TokenType::kI32),
      tokens_(prefix + ".bin.partial"),
      index_(prefix + ".idx.partial"),
      boundaries_(prefix + ".documents.partial") {
  const std::byte header[kIndexHeaderBytes] = {};
  index_.append(header);
  boundaries_.append(bytes_of(std::int64_t{0}));
}

IndexedDatasetWriter::~IndexedDatasetWriter() {
  std::remove(boundaries_.path().c_str());
  if (is_committed_) return;
  std::remove(tokens_.path().c_str());
  std::remove(index_.path().c_str());
}

void IndexedDatasetWriter::append(std::span<const std::int32_t> tokens) {
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= vocab_size_) {
      fail_run("dataset {}: token {} is outside the vocabulary of {}", prefix_, token, vocab_size_);
    }
  }
  while (!tokens.empty()) {
    const std::int64_t space = std::min(kMaxSequenceTokens - open_tokens_, kBlockTokens);
    const auto part = tokens.first(std::min(tokens.size(), static_cast<std::size_t>(space)));
    if (type_ == TokenType::kI32) {
      tokens_.append(std::as_bytes(part));
    } else {
      std::uint16_t words[4096];
      for (std::size_t done = 0; done < part.size();) {
        const std::size_t count = std::min(part.size() - done, std::size(words));
        std::copy_n(part.begin() + static_cast<std::ptrdiff_t>(done), count, words);
        tokens_.append(std::as_bytes(std::span(words, count)));
        done += count;
      }
    }
    tokens = tokens.subspan(part.size());
    open_tokens_ += static_cast<std::int64_t>(part.size());
    num_tokens_ += static_cast<std::int64_t>(part.size());
    if (open_tokens_ == kMaxSequenceTokens) end_sequence();  // lengths are i32
  }
}

void IndexedDatasetWriter::end_sequence() {
  if (open_tokens_ == 0) return;
  index_.append(bytes_of(static_cast<std::int32_t>(open_tokens_)));
  open_tokens_ = 0;
  ++num_sequences_;
}

void IndexedDatasetWriter::end_document() {
  end_sequence();
  boundaries_.append(bytes_of(num_sequences_));
  ++num_documents_;
}

template <class T>
T IndexedDatasetWriter::value_at(Stream& stream, std::int64_t offset) {
  T value;
  stream.read(std::as_writable_bytes(std::span(&value, 1)), offset);
  return value;
}

void IndexedDatasetWriter::copy_tokens_to(std::int64_t first_token, std::int64_t count,
                                          IndexedDatasetWriter& to) {
  std::vector<std::int32_t> block;
  std::vector<std::uint16_t> words;
  while (count > 0) {
    const auto size = static_cast<std::size_t>(std::min(count, kBlockTokens));
    block.resize(size);
    if (type_ == TokenType::kI32) {
      tokens_.read(std::as_writable_bytes(std::span(block)), first_token * size_of(type_));
    } else {
      words.resize(size);
      tokens_.read(std::as_writable_bytes(std::span(words)), first_token * size_of(type_));
      std::copy(words.begin(), words.end(), block.begin());
    }
    to.append(block);
    first_token += static_cast<std::int64_t>(size);
    count -= static_cast<std::int64_t>(size);
  }
}

void IndexedDatasetWriter::move_documents(std::int64_t first_document, IndexedDatasetWriter& to) {
  ORTHANT_CHECK(open_tokens_ == 0 && first_document <= num_documents_,
                "dataset {}: document {} of {} cannot begin the part that is moved", prefix_,
                first_document, num_documents_);
  const auto boundary = [this](std::int64_t document) {
    return value_at<std::int64_t>(boundaries_, document * size_of(TokenType::kI64));
  };
  const std::int64_t first_sequence = boundary(first_document);
  std::int64_t moved = 0;
  for (std::int64_t i = first_sequence; i < num_sequences_; ++i) {
    moved += value_at<std::int32_t>(index_, length_offset(i));
  }
  std::int64_t sequence = first_sequence;
  std::int64_t token = num_tokens_ - moved;
  for (std::int64_t document = first_document; document < num_documents_; ++document) {
    for (const std::int64_t end = boundary(document + 1); sequence < end; ++sequence) {
      const auto length = value_at<std::int32_t>(index_, length_offset(sequence));
      copy_tokens_to(token, length, to);
      token += length;
    }
    to.end_document();
  }
  num_documents_ = first_document;
  num_sequences_ = first_sequence;
  num_tokens_ -= moved;
  tokens_.truncate(num_tokens_ * size_of(type_));
  index_.truncate(length_offset(num_sequences_));
  boundaries_.truncate((num_documents_ + 1) * size_of(TokenType::kI64));
}

void IndexedDatasetWriter::move_tokens(std::int64_t first_token, IndexedDatasetWriter& to) {
  ORTHANT_CHECK(num_documents_ == 1 && first_token <= num_tokens_,
                "dataset {}: token {} of {} in {} documents cannot begin the part that is moved",
                prefix_, first_token, num_tokens_, num_documents_);
  copy_tokens_to(first_token, num_tokens_ - first_token, to);
  to.end_document();
  num_tokens_ = first_token;
  tokens_.truncate(num_tokens_ * size_of(type_));
  index_.truncate(kIndexHeaderBytes);
  boundaries_.truncate(size_of(TokenType::kI64));
  num_sequences_ = 0;
  num_documents_ = 0;
  for (std::int64_t rest = num_tokens_; rest > 0;) {
    open_tokens_ = std::min(rest, kMaxSequenceTokens);
    rest -= open_tokens_;
    end_sequence();
  }
  end_document();
}

void IndexedDatasetWriter::write_pointers() {
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> pointers;
  std::int64_t bytes = 0;
  for (std::int64_t done = 0; done < num_sequences_;) {
    const auto count = static_cast<std::size_t>(std::min(num_sequences_ - done, kBlockTokens));
    lengths.resize(count);
    index_.read(std::as_writable_bytes(std::span(lengths)), length_offset(done));
    pointers.clear();
    for (const std::int32_t length : lengths) {
      pointers.push_back(bytes);
      bytes += length * size_of(type_);
    }
    index_.append(std::as_bytes(std::span(pointers)));
    done += static_cast<std::int64_t>(count);
  }
}

void IndexedDatasetWriter::write_header() {
  File file(index_.path(), File::Mode::kWrite);
  std::byte header[kIndexHeaderBytes];
  const std::uint64_t numbers[] = {1, static_cast<std::uint64_t>(num_sequences_),
                                   static_cast<std::uint64_t>(num_documents_ + 1)};
  std::memcpy(header, kIndexMagic.data(), kIndexMagic.size());
  std::memcpy(header + 9, &numbers[0], 8);
  header[17] = static_cast<std::byte>(type_);
  std::memcpy(header + 18, &numbers[1], 16);
  file.write(header, 0);
}

void IndexedDatasetWriter::commit() {
  ORTHANT_CHECK(open_tokens_ == 0 && !is_committed_, "dataset {}: a document is still open",
                prefix_);
  write_pointers();
  std::vector<std::byte> block(kBufferBytes);
  for (std::int64_t done = 0; done < boundaries_.size();) {
    const std::int64_t count =
        std::min(boundaries_.size() - done, static_cast<std::int64_t>(block.size()));
    const auto part = std::span(block).first(static_cast<std::size_t>(count));
    boundaries_.read(part, done);
    index_.append(part);
    done += count;
  }
  index_.flush();
  write_header();
  index_.sync();
  tokens_.sync();
  // An index never stands without its tokens: an old one goes first, the new one comes last.
  std::remove((prefix_ + ".idx").c_str());
  rename_file(tokens_.path(), prefix_ + ".bin");
  rename_file(index_.path(), prefix_ + ".idx");
  sync_folder(std::filesystem::path(prefix_).parent_path().string());
  is_committed_ = true;
}

}  // namespace orthant
