// The schedule of a run file: what the pipeline is asked for, and whether it fits the run.
#pragma once

#include "pipeline/schedule.h"
#include "train/run_config.h"

namespace orthant {

// Reads the file of a schedule "file".
ScheduleChoice schedule_choice(const LayoutConfig& layout);

// Fills layout.virtual_stages where the schedule decides it. Refuses what does not go with the
// schedule, and a schedule file that could not run or is for other micro-batches.
void settle_schedule(RunConfig& config);

}  // namespace orthant
