// An indexed dataset as a stream: its index and its tokens are read in their order, and memory does
// not grow with them. What is read is checked; a damaged file is a user error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/indexed_dataset.h"

namespace orthant {

// What the header of PREFIX.idx says; its sizes fit the file.
struct IndexHeader {
  TokenType type = TokenType::kU16;
  bool has_modes = false;  // a multimodal file
  std::int64_t num_sequences = 0;
  std::int64_t num_boundaries = 0;  // documents + 1
};

// `begin`: the first bytes of PREFIX.idx, kIndexHeaderBytes or all that there are. `file_bytes`: of
// the whole file.
IndexHeader parse_index_header(const std::string& prefix, std::span<const std::byte> begin,
                               std::int64_t file_bytes);

// One array of the index, from its begin.
template <class T>
class IndexArray {
 public:
  IndexArray(const File& file, std::int64_t offset, std::int64_t count)
      : file_(file),
        offset_(offset),
        rest_(count) {}

  T next();

 private:
  const File& file_;
  std::int64_t offset_;
  std::int64_t rest_;  // not in the buffer yet
  std::vector<T> buffer_;
  std::size_t at_ = 0;
};

class DatasetStream {
 public:
  explicit DatasetStream(const std::string& prefix);
  ~DatasetStream() = default;
  DatasetStream(const DatasetStream&) = delete;
  DatasetStream& operator=(const DatasetStream&) = delete;

  const std::string& prefix() const { return prefix_; }
  const IndexHeader& header() const { return header_; }
  std::int64_t num_documents() const { return header_.num_boundaries - 1; }

  // The next document, tokens in the type of the dataset. Calls on_tokens for parts of its
  // sequences, and on_sequence_end behind each of them.
  void next_document(const std::function<void(std::span<const std::byte>)>& on_tokens,
                     const std::function<void()>& on_sequence_end);
  // Without reading its tokens.
  void skip_document();

  // After the last document: that nothing is missing, and nothing left over.
  void check_end() const;

 private:
  std::int64_t begin_sequence();                            // bytes of the next one
  std::span<const std::byte> read_some(std::int64_t most);  // not empty
  std::int64_t sequences_of_next_document();

  std::string prefix_;
  File index_;
  File tokens_;
  IndexHeader header_;
  IndexArray<std::int32_t> lengths_;
  IndexArray<std::int64_t> pointers_;
  IndexArray<std::int64_t> boundaries_;
  std::vector<std::byte> buffer_;  // of PREFIX.bin, from buffer_begin_
  std::int64_t buffer_begin_ = 0;
  std::int64_t token_bytes_ = 0;  // of PREFIX.bin
  std::int64_t at_byte_ = 0;      // in it
  std::int64_t sequence_ = 0;     // the next one
  std::int64_t document_ = 0;
};

}  // namespace orthant
