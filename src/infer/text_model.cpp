#include "infer/text_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "ckpt/foreign.h"
#include "hf/hf_config.h"
#include "hf/hf_source.h"
#include "train/initial_weights.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

void add_hf_ends(TextModel& text, const std::string& folder) {
  for (const std::int64_t id : read_hf_config(folder).tokens.eos) {
    text.ends.push_back(static_cast<std::int32_t>(id));
  }
}

TextModel of_hf_folder(const std::string& folder) {
  TextModel text;
  text.model = read_hf_config(folder).model;
  text.weights.source = std::make_unique<HfSource>(text.model, folder);
  text.weights.origin = "Hugging Face folder " + folder;
  text.folders = {folder};
  add_hf_ends(text, folder);
  return text;
}

TextModel of_checkpoint(const std::string& path) {
  TextModel text;
  std::vector<std::string> passed_over;
  const auto checkpoint = find_checkpoint(path, passed_over);
  if (!checkpoint) {
    refuse_foreign(path);
    fail_user(
        "{}: no run file, no Hugging Face folder (no config.json) and no checkpoint (no "
        "manifest.json, no whole step-N folder{}{}); name one of them",
        path, passed_over.empty() ? "" : "; ", passed_over.empty() ? "" : passed_over.front());
  }
  text.model = model_of(checkpoint->manifest, checkpoint->folder);
  text.weights = weights_of_checkpoint(text.model, checkpoint->folder);
  text.weights.passed_over = std::move(passed_over);
  text.folders = {checkpoint->folder, path};
  return text;
}

TextModel of_run_file(const ModelRequest& request) {
  TextModel text;
  const RunConfig config = load_run_config(request.path, request.overrides);
  text.model = config.model;
  text.compute = config.compute_type();
  text.device = config.device.kind;
  if (!config.origin.weights.empty()) {
    text.folders.push_back(config.origin.weights);
    if (!has_checkpoint(config.origin.weights)) add_hf_ends(text, config.origin.weights);
  }
  const bool is_named = !request.checkpoint.empty();
  const std::string dir = is_named ? request.checkpoint : config.checkpoint.dir;
  std::vector<std::string> passed_over;
  const auto checkpoint = dir.empty() ? std::nullopt : find_checkpoint(dir, passed_over);
  if (checkpoint) {
    text.weights = weights_of_checkpoint(text.model, checkpoint->folder);
    text.folders.push_back(checkpoint->folder);
    text.folders.push_back(dir);
  } else if (!is_named && !config.origin.weights.empty()) {
    text.weights = initial_weights(text.model, config.origin.weights);
  } else if (is_named) {
    fail_user("--checkpoint {}: neither a checkpoint nor a directory with one{}{}", dir,
              passed_over.empty() ? "" : "; ", passed_over.empty() ? "" : passed_over.front());
  } else {
    fail_user(
        "{}: checkpoint.dir=\"{}\" has no whole checkpoint and model.weights is empty; "
        "train first, or name --checkpoint{}{}",
        request.path, dir, passed_over.empty() ? "" : "; ",
        passed_over.empty() ? "" : passed_over.front());
  }
  text.weights.passed_over = std::move(passed_over);
  return text;
}

bool has_tokenizer(const std::string& folder) {
  std::error_code none;
  if (fs::exists(folder + "/tokenizer.json", none)) return true;
  const fs::directory_iterator files(folder, none);
  return std::any_of(fs::begin(files), fs::end(files),
                     [](const auto& file) { return file.path().extension() == ".model"; });
}

}  // namespace

TextModel find_text_model(const ModelRequest& request) {
  if (!fs::exists(request.path)) {
    fail_user(
        "{}: there is no such file or folder; name a run file, a checkpoint or a Hugging "
        "Face folder",
        request.path);
  }
  if (!fs::is_directory(request.path)) return of_run_file(request);
  if (!request.checkpoint.empty()) {
    fail_user("--checkpoint {}: {} is not a run file; name the checkpoint alone",
              request.checkpoint, request.path);
  }
  if (!request.overrides.empty()) {
    fail_user(
        "{} is not an option of this command, and {} is no run file whose options could be "
        "changed; "
        "see its --help",
        request.overrides.front(), request.path);
  }
  if (fs::exists(request.path + "/config.json")) return of_hf_folder(request.path);
  return of_checkpoint(request.path);
}

std::unique_ptr<Tokenizer> find_tokenizer(const std::string& spec, const TextModel& model) {
  if (!spec.empty()) return make_tokenizer(spec);
  for (const std::string& folder : model.folders) {
    if (has_tokenizer(folder)) return make_tokenizer(folder);
  }
  constexpr std::int64_t kBytes = 256;
  if (model.model.vocab <= kBytes) return make_tokenizer("bytes");
  fail_user(
      "the tokenizer of this model of {} tokens is not known; name it with --tokenizer, as for "
      "orthant data pack",
      model.model.vocab);
}

std::vector<std::int32_t> encode_prompt(const Tokenizer& tokenizer, const TextModel& model,
                                        const std::string& prompt) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(prompt, ids);
  if (ids.empty()) {
    const auto end = tokenizer.end_of_document();
    if (!end) {
      fail_user(
          "the prompt is empty, and this tokenizer has no token between documents to begin "
          "after; give a prompt");
    }
    ids.push_back(*end);
  }
  const auto largest = std::max_element(ids.begin(), ids.end());
  if (*largest >= model.model.vocab) {
    fail_user(
        "the text has token {}, model.vocab={}; this is not the model's tokenizer: name it with "
        "--tokenizer",
        *largest, model.model.vocab);
  }
  return ids;
}

}  // namespace orthant
