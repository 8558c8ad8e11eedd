// ScheduleFile: a schedule that a person or a program has written, as docs/formats.md says.
#pragma once

#include <string>
#include <string_view>

#include "pipeline/schedule.h"

namespace orthant {

struct ScheduleFile {
  Placement placement;
  Schedule compute;
  int num_micros = 0;
};

// `path` is for messages. Refuses what is not written as it should be, or could not run, with the
// line and the word.
ScheduleFile parse_schedule_file(std::string_view text, const std::string& path, int num_ranks);

}  // namespace orthant
