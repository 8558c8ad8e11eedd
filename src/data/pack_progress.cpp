#include "data/pack_progress.h"

#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"

namespace orthant {

std::string progress_path(const std::string& prefix) {
  return prefix + ".progress.json";
}

void save_progress(const std::string& prefix, const PackProgress& progress) {
  const IndexedDatasetWriter::State& written = progress.written;
  const OrderedJson json = {
      {"job", progress.job},
      {"file", progress.position.file},
      {"offset", progress.position.offset},
      {"line", progress.position.line},
      {"documents", written.num_documents},
      {"sequences", written.num_sequences},
      {"tokens", written.num_tokens},
      {"open_tokens", written.open_tokens},
      {"is_whole", written.is_whole},
      {"bad_lines", progress.num_bad_lines},
      {"bad_lines_bytes", progress.bad_lines_bytes},
  };
  write_file_atomically(progress_path(prefix), json.dump(2) + "\n");
}

std::optional<PackProgress> load_progress(const std::string& prefix, const std::string& job) {
  const std::string path = progress_path(prefix);
  if (!std::filesystem::exists(path)) return std::nullopt;
  PackProgress progress;
  try {
    const Json json = Json::parse(read_text_file(path));
    json.at("job").get_to(progress.job);
    progress.position.file = count_at(json, "file");
    progress.position.offset = count_at(json, "offset");
    progress.position.line = count_at(json, "line");
    progress.written.num_documents = count_at(json, "documents");
    progress.written.num_sequences = count_at(json, "sequences");
    progress.written.num_tokens = count_at(json, "tokens");
    progress.written.open_tokens = count_at(json, "open_tokens");
    json.at("is_whole").get_to(progress.written.is_whole);
    progress.num_bad_lines = count_at(json, "bad_lines");
    progress.bad_lines_bytes = count_at(json, "bad_lines_bytes");
  } catch (const Json::exception& error) {
    fail_user("{} is damaged ({}); begin anew with --restart", path, error.what());
  }
  if (progress.job != job) {
    fail_user(
        "{} is of a packing with other inputs, another tokenizer or other options; give those, "
        "begin anew with --restart, or give another --output",
        path);
  }
  return progress;
}

void remove_progress(const std::string& prefix) {
  std::error_code ignored;
  std::filesystem::remove(progress_path(prefix), ignored);
}

}  // namespace orthant
