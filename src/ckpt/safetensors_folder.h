// The weights of a Hugging Face folder: one model.safetensors, or several files and their index.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/safetensors.h"

namespace orthant {

// Opens and checks every file at once. The index decides: what a file holds beside it is not seen.
class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(const std::string& folder);

  struct Found {
    const SafetensorsFile* file = nullptr;
    const TensorEntry* entry = nullptr;

    std::span<const std::byte> data() const { return file->data(*entry); }
  };

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;  // sorted
  bool has(std::string_view name) const { return tensors_.contains(name); }
  Found find(std::string_view name) const;  // a user error with the nearest name if there is none

 private:
  void open_single(const std::string& file);
  void open_index(const std::string& index);

  std::string path_;
  std::map<std::string, SafetensorsFile> files_;  // by name; a node stays where it is
  std::map<std::string, Found, std::less<>> tensors_;
};

}  // namespace orthant
