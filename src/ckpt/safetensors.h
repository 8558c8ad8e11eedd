// safetensors, Hugging Face's tensor file: a checked reader, and a layout from which several ranks
// write their parts of one file. A file that breaks a rule of the format is a user error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "mem/tensor.h"

namespace orthant {

using SafetensorsMetadata = std::map<std::string, std::string>;

struct TensorEntry {
  std::string name;
  std::string dtype;                // as in the file: "F32", "BF16", "F8_E4M3"
  std::vector<std::int64_t> shape;  // of any rank; empty for a scalar
  std::int64_t begin = 0;           // bytes, relative to the data buffer
  std::int64_t end = 0;

  std::int64_t bytes() const { return end - begin; }
  friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

// The element type of a tensor; empty for a type of the format that we do not compute with.
std::optional<DType> dtype_of(const TensorEntry& entry);
std::string_view safetensors_dtype(DType type);  // "F32"

// A whole file, mapped; checked when it is opened.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile() = default;
  SafetensorsFile(SafetensorsFile&&) noexcept = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = delete;
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return file_.path(); }
  const std::vector<TensorEntry>& entries() const { return entries_; }  // in the order of the data
  const TensorEntry* find(std::string_view name) const;                 // null when there is none
  const SafetensorsMetadata& metadata() const { return metadata_; }
  std::int64_t data_offset() const { return data_offset_; }  // of the data buffer in the file

  // May begin at any address: copy before reading elements wider than a byte.
  std::span<const std::byte> data(const TensorEntry& entry) const;

 private:
  MappedFile file_;
  SafetensorsMetadata metadata_;
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string_view, std::size_t> index_;  // views of names in entries_
  std::int64_t data_offset_ = 0;
};

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
};

enum class TensorOrder {
  kReference,  // Hugging Face's writer: by type, widest first, then by name
  kGiven,
};

// Where each tensor of a file lies: the same on every rank that gives the same tensors, so that
// each writes its own parts at the right offsets.
class SafetensorsLayout {
 public:
  explicit SafetensorsLayout(std::vector<TensorSpec> tensors,
                             const SafetensorsMetadata& metadata = {{"format", "pt"}},
                             TensorOrder order = TensorOrder::kReference);

  const std::string& header() const { return header_; }  // the file's first bytes, length included
  const std::vector<TensorEntry>& entries() const { return entries_; }  // in file order
  std::int64_t offset(std::string_view name) const;  // of the tensor's first byte in the file
  std::int64_t file_bytes() const { return file_bytes_; }

 private:
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string, std::int64_t> offsets_;
  std::string header_;
  std::int64_t file_bytes_ = 0;
};

// Makes the file at its full size with its header; the data is then written with File::write at
// layout.offset(name).
File create_safetensors(const std::string& path, const SafetensorsLayout& layout);

struct NamedTensor {
  std::string name;
  Tensor tensor;  // in host memory
};

// A whole file from one process: beside `path` first, then renamed, so that readers see all or
// nothing.
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const SafetensorsMetadata& metadata = {{"format", "pt"}});

}  // namespace orthant
