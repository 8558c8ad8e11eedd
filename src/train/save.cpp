#include "train/save.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "hf/hf_writer.h"
#include "model/canonical.h"
#include "params/state_reader.h"
#include "train/weights.h"

namespace orthant {
namespace {

constexpr std::int64_t kChunk = 1 << 16;  // elements copied to the host at once
constexpr const char* kUnfinished = ".partial-gradients";

// What is written: a tensor's values times `factor`.
struct Values {
  const Tensor& tensor;
  Device& home;
  float factor = 1;
};

// Each part written is a sign of life: peers that wait in a barrier see that this rank is at work.
void write_tensor(Rank& rank, StateWriter& writer, const Piece& piece, StateKind state,
                  const Values& from) {
  std::vector<float> host(static_cast<std::size_t>(std::min(kChunk, piece.count)));
  for (std::int64_t done = 0; done < piece.count; done += kChunk) {
    const std::int64_t count = std::min(kChunk, piece.count - done);
    const std::span<float> values(host.data(), static_cast<std::size_t>(count));
    read_back(from.home, values, from.tensor.flat(done, count));
    if (from.factor != 1) {
      std::for_each(values.begin(), values.end(), [&](float& value) { value *= from.factor; });
    }
    Piece part = piece;
    part.first += done;
    part.count = count;
    writer.write(part, state, values);
    rank.mesh().world().sign_of_life(0);
  }
}

bool is_writer_in_chief(const Rank& rank) {
  return rank.mesh().rank() == 0;
}

}  // namespace

void resume(Rank& rank, const Manifest& manifest) {
  StepState state = rank.kept();
  state.updates = manifest.updates;
  if (state.scale_window > 0 && manifest.loss_scale != 1) {
    state.loss_scale = manifest.loss_scale;
    state.good_steps = manifest.good_steps;
    state.skipped = manifest.skipped;
  }
  rank.keep(state);
}

void write_gradients(Rank& rank, const ModelConfig& model, const std::string& folder) {
  const StateFiles files(canonical_params(model), StateSet::kWeights);
  Communicator& world = rank.mesh().world();
  if (is_writer_in_chief(rank)) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) fail_run("cannot make the folder {}: {}", folder, error.message());
    files.create(folder);
  }
  world.barrier();
  {
    StateWriter writer(files, folder);
    const auto unscaled = static_cast<float>(1 / rank.kept().loss_scale);
    for (const ParamStore::Owned& owned : rank.store().owned()) {
      write_tensor(rank, writer, owned.piece, StateKind::kWeight,
                   {owned.grad, rank.device(), unscaled});
    }
  }
  world.barrier();
}

StateSource read_gradients(const ModelConfig& model, const std::string& folder) {
  const StateFiles files(canonical_params(model), StateSet::kWeights);
  std::vector<std::string> names;
  for (const auto& [name, bytes] : files.files()) {
    names.push_back(name);
  }
  return {folder, names, {}};
}

void save_gradients(Rank& rank, const RunConfig& config, const std::string& path) {
  const std::string folder = path + kUnfinished;
  write_gradients(rank, config.model, folder);
  if (is_writer_in_chief(rank)) {
    write_hf_tensors({.path = path, .model = config.model, .prefix = "", .dtype = DType::kF32},
                     read_gradients(config.model, folder), canonical_params(config.model));
    remove_unfinished_gradients(path);
  }
  rank.mesh().world().barrier();
}

void remove_unfinished_gradients(const std::string& path) noexcept {
  std::error_code error;
  std::filesystem::remove_all(path + kUnfinished, error);
}

}  // namespace orthant
