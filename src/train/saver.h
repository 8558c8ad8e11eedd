// Saver: one rank's checkpoints, written beside the steps that follow.
//
// Between the end of a step and the next update nothing changes weights and moments: for so long a
// thread of its own reads them and writes them to the files, and the update waits for what is not
// read yet. Where the state is on a GPU it is read before the next step begins. Syncing and
// putting the folder in place go on behind further steps: ranks tell each other with their steps
// when they have written, so that a save adds no message to a step.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "ckpt/checkpoint.h"
#include "params/state_reader.h"
#include "train/rank.h"
#include "train/run_config.h"

namespace orthant {

// A checkpoint that is in its place, or that could not be written.
struct SaveOutcome {
  std::int64_t step = 0;
  std::int64_t bytes = 0;    // of its files
  double seconds = 0;        // from the end of the step to its place
  double waited_s = 0;       // for which this rank's step stood still
  std::string failure = {};  // empty: it is in its place
};

class Saver {
 public:
  Saver(Rank& rank, const RunConfig& config);
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // The calls below are made by all ranks together, in the same order. With
  // checkpoint.on_failure = "stop" they throw what could not be written.

  // After step `step`: begins its checkpoint. None may be under way.
  void start(std::int64_t step, std::span<const Manifest::Blend> blends);
  // Before a step, which then tells the others whether this rank has written.
  void before_step();
  // Behind it. What has come to its end is told to rank 0.
  std::optional<SaveOutcome> after_step(const StepResult& result);
  // Returns when what is under way has come to its end.
  std::optional<SaveOutcome> finish();

 private:
  using Clock = std::chrono::steady_clock;
  // In this order.
  enum class State : std::uint8_t {
    kReading,     // the thread reads weights and moments
    kSyncing,     // they may change
    kWritten,     // or failed
    kCommitting,  // all ranks have written: rank 0's thread puts the folder in its place
    kInPlace,     // or failed
  };
  struct Job {
    CheckpointSave save;
    Manifest manifest;
    StateWriter writer;
    Clock::time_point start = Clock::now();
    double waited_s = 0;
    std::exception_ptr failure = nullptr;
    State state = State::kReading;
    std::thread thread = {};
  };

  bool is_first() const { return rank_.mesh().rank() == 0; }
  void begin();
  void read();
  void sync();
  void commit();
  // The job's thread does it; what it throws is the job's failure, and `then` its state after it.
  void run(State then, void (Saver::*work)());
  bool has_reached(State state);
  void set(State state);
  // Waits for the job's thread and gives signs of life.
  void wait_for(State state);
  void throw_if_asked();
  SaveOutcome end();

  Rank& rank_;
  const RunConfig& config_;
  StateFiles files_;
  StateReader reader_;
  std::mutex mutex_;  // of the job's state and failure
  std::condition_variable changed_;
  std::unique_ptr<Job> job_;  // null: none is under way
};

// All ranks together, after step `step`: when it returns the checkpoint is in its place.
void save_checkpoint(Rank& rank, const RunConfig& config, std::int64_t step,
                     std::span<const Manifest::Blend> blends);

}  // namespace orthant
