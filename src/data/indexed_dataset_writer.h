// Writes Megatron's indexed dataset as a stream: memory does not grow with what is written, and a
// writer that was killed can be followed by one that goes on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/indexed_dataset.h"

namespace orthant {

// Writes PREFIX.bin.partial and the like; commit() renames them. A destructor without it removes
// them, unless they are to be kept.
class IndexedDatasetWriter {
 public:
  // What has been written. With it, files that a killed writer left are cut to that size.
  struct State {
    std::int64_t num_documents = 0;
    std::int64_t num_sequences = 0;
    std::int64_t num_tokens = 0;
    std::int64_t open_tokens = 0;  // of the sequence that is being written
    bool is_whole = false;         // finished: only names are missing
  };

  IndexedDatasetWriter(const std::string& prefix, TokenType type);
  IndexedDatasetWriter(const std::string& prefix, std::int64_t vocab_size)
      : IndexedDatasetWriter(prefix, type_for(vocab_size)) {}
  // Goes on from what a writer had when sync() gave `state`. A user error when the files of it are
  // not there.
  IndexedDatasetWriter(const std::string& prefix, TokenType type, const State& state);
  ~IndexedDatasetWriter();
  IndexedDatasetWriter(const IndexedDatasetWriter&) = delete;
  IndexedDatasetWriter& operator=(const IndexedDatasetWriter&) = delete;

  // u16 below a vocabulary of 65500, otherwise i32, as Megatron writes them.
  static TokenType type_for(std::int64_t vocab_size);

  void append(std::span<const std::int32_t> tokens);   // to the open document; they fit the type
  void append_raw(std::span<const std::byte> tokens);  // whole tokens in the type of the dataset
  void end_sequence();                                 // does nothing to an empty one
  void end_document();                                 // may be empty: it has no sequence then

  // Copies everything from a document on, or from a token of the only document on, to `to`.
  void copy_documents_to(std::int64_t first_document, IndexedDatasetWriter& to);
  void copy_tokens_to(std::int64_t first_token, IndexedDatasetWriter& to);
  // Forgets everything from there on; nothing is appended after it.
  void keep_documents(std::int64_t count);
  void keep_tokens(std::int64_t count);

  // Everything is on the disk, and stays there when the writer goes.
  State sync();

  // Writes the index, complete, beside the tokens. After it publish() is enough.
  State finish();
  // Gives the files of a finished writer their names, or goes on doing so.
  static void publish(const std::string& prefix, TokenType type, const State& state);
  // finish() and publish().
  void commit();

  std::int64_t num_documents() const { return state_.num_documents; }
  std::int64_t num_sequences() const { return state_.num_sequences; }
  std::int64_t num_tokens() const { return state_.num_tokens; }

 private:
  // A file that is written through a small buffer and read back at its end.
  class Stream {
   public:
    Stream(const std::string& path, File::Mode mode);
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

  void count(std::int64_t tokens);
  void copy_range_to(std::int64_t first_token, std::int64_t count, IndexedDatasetWriter& to);
  template <class T>
  T value_at(Stream& stream, std::int64_t index);
  template <class T>
  void copy_values(Stream& from, std::int64_t count, Stream& to);
  void write_header(Stream& index) const;
  void write_pointers(Stream& index);
  std::int64_t length_of(std::int64_t sequence);

  std::string prefix_;
  TokenType type_;
  State state_;
  Stream tokens_;                  // PREFIX.bin.partial
  Stream lengths_;                 // PREFIX.lengths.partial: i32, of the sequences
  Stream boundaries_;              // PREFIX.documents.partial: i64, as at the end of the index
  std::int64_t last_length_ = -1;  // of the last sequence, where keep_tokens has cut it
  bool keeps_files_ = false;
};

}  // namespace orthant
