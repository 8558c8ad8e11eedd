#include "train/initial_weights.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "ckpt/foreign.h"
#include "hf/hf_config.h"
#include "hf/hf_source.h"

namespace orthant {
namespace {

// The weights of a source without its moments.
class WeightsAlone final : public ParamSource {
 public:
  explicit WeightsAlone(std::unique_ptr<ParamSource> source) : source_(std::move(source)) {}
  void read(const ParamSpec& param, StateKind state, std::int64_t first,
            std::span<float> into) const override {
    if (state == StateKind::kWeight) return source_->read(param, state, first, into);
    std::fill(into.begin(), into.end(), 0.0F);
  }
  void verify(const Verify& what) const override {
    source_->verify({.part = what.part, .parts = what.parts, .has_moments = false});
  }

 private:
  std::unique_ptr<ParamSource> source_;
};

}  // namespace

bool has_checkpoint(const std::string& path) {
  std::vector<std::string> passed_over;
  return find_checkpoint(path, passed_over).has_value();
}

ModelConfig stored_model(const std::string& path) {
  std::vector<std::string> passed_over;
  if (const auto checkpoint = find_checkpoint(path, passed_over)) {
    return model_of(checkpoint->manifest, checkpoint->folder);
  }
  if (!passed_over.empty()) {
    fail_user("model.weights='{}' has no whole checkpoint: {}; restore one or name another", path,
              passed_over.front());
  }
  refuse_foreign(path);
  return read_hf_config(path).model;
}

Weights initial_weights(const ModelConfig& model, const std::string& path) {
  Weights weights;
  if (const auto checkpoint = find_checkpoint(path, weights.passed_over)) {
    weights.source =
        std::make_unique<WeightsAlone>(weights_of_checkpoint(model, checkpoint->folder).source);
    weights.origin = "those of checkpoint " + checkpoint->folder + ", without its moments";
  } else {
    weights.source = std::make_unique<HfSource>(model, path);
    weights.origin = "Hugging Face folder " + path;
  }
  return weights;
}

}  // namespace orthant
