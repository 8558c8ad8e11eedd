#include "data/input_files.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <system_error>

#include "base/check.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [name](std::string_view ending) { return name.ends_with(ending); });
}

// Sets kind and compression; false when the ending is none that a folder is searched for.
bool read_ending(InputFile& file) {
  std::string_view name = file.path;
  if (name.ends_with(".gz")) file.compression = Compression::kGzip;
  if (name.ends_with(".zst")) file.compression = Compression::kZstd;
  if (file.compression != Compression::kNone) name = name.substr(0, name.rfind('.'));
  if (ends_with_any(name, {".jsonl", ".ndjson", ".json"})) file.kind = InputKind::kLines;
  return file.kind == InputKind::kLines || name.ends_with(".txt");
}

void look_at(InputFile& file) {
  std::error_code error;
  file.bytes = static_cast<std::int64_t>(fs::file_size(file.path, error));
  if (error) fail_user("input {}: {}", file.path, error.message());
  file.modified = fs::last_write_time(file.path, error).time_since_epoch().count();
  if (error) fail_user("input {}: {}", file.path, error.message());
}

void add_folder(const std::string& folder, InputFiles& found) {
  std::error_code error;
  std::vector<InputFile> files;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (!at->is_regular_file()) continue;
    InputFile file;
    file.path = at->path().string();
    if (read_ending(file)) {
      files.push_back(std::move(file));
    } else {
      ++found.num_left_out;
    }
  }
  if (error) fail_user("input {}: {}", folder, error.message());
  if (files.empty()) {
    fail_user(
        "input {}: the folder has no file that ends in .txt, .jsonl, .ndjson or .json, .gz or "
        ".zst behind it or not",
        folder);
  }
  std::sort(files.begin(), files.end(),
            [](const InputFile& a, const InputFile& b) { return a.path < b.path; });
  found.files.insert(found.files.end(), files.begin(), files.end());
}

}  // namespace

InputFiles find_input_files(const std::vector<std::string>& inputs) {
  InputFiles found;
  for (const std::string& input : inputs) {
    std::error_code error;
    if (fs::is_directory(input, error)) {
      add_folder(input, found);
      continue;
    }
    InputFile file;
    file.path = input;
    read_ending(file);
    for (const std::string_view packed : {".xz", ".bz2", ".zip", ".lz4"}) {
      if (input.ends_with(packed)) {
        fail_user("input {}: {} is not read; .gz and .zst are, or decompress it first", input,
                  packed);
      }
    }
    found.files.push_back(std::move(file));
  }
  for (InputFile& file : found.files) {
    look_at(file);
  }
  return found;
}

std::int64_t total_bytes(const std::vector<InputFile>& files) {
  return std::accumulate(files.begin(), files.end(), std::int64_t{0},
                         [](std::int64_t sum, const InputFile& file) { return sum + file.bytes; });
}

}  // namespace orthant
