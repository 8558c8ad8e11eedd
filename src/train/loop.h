// The loop of a run: steps, evaluation, checkpoints, stop and resume.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/process_world.h"
#include "train/run_config.h"
#include "train/valid_loss.h"

namespace orthant {

// Writes the gradients of one step under Hugging Face's names.
struct GradientDump {
  std::int64_t step;  // from 1
  std::string path;
};

// What is asked beside the run file.
struct TrainExtras {
  std::optional<GradientDump> dump;
  bool self_check = false;  // the layout and the start of the run, before its first step
};

// Trains to the end, to a stop signal, or to max_minutes. The exit status: 0, or 128 + the signal.
// `world`: of the rank that this process is; null: ranks are threads.
int train(const RunConfig& config, const TrainExtras& extras, ProcessWorld* world);

// Loss on the validation data: eval_steps global batches from the start of each of its sources, or
// as many as it has. `checkpoint`: a folder, or empty for what the run would train from. `logits`:
// a file for the logits [B*S,V] and losses of the first global batch, or empty.
EvalResult evaluate(const RunConfig& config, const std::string& checkpoint,
                    const std::string& logits, ProcessWorld* world);

}  // namespace orthant
