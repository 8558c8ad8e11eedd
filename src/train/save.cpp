#include "train/save.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "hf/hf_writer.h"
#include "model/canonical.h"
#include "train/weights.h"

namespace orthant {
namespace {

constexpr std::int64_t kChunk = 1 << 16;  // elements copied to the host at once
constexpr const char* kUnfinished = ".partial-gradients";

// Each part written is a sign of life: peers that wait in a barrier see that this rank is at work.
void write_tensor(Rank& rank, StateWriter& writer, const Piece& piece, StateKind state,
                  const Tensor& tensor) {
  std::vector<float> host(static_cast<std::size_t>(std::min(kChunk, piece.count)));
  for (std::int64_t done = 0; done < piece.count; done += kChunk) {
    const std::int64_t count = std::min(kChunk, piece.count - done);
    const std::span<float> values(host.data(), static_cast<std::size_t>(count));
    rank.device().to_host(std::as_writable_bytes(values), tensor.flat(done, count));
    Piece part = piece;
    part.first += done;
    part.count = count;
    writer.write(part, state, values);
    rank.mesh().world().sign_of_life();
  }
}

bool is_writer_in_chief(const Rank& rank) {
  return rank.mesh().rank() == 0;
}

}  // namespace

void save_checkpoint(Rank& rank, const RunConfig& config, std::int64_t step) {
  const StateFiles files(canonical_params(config.model), StateSet::kTraining);
  const CheckpointSave save(config.checkpoint.dir, step);
  Communicator& world = rank.mesh().world();
  if (is_writer_in_chief(rank)) save.begin(files);
  world.barrier();
  StateWriter writer(files, save.folder());
  for (const ParamStore::Owned& owned : rank.store().owned()) {
    write_tensor(rank, writer, owned.piece, StateKind::kWeight, owned.weight);
    write_tensor(rank, writer, owned.piece, StateKind::kExpAvg, owned.m);
    write_tensor(rank, writer, owned.piece, StateKind::kExpAvgSq, owned.v);
  }
  writer.sync();
  world.barrier();
  if (is_writer_in_chief(rank)) {
    const std::int64_t samples = config.samples_before(step + 1);
    save.commit({.step = step,
                 .updates = rank.updates(),
                 .position = samples,
                 .tokens = samples * config.train.seq_length,
                 .model = model_fields(config.model),
                 .files = files.files()},
                static_cast<int>(config.checkpoint.keep));
  }
  world.barrier();
}

void save_gradients(Rank& rank, const RunConfig& config, const std::string& path) {
  const std::vector<ParamSpec> params = canonical_params(config.model);
  const StateFiles files(params, StateSet::kWeights);
  const std::string folder = path + kUnfinished;
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
    for (const ParamStore::Owned& owned : rank.store().owned()) {
      write_tensor(rank, writer, owned.piece, StateKind::kWeight, owned.grad);
    }
  }
  world.barrier();
  if (is_writer_in_chief(rank)) {
    std::vector<std::string> names;
    for (const auto& [name, bytes] : files.files()) {
      names.push_back(name);
    }
    const StateSource source(folder, names);
    write_hf_tensors({.path = path, .model = config.model, .prefix = "", .dtype = DType::kF32},
                     source, params);
    remove_unfinished_gradients(path);
  }
  world.barrier();
}

void remove_unfinished_gradients(const std::string& path) noexcept {
  std::error_code error;
  std::filesystem::remove_all(path + kUnfinished, error);
}

}  // namespace orthant
