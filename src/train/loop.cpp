#include "train/loop.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"
#include "train/algorithm_file.h"
#include "train/fit.h"
#include "train/layout_check.h"
#include "train/peak.h"
#include "train/report.h"
#include "train/run_data.h"
#include "train/run_notes.h"
#include "train/run_ranks.h"
#include "train/save.h"
#include "train/saver.h"
#include "train/signals.h"
#include "train/start_check.h"
#include "train/weights.h"

namespace orthant {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What all ranks of a run share: read only, but for the algorithms and the signal.
struct SharedRun {
  const RunConfig& config;
  ProcessWorld* world;  // null: ranks are threads
  TrainExtras extras;
  RunPlan plan;
  Weights weights;
  std::unique_ptr<TokenSource> train_data;
  std::vector<ValidSource> valid_data;          // empty when the run does not evaluate
  std::vector<std::string> not_evaluated = {};  // parts of a split that are too short
  AlgorithmFile algorithms{algorithms_of_run(config)};
  std::int64_t first_step = 1;
  Clock::time_point start = Clock::now();
  StopSignals signals = {};
  std::atomic<int> signal = 0;
};

// One rank's training.
class Worker {
 public:
  Worker(SharedRun& run, Rank& rank, Report* report)
      : run_(run),
        config_(run.config),
        rank_(rank),
        report_(report),
        feed_(run.config, *run.train_data, rank.mesh().coord(Axis::kDp), run.first_step),
        saver_(rank, run.config) {
    evals_.reserve(run.valid_data.size());
    for (const ValidSource& source : run.valid_data) {
      evals_.emplace_back(config_, *source.tokens, rank.mesh().coord(Axis::kDp),
                          config_.train.eval_steps * config_.train.global_batch);
    }
  }

  void train() {
    load_weights(rank_, *run_.weights.source);
    if (run_.weights.resumed) resume(rank_, *run_.weights.resumed);
    run_.algorithms.settle(rank_, run_.world == nullptr);
    for (std::int64_t step = run_.first_step; step <= config_.train.steps; ++step) {
      if (!train_step(step)) break;
    }
    tell(saver_.finish());
  }

 private:
  // False: the run stops here.
  bool train_step(std::int64_t step) {
    Clock::time_point start = Clock::now();
    watch(start);
    const std::span<const HostMicro> micros = feed_.next();
    const int num_micros = static_cast<int>(micros.size());
    if (run_.extras.self_check && step == run_.first_step) {
      check_start(rank_, {.config = config_,
                          .is_fresh = !run_.weights.resumed && config_.origin.weights.empty(),
                          .step = step,
                          .micros = micros});
      start = Clock::now();
    }
    const std::optional<GradientDump>& dump = run_.extras.dump;
    if (dump && dump->step == step) {
      rank_.gradients(step, micros, num_micros);
      save_gradients(rank_, config_, dump->path);
      start = Clock::now();
    }
    saver_.before_step();
    const StepResult result = rank_.step(step, lr_at(config_.lr(), step), micros, num_micros);
    if (!result.can_go_on) fail_not_finite(step, result, micros);
    tell(saver_.after_step(result));
    const double step_s = seconds_since(start);

    const bool last = step == config_.train.steps || result.stops;
    std::optional<EvalResult> valid;
    const bool evaluates =
        !evals_.empty() && (step % config_.train.eval_interval == 0 || step == config_.train.steps);
    if (evaluates) valid = evaluate();
    if (report_ != nullptr) report_->step(step, result, valid, step_s, drawn(step));
    const bool due = config_.checkpoint.interval > 0 && step % config_.checkpoint.interval == 0;
    if (step == run_.first_step || last || due) keep_algorithms();
    if (!config_.checkpoint.dir.empty() && (last || due)) {
      tell(saver_.finish());
      saver_.start(step, blends_of(*run_.train_data));
    }
    slowest_step_s_ = std::max(slowest_step_s_, seconds_since(start));
    return !result.stops;
  }

  // With every checkpoint, so that the run which goes on from it has the same.
  void keep_algorithms() {
    const std::optional<std::string> kept = run_.algorithms.keep(rank_, run_.world == nullptr);
    if (kept && report_ != nullptr) report_->message(*kept);
  }

  void tell(const std::optional<SaveOutcome>& saved) const {
    if (saved && report_ != nullptr) report_->checkpoint(*saved);
  }

  EvalResult evaluate() {
    std::vector<SourceLoss> losses;
    losses.reserve(evals_.size());
    for (const EvalFeed& feed : evals_) {
      const MeanLoss mean = rank_.evaluate(feed.micros(), static_cast<int>(feed.micros().size()));
      losses.push_back({.prefix = run_.valid_data[losses.size()].prefix,
                        .loss = mean.loss,
                        .tokens = mean.targets});
    }
    return whole_of(std::move(losses));
  }

  // Of a blend: the samples of each dataset so far.
  std::vector<std::int64_t> drawn(std::int64_t step) const {
    return run_.train_data->order().samples_by_dataset(config_.samples_before(step + 1));
  }

  // Every process looks for signals, rank 0 at the time too; a vote reaches all ranks with the
  // step.
  void watch(Clock::time_point now) {
    if (report_ == nullptr && run_.world == nullptr) return;
    const int signal = run_.signals.take();
    if (signal != 0) {
      run_.signal = signal;
      rank_.vote_stop();
      if (report_ != nullptr) {
        report_->message(fmt::format("signal {}: stopping after this step{}", signal,
                                     config_.checkpoint.dir.empty() ? "" : " with a checkpoint"));
      }
    }
    if (report_ == nullptr) return;
    const double limit_s = config_.train.max_minutes * 60;
    const double elapsed_s = std::chrono::duration<double>(now - run_.start).count();
    constexpr double kReserve =
        3;  // of the slowest step so far, its evaluation and checkpoint included
    if (limit_s > 0 && elapsed_s + kReserve * slowest_step_s_ >= limit_s) rank_.vote_stop();
  }

  [[noreturn]] void fail_not_finite(std::int64_t step, const StepResult& result,
                                    std::span<const HostMicro> micros) {
    tell(saver_.finish());
    const std::string where = rank_.find_non_finite(micros, static_cast<int>(micros.size()));
    fail_run(
        "step {}: loss is {} and gradient norm {}; the first that is not finite is {}. Nothing was "
        "changed by this "
        "step. Lower optimizer.lr={} or look at the data of this step",
        step, std::abs(result.loss), result.grad_norm, where, config_.optimizer.lr);
  }

  SharedRun& run_;
  const RunConfig& config_;
  Rank& rank_;
  Report* report_;  // of rank 0; null on others
  TrainFeed feed_;
  std::vector<EvalFeed> evals_;  // of each source of validation data
  Saver saver_;
  double slowest_step_s_ = 0;
};

// What can be refused is refused here, before anything is made.
void require_outputs(const RunConfig& config, const std::optional<GradientDump>& dump) {
  require_folder_can_be_made(config.log.dir, "log.dir");
  if (!config.checkpoint.dir.empty()) {
    require_folder_can_be_made(config.checkpoint.dir, "checkpoint.dir");
  }
  if (dump) require_file_can_be_made(dump->path, "--dump-gradients");
}

// Before the first step, so that no run ends at its first save. False: it was there.
bool make_folder(const std::string& path, const char* asked) {
  std::error_code error;
  const bool is_new = std::filesystem::create_directories(path, error);
  if (error) fail_user("{}='{}' cannot be made: {}; give another", asked, path, error.message());
  return is_new;
}

void make_folders(const RunConfig& config) {
  const bool is_new_log = make_folder(config.log.dir, "log.dir");
  if (config.checkpoint.dir.empty()) return;
  try {
    make_folder(config.checkpoint.dir, "checkpoint.dir");
  } catch (const Error&) {
    std::error_code ignored;
    if (is_new_log) std::filesystem::remove(config.log.dir, ignored);
    throw;
  }
}

// Runs the ranks; what they have left unfinished goes when all of them have stopped.
void run_workers(const RankConfig& rank, SharedRun& run, Report* report) {
  try {
    run_ranks(
        rank, run.plan, run.config.device.kind, run.world,
        [&](Rank& r, int number) { Worker(run, r, number == 0 ? report : nullptr).train(); },
        run.algorithms.algorithms());
  } catch (...) {
    if (!has_first_rank(run.world)) throw;
    if (!run.config.checkpoint.dir.empty()) remove_unfinished(run.config.checkpoint.dir);
    if (run.extras.dump) remove_unfinished_gradients(run.extras.dump->path);
    throw;
  }
}

// Of each source of validation data.
std::int64_t eval_sequences(const RunConfig& config) {
  return config.train.eval_steps * config.train.global_batch;
}

// An evaluation uses each sample once.
void check_valid_data(const RunConfig& config, const ValidSource& valid) {
  const std::int64_t wanted = eval_sequences(config);
  if (valid.tokens->num_samples() < wanted) {
    fail_user(
        "train.eval_steps={} with train.global_batch={} evaluates {} sequences of each source, the "
        "validation data of {} has {}; lower train.eval_steps, leave that source out, or set "
        "train.eval_interval=0",
        config.train.eval_steps, config.train.global_batch, wanted, valid.prefix,
        valid.tokens->num_samples());
  }
  check_documents(config, *valid.tokens, wanted);
}

// Finds all that the run needs, and refuses what does not fit together, before anything is made.
void prepare(const RankConfig& rank, SharedRun& run) {
  const RunConfig& config = run.config;
  const std::optional<GradientDump>& dump = run.extras.dump;
  require_outputs(config, dump);
  run.algorithms.require_can_be_made();
  if (has_first_rank(run.world)) run.algorithms.read();
  run.weights = find_weights(config);
  const Manifest* resumed = run.weights.resumed ? &*run.weights.resumed : nullptr;
  run.train_data = open_train_data(config, resumed);
  if (eval_micros(config) > 0) {
    run.valid_data = open_valid_data(config);
    run.not_evaluated = leave_out_short_parts(config, eval_sequences(config), run.valid_data);
  }
  if (run.weights.resumed) {
    require_same_position(config, *run.weights.resumed);
    run.first_step = run.weights.resumed->step + 1;
  }
  verify(*run.weights.source, run.world);
  if (dump && (dump->step < run.first_step || dump->step > config.train.steps)) {
    fail_user("--dump-gradients {}: this run makes steps {} to {}; name one of them", dump->step,
              run.first_step, config.train.steps);
  }
  check_documents(config, *run.train_data, config.samples_before(config.train.steps + 1));
  for (const ValidSource& source : run.valid_data) {
    check_valid_data(config, source);
  }
  run.plan = plan_run(rank, eval_micros(config));
  require_fit({.config = config, .transport = transport_of(run.world)}, run.plan,
              memory_limit(config, run.world));
}

// The first rank's: makes the folders and tells how the run begins.
void begin_report(const SharedRun& run, std::optional<Report>& report) {
  make_folders(run.config);
  const Libraries libraries = libraries_of(run.config, run.world);
  report.emplace(
      run.config, fullest_bytes({.config = run.config}, run.plan, libraries), run.first_step,
      peak_flops(run.config.device.kind, run.config.compute_type(), run.config.layout.ranks));
  for (const std::string& damage : run.weights.passed_over) {
    report->message(damage);
  }
  report->message(fmt::format("weights: {}", run.weights.origin));
  report->message(memory_table(run.config.layout, run.plan));
  const std::string taken = library_text(libraries, rank_config(run.config), 0);
  if (!taken.empty()) report->message("libraries take of a GPU, as assumed: " + taken);
  for (const std::string& note : notes_on(run.config)) {
    report->message("note: " + note);
  }
  for (const std::string& prefix : run.not_evaluated) {
    report->message(
        fmt::format("note: {} is not evaluated: its part of data.split has fewer than "
                    "{} sequences",
                    prefix, eval_sequences(run.config)));
  }
}

}  // namespace

int train(const RunConfig& config, const TrainExtras& extras, ProcessWorld* world) {
  // Whoever reads the terminal's lines may go; the run stays.
  std::signal(SIGPIPE, SIG_IGN);
  const RankConfig rank = rank_config(config);
  SharedRun run{.config = config,
                .world = world,
                .extras = extras,
                .plan = {},
                .weights = {},
                .train_data = nullptr,
                .valid_data = {}};
  agree(world, [&] { prepare(rank, run); });
  if (world != nullptr) {
    world->require_same(run.first_step, "the step to begin with",
                        "checkpoint.dir must be one folder for all hosts");
  }
  std::optional<Report> report;
  agree(world, [&] {
    if (has_first_rank(world)) begin_report(run, report);
  });
  if (run.first_step > config.train.steps) {
    if (report) report->message(fmt::format("all {} steps are done", config.train.steps));
    return 0;
  }
  if (extras.self_check) {
    const std::string found = check_layout(
        config, world, [&](const RankConfig& small, const RunPlan& plan, const RankWork& work) {
          run_ranks(small, plan, config.device.kind, world, work);
        });
    if (report) report->message(found);
  }
  run_workers(rank, run, report ? &*report : nullptr);
  if (report) report->finish();
  return run.signal == 0 ? 0 : 128 + run.signal;
}

}  // namespace orthant
