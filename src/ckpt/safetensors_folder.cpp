// Finds the files of a folder and checks the index against them.
#include "ckpt/safetensors_folder.h"

#include <filesystem>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

// The JSON of an index. A key that stands twice would silently win or lose, and nesting is bounded.
Json parse_index(const std::string& path) {
  constexpr int kMaxDepth = 4;
  constexpr std::uintmax_t kMaxBytes = 100'000'000;
  if (const std::uintmax_t bytes = fs::file_size(path); bytes > kMaxBytes) {
    fail_user("{} has {} bytes, an index at most {}; it is not one", path, bytes, kMaxBytes);
  }
  std::vector<std::set<std::string>> keys(kMaxDepth + 2);  // of the object open at each depth
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) {
      fail_user("{} is nested deeper than {} levels; it is no index of safetensors files", path,
                kMaxDepth);
    }
    const auto at = static_cast<std::size_t>(depth);
    if (event == Json::parse_event_t::object_start) {
      keys[at + 1].clear();
    } else if (event == Json::parse_event_t::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!keys[at].insert(name).second) {
        fail_user("{} has the key '{}' twice; write the file again", path, name);
      }
    }
    return true;
  };
  try {
    return Json::parse(read_text_file(path), check);
  } catch (const Json::parse_error& error) {
    fail_user("{} is not JSON at its byte {}; it is damaged, fetch it again", path, error.byte);
  }
}

// A file beside the index: a path that leads elsewhere is refused.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const std::string& folder) : path_(folder) {
  const std::string single = (fs::path(folder) / "model.safetensors").string();
  const std::string index = (fs::path(folder) / "model.safetensors.index.json").string();
  std::error_code ignored;
  if (fs::exists(single, ignored)) {
    open_single(single);
  } else if (fs::exists(index, ignored)) {
    open_index(index);
  } else if (!fs::is_directory(folder, ignored)) {
    fail_user("{} is no folder; give a Hugging Face folder with model.safetensors", folder);
  } else {
    const bool has_pickle = fs::exists(fs::path(folder) / "pytorch_model.bin", ignored) ||
                            fs::exists(fs::path(folder) / "pytorch_model.bin.index.json", ignored);
    fail_user("{} has neither model.safetensors nor model.safetensors.index.json{}", folder,
              has_pickle ? ", only pytorch_model.bin; save the model as safetensors"
                         : "; give a folder that has one");
  }
}

void SafetensorsFolder::open_single(const std::string& file) {
  const SafetensorsFile& opened = files_.emplace("model.safetensors", file).first->second;
  for (const TensorEntry& entry : opened.entries()) {
    tensors_.emplace(entry.name, Found{.file = &opened, .entry = &entry});
  }
}

void SafetensorsFolder::open_index(const std::string& index) {
  const Json root = parse_index(index);
  const auto map = root.is_object() ? root.find("weight_map") : root.end();
  if (map == root.end() || !map->is_object()) {
    fail_user("{} has no object weight_map; it is no index of safetensors files", index);
  }
  for (const auto& [tensor, value] : map->items()) {
    if (!value.is_string() || !is_plain_name(value.get_ref<const std::string&>())) {
      fail_user(
          "{}: weight_map gives {} for tensor '{}'; the name of a file beside it must be there",
          index, value.dump(), tensor);
    }
    const auto& name = value.get_ref<const std::string&>();
    auto at = files_.find(name);
    if (at == files_.end()) {
      const std::string file = (fs::path(path_) / name).string();
      std::error_code ignored;
      if (!fs::exists(file, ignored)) {
        fail_user("{} is missing; {} says that it holds tensor '{}'; fetch it", file, index,
                  tensor);
      }
      at = files_.emplace(name, file).first;
    }
    const TensorEntry* entry = at->second.find(tensor);
    if (entry == nullptr) {
      fail_user("{} has no tensor '{}', though {} says so; fetch both again", at->second.path(),
                tensor, index);
    }
    tensors_.emplace(tensor, Found{.file = &at->second, .entry = entry});
  }
}

std::vector<std::string> SafetensorsFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, found] : tensors_) {
    names.push_back(name);
  }
  return names;
}

SafetensorsFolder::Found SafetensorsFolder::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    fail_user("{} has no tensor '{}'; the nearest of its {} is '{}'", path_, name, tensors_.size(),
              nearest(name, names()));
  }
  return found->second;
}

}  // namespace orthant
