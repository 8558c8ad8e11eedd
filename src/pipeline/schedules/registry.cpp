// The schedules that a run file can name.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/text.h"
#include "pipeline/schedule.h"

namespace orthant {
namespace {

struct Named {
  std::string_view name;
  Schedule (*make)(int stages, int micros);  // null: a run file may say it, this version has it not
};

constexpr std::array<Named, 6> kSchedules = {{
    {"gpipe", gpipe},
    {"1f1b", one_f_one_b},
    {"interleaved", nullptr},
    {"zero_bubble", nullptr},
    {"zero_bubble_v", nullptr},
    {"file", nullptr},
}};

}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Named& known : kSchedules) {
    if (known.make != nullptr) names.emplace_back(known.name);
  }
  return names;
}

Schedule make_schedule(std::string_view name, int stages, int micros) {
  std::vector<std::string> all;
  for (const Named& known : kSchedules) {
    if (known.name == name) {
      if (known.make != nullptr) return known.make(stages, micros);
      fail_user("layout.schedule={} is not in this version; use one of: {}", name,
                join(schedule_names()));
    }
    all.emplace_back(known.name);
  }
  fail_user("layout.schedule={} is unknown, the nearest known one is {}; use one of: {}", name,
            nearest(name, all), join(schedule_names()));
}

}  // namespace orthant
