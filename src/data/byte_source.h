// A file as a stream of bytes, decompressed on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "data/input_files.h"

namespace orthant {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills `into` from its begin; fewer bytes than it has only at the end of the file. A compressed
  // file that is cut off or damaged is a user error.
  virtual std::size_t read(std::span<char> into) = 0;

  // Of the file, compressed where it is.
  virtual std::int64_t bytes_read() const = 0;
};

std::unique_ptr<ByteSource> open_source(const InputFile& file);

// Reads over `bytes` of the stream.
void skip(ByteSource& source, std::int64_t bytes);

}  // namespace orthant
