// orthant convert: Hugging Face folder to checkpoint, and back.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "ckpt/checkpoint.h"
#include "ckpt/foreign.h"
#include "cli/commands.h"
#include "hf/hf_source.h"
#include "hf/hf_writer.h"
#include "model/canonical.h"
#include "train/weights.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

// Weights and zero moments.
void write_checkpoint(const HfSource& source, const ModelConfig& model,
                      const CheckpointSave& save) {
  const std::vector<ParamSpec> params = canonical_params(model);
  const StateFiles files(params, StateSet::kTraining);
  save.begin(files);
  StateWriter writer(files, save.folder());
  constexpr std::int64_t kChunk = 1 << 20;
  std::vector<float> buffer;
  for (const ParamSpec& param : params) {
    for (std::int64_t first = 0; first < param.global.count(); first += kChunk) {
      Piece piece = whole_piece(param.name, param.global);
      piece.first = first;
      piece.count = std::min(kChunk, param.global.count() - first);
      buffer.resize(static_cast<std::size_t>(piece.count));
      source.read(param, StateKind::kWeight, first, buffer);
      writer.write(piece, StateKind::kWeight, buffer);
    }
  }
  writer.sync();
  save.commit({.model = model_fields(model), .files = files.files()}, 0);
}

// A checkpoint of step 0 in the directory `to`.
void to_checkpoint(const std::string& from, const std::string& to) {
  const HfConfig config = read_hf_config(from);
  const HfSource source(config.model, from);
  require_folder_can_be_made(to, "convert TO");
  std::vector<std::string> passed_over;
  if (const auto newest = newest_checkpoint(to, passed_over); newest) {
    fail_user("convert: {} has a checkpoint already, {}; nothing was written, give a new name", to,
              newest->folder);
  }
  try {
    write_checkpoint(source, config.model, CheckpointSave(to, 0));
  } catch (const Error&) {
    remove_unfinished(to);
    throw;
  }
  fmt::print("{}: checkpoint of step 0 with {} parameters\n", to, count_parameters(config.model));
}

// `from` is a checkpoint folder, or a directory of them: then the newest.
Checkpoint require_checkpoint(const std::string& from) {
  std::vector<std::string> passed_over;
  auto newest = find_checkpoint(from, passed_over);
  for (const std::string& damage : passed_over) {
    fmt::print(stderr, "{}\n", damage);
  }
  if (!newest) {
    refuse_foreign(from);
    fail_user(
        "convert: {} is neither a Hugging Face folder (no config.json) nor a checkpoint (no "
        "manifest.json, no "
        "step-N folder)",
        from);
  }
  return std::move(*newest);
}

void to_hugging_face(const std::string& from, const std::string& to, DType dtype) {
  const Checkpoint checkpoint = require_checkpoint(from);
  const ModelConfig model = model_of(checkpoint.manifest, checkpoint.folder);
  const auto source = checkpoint_source(checkpoint);
  source->verify({});
  write_hf_folder({.folder = to, .model = model, .tokens = {}, .dtype = dtype}, *source,
                  canonical_params(model));
  fmt::print("{}: Hugging Face folder from step {}\n", to, checkpoint.manifest.step);
}

}  // namespace

void add_convert(Parser& app, Command& chosen) {
  Parser& command = app.add_command(
      "convert",
      "Hugging Face folder to checkpoint, or checkpoint to Hugging Face folder; layouts need none");
  struct Arguments {
    std::string from;
    std::string to;
    std::string dtype = "fp32";
  };
  const auto arguments = std::make_shared<Arguments>();
  command
      .add_option("FROM", arguments->from,
                  "a folder with config.json and safetensors, or a checkpoint")
      .required();
  command.add_option("TO", arguments->to, "the folder to make").required();
  command.add_option("--dtype", arguments->dtype, "of a Hugging Face folder: fp32 or bf16")
      .show_default()
      .one_of({"fp32", "bf16"});
  command.when_chosen([arguments, &chosen] {
    chosen = [arguments] {
      std::error_code unknown;
      if (fs::exists(arguments->from + "/config.json", unknown)) {
        to_checkpoint(arguments->from, arguments->to);
      } else {
        to_hugging_face(arguments->from, arguments->to,
                        arguments->dtype == "bf16" ? DType::kBF16 : DType::kF32);
      }
      return 0;
    };
  });
}

}  // namespace orthant
