// The schedules that a run file can name.
#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "pipeline/schedule_file.h"

namespace orthant {
namespace {

struct Named {
  std::string_view name;
  Placement (*place)(const ScheduleChoice& choice);
  Schedule (*make)(const ScheduleChoice& choice, int micros);
};

Placement place_straight(const ScheduleChoice& choice) {
  return straight(choice.num_ranks);
}

ScheduleFile read_file(const ScheduleChoice& choice) {
  return parse_schedule_file(choice.text, choice.path, choice.num_ranks);
}

Schedule take_file(const ScheduleChoice& choice, int micros) {
  ScheduleFile file = read_file(choice);
  if (file.num_micros == micros) return std::move(file.compute);
  fail_user(
      "layout.schedule_file={} is for {} micro-batches, a step has {}; write them, or change "
      "train.global_batch or layout.micro_batch",
      choice.path, file.num_micros, micros);
}

constexpr std::array<Named, 6> kSchedules = {{
    {"gpipe", place_straight,
     [](const ScheduleChoice& choice, int micros) {
       return gpipe(choice.num_ranks, micros);
     }},
    {"1f1b", place_straight,
     [](const ScheduleChoice& choice, int micros) {
       return one_f_one_b(choice.num_ranks, micros);
     }},
    {"interleaved",
     [](const ScheduleChoice& choice) { return looped(choice.num_ranks, choice.num_chunks); },
     [](const ScheduleChoice& choice, int micros) {
       return interleaved(choice.num_ranks, choice.num_chunks, micros);
     }},
    {"zero_bubble", place_straight,
     [](const ScheduleChoice& choice, int micros) {
       return zero_bubble(choice.num_ranks, micros);
     }},
    {"zero_bubble_v", [](const ScheduleChoice& choice) { return v_shape(choice.num_ranks); },
     [](const ScheduleChoice& choice, int micros) {
       return zero_bubble_v(choice.num_ranks, micros);
     }},
    {"file", [](const ScheduleChoice& choice) { return read_file(choice).placement; }, take_file},
}};

const Named& named(const std::string& name) {
  const auto* found = std::find_if(kSchedules.begin(), kSchedules.end(),
                                   [&name](const Named& known) { return known.name == name; });
  if (found != kSchedules.end()) return *found;
  fail_user("layout.schedule={} is unknown, the nearest known one is {}; use one of: {}", name,
            nearest(name, schedule_names()), join(schedule_names()));
}

}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Named& known : kSchedules) {
    names.emplace_back(known.name);
  }
  return names;
}

Placement placement_of(const ScheduleChoice& choice) {
  return named(choice.name).place(choice);
}

Schedule make_schedule(const ScheduleChoice& choice, int micros) {
  return named(choice.name).make(choice, micros);
}

}  // namespace orthant
