#include "train/saver.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "model/canonical.h"
#include "train/weights.h"

namespace orthant {
namespace {

constexpr std::int64_t kChunk = 1 << 16;  // elements copied to the host at once

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Manifest manifest_of(const Rank& rank, const RunConfig& config, std::int64_t step,
                     std::span<const Manifest::Blend> blends, const StateFiles& files) {
  const std::int64_t samples = config.samples_before(step + 1);
  return {.step = step,
          .updates = rank.kept().updates,
          .loss_scale = rank.kept().loss_scale,
          .good_steps = rank.kept().good_steps,
          .skipped = rank.kept().skipped,
          .position = samples,
          .tokens = samples * config.train.seq_length,
          .blends = {blends.begin(), blends.end()},
          .model = model_fields(config.model),
          .files = files.files()};
}

// What a rank leaves beside the files when it has written: its parts of the checksums.
std::string sums_path(const std::string& folder, int rank) {
  return fmt::format("{}/rank-{}.checksums", folder, rank);
}

std::string sums_text(const std::vector<std::uint64_t>& sums) {
  std::string text(sums.size() * sizeof(std::uint64_t), '\0');
  std::copy_n(reinterpret_cast<const char*>(sums.data()), text.size(), text.data());
  return text;
}

void add_sums(const std::string& path, int rank, std::vector<std::uint64_t>& sums) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    fail_run("rank {} could not write its part of the checkpoint", rank);
  }
  const std::string text = read_text_file(path);
  ORTHANT_CHECK(text.size() == sums.size() * sizeof(std::uint64_t), "{} has {} bytes", path,
                text.size());
  std::vector<std::uint64_t> parts(sums.size());
  std::copy_n(text.data(), text.size(), reinterpret_cast<char*>(parts.data()));
  std::transform(sums.begin(), sums.end(), parts.begin(), sums.begin(), std::plus<>());
}

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

Saver::Saver(Rank& rank, const RunConfig& config)
    : rank_(rank),
      config_(config),
      files_(canonical_params(config.model), StateSet::kTraining),
      reader_(rank.device(), kChunk) {
  rank_.before_updates([this] {
    if (!job_ || has_reached(State::kSyncing)) return;
    const Clock::time_point start = Clock::now();
    wait_for(State::kSyncing);
    job_->waited_s += seconds_since(start);
  });
}

Saver::~Saver() {
  rank_.before_updates([] {});
  if (job_ && job_->thread.joinable()) job_->thread.join();
}

void Saver::start(std::int64_t step, std::span<const Manifest::Blend> blends) {
  ORTHANT_CHECK(!job_, "the checkpoint of step {} is under way", job_->manifest.step);
  const Clock::time_point start = Clock::now();
  rank_.store().settle();
  CheckpointSave save(config_.checkpoint.dir, step);
  const std::string folder = save.folder();
  job_ = std::make_unique<Job>(Job{.save = std::move(save),
                                   .manifest = manifest_of(rank_, config_, step, blends, files_),
                                   .writer = StateWriter(files_, folder)});
  begin();
  throw_if_asked();
  job_->waited_s = seconds_since(start);
}

// Rank 0 makes the files. The others see by its folder that it could.
void Saver::begin() {
  if (is_first()) {
    try {
      job_->save.begin(files_);
    } catch (const Error&) {
      job_->failure = std::current_exception();
      remove_unfinished(config_.checkpoint.dir);
    }
  }
  rank_.mesh().world().barrier();
  std::error_code error;
  if (!std::filesystem::exists(job_->save.folder(), error)) {
    job_->state = State::kWritten;
    return;
  }
  if (rank_.device().queue() == nullptr) {
    run(State::kWritten, &Saver::sync);
    return;
  }
  try {  // only this thread may use the GPU's queue
    read();
  } catch (const Error&) {
    job_->failure = std::current_exception();
    job_->state = State::kWritten;
    return;
  }
  run(State::kWritten, &Saver::sync);
}

void Saver::run(State then, void (Saver::*work)()) {
  if (job_->thread.joinable()) job_->thread.join();
  job_->thread = std::thread([this, then, work] {
    try {
      (this->*work)();
    } catch (const std::exception&) {
      const std::lock_guard lock(mutex_);
      job_->failure = std::current_exception();
    }
    set(then);
  });
}

void Saver::read() {
  const auto write = [this](const Piece& piece, StateKind state, const auto& read_run) {
    for (std::int64_t done = 0; done < piece.count; done += kChunk) {
      Piece part = piece;
      part.first += done;
      part.count = std::min(kChunk, piece.count - done);
      job_->writer.write(part, state, read_run(done, part.count));
      rank_.mesh().world().sign_of_life(0);
    }
  };
  for (const ParamStore::Owned& owned : rank_.store().owned()) {
    const auto run_of = [this, &owned](const Tensor& tensor) {
      return [this, &owned, tensor](std::int64_t first, std::int64_t count) {
        return reader_.values(*owned.home, tensor.flat(first, count));
      };
    };
    write(owned.piece, StateKind::kWeight, [this, &owned](std::int64_t first, std::int64_t count) {
      return reader_.weights(owned, first, count);
    });
    write(owned.piece, StateKind::kExpAvg, run_of(owned.m));
    write(owned.piece, StateKind::kExpAvgSq, run_of(owned.v));
  }
  set(State::kSyncing);
}

// With what comes before it, where that is not done.
void Saver::sync() {
  if (!has_reached(State::kSyncing)) read();
  job_->writer.sync();
  const std::string path = sums_path(job_->save.folder(), rank_.mesh().rank());
  write_file_atomically(path, sums_text(job_->writer.checksums()));
}

void Saver::commit() {
  const std::string folder = job_->save.folder();
  std::vector<std::uint64_t> sums(files_.tensors().size());
  if (job_->failure) std::rethrow_exception(job_->failure);
  for (int rank = 0; rank < rank_.mesh().world().size(); ++rank) {
    add_sums(sums_path(folder, rank), rank, sums);
  }
  for (int rank = 0; rank < rank_.mesh().world().size(); ++rank) {
    std::filesystem::remove(sums_path(folder, rank));
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    job_->manifest.checksums[files_.tensors()[i]] = sums[i];
  }
  job_->save.commit(job_->manifest, static_cast<int>(config_.checkpoint.keep));
}

void Saver::before_step() {
  const bool is_waited_for = job_ && !has_reached(State::kCommitting);
  rank_.say_ready(is_waited_for && has_reached(State::kWritten));
  if (is_waited_for) throw_if_asked();
}

std::optional<SaveOutcome> Saver::after_step(const StepResult& result) {
  if (!job_) return std::nullopt;
  if (has_reached(State::kInPlace)) return end();
  if (has_reached(State::kCommitting) || result.num_ready < rank_.mesh().world().size()) {
    return std::nullopt;
  }
  if (is_first()) {
    set(State::kCommitting);
    run(State::kInPlace, &Saver::commit);
  } else {
    end();
  }
  return std::nullopt;
}

std::optional<SaveOutcome> Saver::finish() {
  if (!job_) return std::nullopt;
  if (!has_reached(State::kCommitting)) {
    wait_for(State::kWritten);
    throw_if_asked();
    rank_.mesh().world().barrier();
    if (is_first()) {
      set(State::kCommitting);
      run(State::kInPlace, &Saver::commit);
      wait_for(State::kInPlace);
      throw_if_asked();
    }
    rank_.mesh().world().barrier();
  }
  if (is_first()) wait_for(State::kInPlace);
  return end();
}

bool Saver::has_reached(State state) {
  const std::lock_guard lock(mutex_);
  return job_->state >= state;
}

void Saver::set(State state) {
  {
    const std::lock_guard lock(mutex_);
    job_->state = std::max(job_->state, state);
  }
  changed_.notify_all();
}

void Saver::wait_for(State state) {
  constexpr auto kSign = std::chrono::milliseconds(500);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kSign, [this, state] { return job_->state >= state; })) {
    rank_.mesh().world().sign_of_life(0);
  }
}

void Saver::throw_if_asked() {
  const std::lock_guard lock(mutex_);
  if (job_->failure && config_.checkpoint.on_failure == "stop") {
    std::rethrow_exception(job_->failure);
  }
}

SaveOutcome Saver::end() {
  if (job_->thread.joinable()) job_->thread.join();
  throw_if_asked();
  SaveOutcome outcome{.step = job_->manifest.step,
                      .bytes = 0,
                      .seconds = seconds_since(job_->start),
                      .waited_s = job_->waited_s};
  for (const auto& [name, bytes] : job_->manifest.files) {
    outcome.bytes += bytes;
  }
  if (job_->failure) {
    outcome.failure = text_of(job_->failure);
    if (is_first()) remove_unfinished(config_.checkpoint.dir);
  }
  job_.reset();
  return outcome;
}

void save_checkpoint(Rank& rank, const RunConfig& config, std::int64_t step,
                     std::span<const Manifest::Blend> blends) {
  Saver saver(rank, config);
  saver.start(step, blends);
  saver.finish();
}

}  // namespace orthant
