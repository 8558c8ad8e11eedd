// Programs: the lists that the ranks of a run follow, lowered and proven, each made once for a
// number of micro-batches and shared by all ranks of a process.
#pragma once

#include <deque>
#include <mutex>

#include "pipeline/schedule.h"

namespace orthant {

class Programs {
 public:
  explicit Programs(ScheduleChoice choice);
  ~Programs() = default;
  Programs(const Programs&) = delete;
  Programs& operator=(const Programs&) = delete;

  const Placement& placement() const { return placement_; }

  // Of all ranks; stays where it is. May be called from several threads. Throws simulate()'s error
  // when a rank could wait for ever.
  const Schedule& training(int micros);
  const Schedule& evaluation(int micros);

 private:
  struct Made {
    int micros;
    Schedule lowered;
  };
  const Schedule& find_or_make(std::deque<Made>& made, int micros, bool trains);

  ScheduleChoice choice_;
  Placement placement_;
  std::mutex mutex_;
  std::deque<Made> trainings_;
  std::deque<Made> evaluations_;
};

}  // namespace orthant
