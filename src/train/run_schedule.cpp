#include "train/run_schedule.h"

#include "base/check.h"
#include "base/file.h"

namespace orthant {
namespace {

// All parts of a stage are in one place: their number is the schedule's.
void settle_count(LayoutConfig& layout, int count, const char* why) {
  if (layout.virtual_stages != 1 && layout.virtual_stages != count) {
    fail_user(
        "layout.virtual_stages={} does not go with layout.schedule='{}', {}; use {}, or "
        "layout.schedule='interleaved'",
        layout.virtual_stages, layout.schedule, why, count);
  }
  layout.virtual_stages = count;
}

}  // namespace

ScheduleChoice schedule_choice(const LayoutConfig& layout) {
  const bool is_file = layout.schedule == "file";
  return {.name = layout.schedule,
          .num_ranks = layout.pp,
          .num_chunks = layout.virtual_stages,
          .path = layout.schedule_file,
          .text = is_file ? read_text_file(layout.schedule_file) : std::string()};
}

void settle_schedule(RunConfig& config) {
  LayoutConfig& layout = config.layout;
  if (layout.schedule == "interleaved") {
    if (layout.virtual_stages <= kMaxChunks) return;
    fail_user("layout.virtual_stages={} is above {}; lower it", layout.virtual_stages, kMaxChunks);
  }
  if (layout.schedule == "zero_bubble_v") {
    return settle_count(layout, 2, "whose stages have two parts");
  }
  if (layout.schedule != "file") {
    return settle_count(layout, 1, "whose stages are one part each");
  }
  const ScheduleChoice choice = schedule_choice(layout);
  settle_count(layout, placement_of(choice).num_chunks(0), "whose file says how many parts");
  for (const std::int64_t batch : config.step_batches()) {
    (void)make_schedule(choice, static_cast<int>(batch / (layout.micro_batch * layout.dp())));
  }
}

}  // namespace orthant
