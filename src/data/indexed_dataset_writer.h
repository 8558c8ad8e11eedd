// Writes Megatron's indexed dataset as a stream: memory does not grow with what is written.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/indexed_dataset.h"

namespace orthant {

// Writes PREFIX.bin.partial and the like; commit() renames them, a destructor without it removes
// them.
class IndexedDatasetWriter {
 public:
  // Tokens are u16 below a vocabulary of 65500, otherwise i32, as Megatron writes them.
  IndexedDatasetWriter(const std::string& prefix, std::int64_t vocab_size);
  ~IndexedDatasetWriter();
  IndexedDatasetWriter(const IndexedDatasetWriter&) = delete;
  IndexedDatasetWriter& operator=(const IndexedDatasetWriter&) = delete;

  void append(std::span<const std::int32_t> tokens);  // to the open document
  void end_document();                                // may be empty: it has no sequence then

  // Moves everything from a document on, or from a token of the only document on, to `to`.
  void move_documents(std::int64_t first_document, IndexedDatasetWriter& to);
  void move_tokens(std::int64_t first_token, IndexedDatasetWriter& to);

  void commit();

  std::int64_t num_documents() const { return num_documents_; }
  std::int64_t num_sequences() const { return num_sequences_; }
  std::int64_t num_tokens() const { return num_tokens_; }

 private:
  // A file that is written through a small buffer and read back at its end.
  class Stream {
   public:
    explicit Stream(const std::string& path);
    void append(std::span<const std::byte> bytes);
    void flush();
    void read(std::span<std::byte> into, std::int64_t offset);
    void truncate(std::int64_t bytes);
    void sync();
    std::int64_t size() const { return flushed_ + static_cast<std::int64_t>(buffer_.size()); }
    const std::string& path() const { return path_; }

   private:
    std::string path_;
    File file_;
    std::int64_t flushed_ = 0;
    std::vector<std::byte> buffer_;
  };

  void end_sequence();
  void copy_tokens_to(std::int64_t first_token, std::int64_t count, IndexedDatasetWriter& to);
  template <class T>
  T value_at(Stream& stream, std::int64_t offset);
  void write_header();
  void write_pointers();

  std::string prefix_;
  std::int64_t vocab_size_;
  TokenType type_;
  Stream tokens_;      // PREFIX.bin.partial
  Stream index_;       // PREFIX.idx.partial: the header's space, then lengths
  Stream boundaries_;  // PREFIX.documents.partial: becomes the end of the index
  std::int64_t num_documents_ = 0;
  std::int64_t num_sequences_ = 0;
  std::int64_t num_tokens_ = 0;
  std::int64_t open_tokens_ = 0;  // of the sequence that is being written
  bool is_committed_ = false;
};

}  // namespace orthant
