// SentencePiece stays in this file. Decoding is the library's; encoding is ours where it can be. A
// document is encoded whole: memory grows with the longest one.
#include "data/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "data/bpe_model.h"
#include "data/normalizer.h"
#include "data/scratch_pool.h"
#include "data/sentencepiece_bpe.h"
#include "data/token_texts.h"
#include "data/unicode.h"

namespace orthant {
namespace {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::string& path, SentencePieceEncoder encoder) : path_(path) {
    const std::string serialized = read_text_file(path);
    checksum_ = crc32c(serialized);
    const auto status = processor_.LoadFromSerializedProto(serialized);
    if (!status.ok()) {
      fail_user("tokenizer {}: this is not a SentencePiece model ({}); give another file", path,
                status.ToString());
    }
    if (encoder == SentencePieceEncoder::kLibrary) return;
    const std::optional<SentencePieceBpe> bpe = read_sentencepiece_bpe(serialized);
    if (!bpe.has_value()) return;
    model_.emplace(bpe->model);
    if (bpe->adds_space) steps_.emplace_back().content = " ";
    NormalizerStep& marks = steps_.emplace_back();
    marks.kind = NormalizerStep::Kind::kReplace;
    marks.pattern = " ";
    marks.content = kMetaspace;
  }

  void encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    const std::size_t invalid = find_invalid_utf8(text);
    if (invalid != std::string_view::npos) {
      fail_user("tokenizer {}: the text is not UTF-8 at byte {}; convert it", path_, invalid);
    }
    if (model_.has_value()) {
      const ScratchPool<Scratch>::Lease lease(pool_);
      Scratch& scratch = *lease;
      model_->encode(normalize(steps_, text, scratch.normalizer), scratch.bpe, out);
      return;
    }
    std::vector<int> ids;
    const auto status = processor_.Encode({text.data(), text.size()}, &ids);
    if (!status.ok()) fail_run("tokenizer {}: encoding failed: {}", path_, status.ToString());
    out.insert(out.end(), ids.begin(), ids.end());
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= processor_.GetPieceSize()) {
        fail_user("tokenizer {}: id {} is outside the vocabulary of {}", path_, id,
                  processor_.GetPieceSize());
      }
    }
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    if (!status.ok()) fail_run("tokenizer {}: decoding failed: {}", path_, status.ToString());
    return text;
  }

  std::int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  std::uint32_t fingerprint() const override { return checksum_; }

  std::optional<std::int32_t> end_of_document() const override {
    const int id = processor_.eos_id();
    return id < 0 ? std::nullopt : std::optional<std::int32_t>(id);
  }

  std::size_t safe_cut(std::string_view text, std::size_t /*limit*/) const override {
    return text.size();
  }

 private:
  struct Scratch {
    NormalizerScratch normalizer;
    BpeScratch bpe;
  };

  std::string path_;
  std::uint32_t checksum_ = 0;
  sentencepiece::SentencePieceProcessor processor_;
  std::optional<BpeModel> model_;  // ours, for encoding
  std::vector<NormalizerStep> steps_;
  mutable ScratchPool<Scratch> pool_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& path,
                                                        SentencePieceEncoder encoder) {
  return std::make_unique<SentencePieceTokenizer>(path, encoder);
}

}  // namespace orthant
