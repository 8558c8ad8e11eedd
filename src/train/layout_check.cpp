#include "train/layout_check.h"

#include <filesystem>
#include <memory>
#include <system_error>

#include "base/check.h"
#include "train/compare_trials.h"
#include "train/run_data.h"
#include "train/run_ranks.h"
#include "train/small_run.h"
#include "train/weights.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

// Is gone when the check ends, however it does.
class CheckFolder {
 public:
  CheckFolder(const RunConfig& run, bool is_first)
      : path_((run.checkpoint.dir.empty() ? run.log.dir : run.checkpoint.dir) +
              "/self-check.partial"),
        is_first_(is_first) {}
  ~CheckFolder() { remove(); }
  CheckFolder(const CheckFolder&) = delete;
  CheckFolder& operator=(const CheckFolder&) = delete;

  const std::string& path() const { return path_; }
  void make() const {
    remove();
    std::error_code error;
    fs::create_directories(path_, error);
    if (error) fail_run("--self-check: {} cannot be made: {}", path_, error.message());
  }
  void require() const {
    std::error_code error;
    if (fs::exists(path_, error)) return;
    fail_user(
        "--self-check: {} is not there for every rank; checkpoint.dir, or log.dir where that is "
        "empty, must be one folder for all hosts",
        path_);
  }

 private:
  void remove() const {
    std::error_code error;
    if (is_first_) fs::remove_all(path_, error);
  }
  std::string path_;
  bool is_first_;
};

}  // namespace

std::string check_layout(const RunConfig& run, ProcessWorld* world, const RankRunner& runner) {
  const bool is_first = has_first_rank(world);
  const CheckFolder folder(run, is_first);
  const RunConfig small = small_run(run, folder.path());
  const UnevenSource weights(static_cast<std::uint64_t>(small.train.seed));
  std::unique_ptr<TokenSource> data;
  agree(world, [&] {
    if (!is_first) return;
    folder.make();
    write_small_data(small);
  });
  agree(world, [&] {
    folder.require();
    data = open_train_data(small, nullptr);
  });
  Trial once{.config = small, .data = *data, .weights = weights, .name = "once"};
  once.run(runner);

  Weights saved;
  agree(world, [&] {
    saved = weights_of_checkpoint(small.model, once.checkpoint_of(Trial::kSavedStep));
    verify(*saved.source, world);
  });
  Trial again{.config = small, .data = *data, .weights = *saved.source, .name = "again"};
  again.resumed = &*saved.resumed;
  again.config.checkpoint.dir = folder.path() + "/again";
  again.run(runner);

  std::string summary;
  agree(world, [&] {
    if (!is_first) return;
    // For so long the others wait for it, whatever layout.deadline_s is.
    constexpr double kBusyS = 600;
    if (world != nullptr) world->sign_of_life(kBusyS);
    const RankRunner here = [&small](const RankConfig& rank, const RunPlan& plan,
                                     const RankWork& work) {
      run_ranks(rank, plan, small.device.kind, nullptr, work);
    };
    const auto on_one = [&](const char* name, std::int64_t micro_batch) {
      Trial trial{.config = small, .data = *data, .weights = weights, .name = name};
      trial.config = on_one_rank(small, micro_batch);
      trial.saves = false;
      trial.run(here);
      return trial;
    };
    const std::int64_t micro_batch = small.layout.micro_batch;
    summary = compare_with_one_rank(once, on_one("whole", small.train.global_batch), here);
    if (keeps_bits(small)) compare_bits(once, on_one("micros", micro_batch), here);
    compare_resumed(once, again);
  });
  return fmt::format(
      "self-check: the layout trains what one rank does: on a small {} {}; its checkpoint goes on "
      "with the same {}",
      small.model.family, summary, repeats_bits(small) ? "bits" : "losses");
}

}  // namespace orthant
