// RunConfig: the run file as values. Every section names its options once, with default and help.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "dist/layout.h"
#include "mem/dtype.h"
#include "model/model_config.h"
#include "optim/adamw.h"
#include "optim/lr_schedule.h"

namespace orthant {

// Where the [model] section begins; its other options are changes to that.
struct ModelOrigin {
  std::string preset;
  std::string config;
  std::string weights;

  template <class Visitor>
  void fields(Visitor&& v) {
    v("preset", preset, "a known model, such as gpt2-124m");
    v("config", config, "a config.json of Hugging Face, or the folder that has it");
    v("weights", weights,
      "a Hugging Face folder or a checkpoint: training starts from its weights; its model is "
      "implied");
  }
};

struct TrainConfig {
  std::int64_t steps = 100;
  std::int64_t global_batch = 1;
  std::int64_t accumulation = 0;
  std::vector<std::vector<std::int64_t>> batch_ramp;
  std::int64_t seq_length = 0;  // validate() fills it
  std::int64_t seed = 1;
  bool deterministic = false;
  std::int64_t eval_interval = 0;
  std::int64_t eval_steps = 4;
  double max_minutes = 0;

  template <class Visitor>
  void fields(Visitor&& v) {
    v("steps", steps, "optimizer updates");
    v("global_batch", global_batch, "sequences of one step");
    v("accumulation", accumulation,
      "micro-batches of a step on each dp rank; given, global_batch or micro_batch may be left out "
      "(0: global_batch / (micro_batch * dp))");
    v("batch_ramp", batch_ramp,
      "[[from_step, global_batch], ...]: other batch sizes from those steps on");
    v("seq_length", seq_length, "tokens of a sequence; 0: the model's max_positions");
    v("seed", seed, "of initial weights, dropout and the order of samples");
    v("deterministic", deterministic, "cuda: the same bits in every run (the cpu always does)");
    v("eval_interval", eval_interval, "steps between evaluations; 0: never");
    v("eval_steps", eval_steps, "global batches of an evaluation, of each source");
    v("max_minutes", max_minutes, "stop with a checkpoint after this time; 0: no limit");
  }
};

struct OptimizerConfig {
  double lr = 3e-4;
  double min_lr = 0;
  std::int64_t warmup_steps = 0;
  std::string decay = "cosine";
  std::int64_t decay_steps = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip_grad = 1;
  std::string moments = "fp32";

  template <class Visitor>
  void fields(Visitor&& v) {
    v("lr", lr, "highest learning rate");
    v("min_lr", min_lr, "learning rate at the last step");
    v("warmup_steps", warmup_steps, "steps of linear warm-up");
    v("decay", decay, "cosine, linear, constant or wsd");
    v("decay_steps", decay_steps, "wsd: steps of the decay at the end; 0: a tenth of all");
    v("beta1", beta1, "decay of the first moment");
    v("beta2", beta2, "decay of the second moment");
    v("eps", eps, "added to the root of the second moment");
    v("weight_decay", weight_decay, "of parameters with two or more dimensions");
    v("clip_grad", clip_grad, "largest global gradient norm; 0: no clipping");
    v("moments", moments, "fp32 or bf16");
  }
};

struct PrecisionConfig {
  std::string compute = "fp32";
  std::string master = "fp32";
  std::string grad_accum = "fp32";

  template <class Visitor>
  void fields(Visitor&& v) {
    v("compute", compute, "fp32, bf16 or fp16 (dynamic loss scale)");
    v("master", master,
      "master weights: fp32, or split, what their bf16 values lack, which takes 2 bytes less");
    v("grad_accum", grad_accum, "type in which gradients are added up: fp32 or bf16");
  }
};

struct DataConfig {
  std::vector<std::string> train;
  std::vector<double> weights;
  std::vector<std::string> valid;
  std::string split;
  std::string order = "shuffled";
  bool cross_documents = false;
  std::int64_t max_documents = 0;

  template <class Visitor>
  void fields(Visitor&& v) {
    v("train", train, "prefixes of packed datasets");
    v("weights", weights, "weight of each train prefix in a blend; empty: one after another");
    v("valid", valid, "prefixes for evaluation: of each its own loss, and that of all");
    v("split", split, "parts of train for training, validation and test, as 969,30,1");
    v("order", order, "shuffled, sequential or megatron");
    v("cross_documents", cross_documents,
      "true: the documents of a sequence are one text; false: each is attended to by itself, its "
      "positions begin at 0, and the step into the next one does not count in the loss");
    v("max_documents", max_documents,
      "most documents in one packed sequence, more are refused; 0: the dataset's own maximum");
  }
};

struct CheckpointConfig {
  std::string dir;
  std::int64_t interval = 0;
  std::int64_t keep = 3;
  bool resume = true;
  std::string on_failure = "stop";

  template <class Visitor>
  void fields(Visitor&& v) {
    v("dir", dir, "folder of checkpoints; empty: none are written");
    v("interval", interval, "steps between checkpoints; 0: only at the end");
    v("keep", keep, "newest checkpoints to keep; 0: all");
    v("resume", resume, "go on from the newest whole checkpoint in dir");
    v("on_failure", on_failure, "when one cannot be written: stop, or warn and go on training");
  }
};

struct LogConfig {
  std::string dir = "log";

  template <class Visitor>
  void fields(Visitor&& v) {
    v("dir", dir, "folder of metrics.jsonl, event files and run.toml");
  }
};

struct DeviceConfig {
  std::string kind = "cpu";
  std::string algorithms;

  template <class Visitor>
  void fields(Visitor&& v) {
    v("kind", kind, "cpu or cuda");
    v("algorithms", algorithms,
      "cuda: file of the fastest algorithm of each matrix product, so that it is timed once; "
      "empty: "
      "algorithms.json in log.dir");
  }
};

struct RunConfig {
  ModelOrigin origin;
  ModelConfig model;  // complete after load_run_config
  LayoutConfig layout;
  TrainConfig train;
  OptimizerConfig optimizer;
  PrecisionConfig precision;
  DataConfig data;
  CheckpointConfig checkpoint;
  LogConfig log;
  DeviceConfig device;

  template <class Visitor>
  void sections(Visitor&& v) {
    v("model", origin);
    v("model", model);
    v("layout", layout);
    v("train", train);
    v("optimizer", optimizer);
    v("precision", precision);
    v("data", data);
    v("checkpoint", checkpoint);
    v("log", log);
    v("device", device);
  }

  // Sequences of a step, counted from 1: of the last entry of batch_ramp that has begun.
  std::int64_t global_batch_at(std::int64_t step) const;
  // Sequences of all steps before it.
  std::int64_t samples_before(std::int64_t step) const;
  std::int64_t max_global_batch() const;
  std::vector<std::int64_t> step_batches() const;  // sizes of this run's steps, ascending
  // The sources of an evaluation: data.valid, or with data.split each of data.train, once.
  std::vector<std::string> valid_prefixes() const;

  DType compute_type() const;
  LrConfig lr() const;
  AdamWConfig adamw() const;
};

// Reads the run file, then the "--section.key=value" overrides, finds the model, and validates.
// Paths in it are relative to the working directory.
RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides);
RunConfig parse_run_config(std::string_view text, const std::string& source,
                           const std::vector<std::string>& overrides);

// Fills what is derived, and refuses by name what is wrong, what does not fit together and what is
// not built yet. The data is not looked at: planning needs none.
void validate(RunConfig& config);

// Refuses a run without training data.
void require_data(const RunConfig& config);

// The complete run file: reading it back gives the same config.
std::string to_toml(const RunConfig& config);

}  // namespace orthant
