// Finds the tokenizer that a spec names; the one of bytes lives here.
#include "data/tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "data/bpe_tokenizer.h"
#include "data/sentencepiece_tokenizer.h"
#include "data/tokenizer_file.h"

namespace orthant {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  void encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    const std::size_t before = out.size();
    out.resize(before + text.size());
    std::transform(text.begin(), text.end(), out.begin() + static_cast<std::ptrdiff_t>(before),
                   [](char c) { return static_cast<unsigned char>(c); });
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (const std::int32_t id : ids) {
      if (id < 0 || id > 255) {
        fail_user("tokenizer bytes: id {} is not a byte; ids are 0 to 255", id);
      }
      text.push_back(static_cast<char>(id));
    }
    return text;
  }

  std::int64_t vocab_size() const override { return 256; }
  bool needs_utf8() const override { return false; }
  std::uint32_t fingerprint() const override { return 0; }
  std::optional<std::int32_t> end_of_document() const override { return std::nullopt; }
  std::size_t safe_cut(std::string_view text, std::size_t limit) const override {
    return std::min(limit, text.size());
  }
};

std::string file_in_folder(const std::string& folder) {
  std::vector<std::string> models;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename() == "tokenizer.json") return entry.path().string();
    if (entry.path().extension() == ".model") models.push_back(entry.path().string());
  }
  std::sort(models.begin(), models.end());
  const auto preferred = std::find_if(models.begin(), models.end(), [](const std::string& path) {
    return std::filesystem::path(path).filename() == "tokenizer.model";
  });
  if (preferred != models.end()) return *preferred;
  if (models.size() == 1) return models[0];
  fail_user("tokenizer {}: the folder has no tokenizer.json and {} .model files; give the file",
            folder, models.size());
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec) {
  if (spec == "bytes") return std::make_unique<ByteTokenizer>();
  std::error_code ignored;
  if (!std::filesystem::exists(spec, ignored)) {
    fail_user(
        "tokenizer {}: there is no such file or folder; give 'bytes', a tokenizer.json, a "
        "SentencePiece .model, or a folder with one of them",
        spec);
  }
  const std::string path = std::filesystem::is_directory(spec) ? file_in_folder(spec) : spec;
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending == ".model") return make_sentencepiece_tokenizer(path, SentencePieceEncoder::kOurs);
  if (ending == ".json") return std::make_unique<BpeTokenizer>(read_tokenizer_file(path));
  fail_user("tokenizer {}: the name must end in .json or .model; it ends in '{}'", path, ending);
}

}  // namespace orthant
