// How far a run is: one line rewritten in place on a terminal, plain lines at a sensible rate in a
// log file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "train/valid_loss.h"

namespace orthant {

// Where the display goes. The file stays open and belongs to the caller.
struct ProgressOutput {
  std::FILE* file = nullptr;
  bool is_terminal = false;
  int columns = 0;                // of the terminal; 0: asked of it at every line
  std::function<double()> now_s;  // a clock that never goes back
};

// Of `file`: a terminal if it is one, with the steady clock.
ProgressOutput progress_output(std::FILE* file);

struct ProgressStep {
  std::int64_t step = 0;  // from 1
  double loss = 0;
  double tokens_per_s = 0;
  double mfu = std::numeric_limits<double>::quiet_NaN();  // 0..1; NaN is not shown
};

// "45 s", "3 min 20 s", "2 h 05 min", "3 d 04 h".
std::string format_duration(double seconds);

class Progress {
 public:
  // Steps first_step .. last_step will be shown; the time left is estimated from their rate.
  Progress(ProgressOutput output, std::int64_t first_step, std::int64_t last_step);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const ProgressStep& step);
  // Always a line of its own, and below it one for each source where there are several.
  void evaluation(std::int64_t step, const EvalResult& valid);
  void message(std::string_view text);  // a line of its own above the progress
  void finish();  // leaves the last state standing; called by the destructor too

 private:
  void put(const std::string& text);
  void rewrite_line();
  void print_line(std::string_view text);
  bool is_log_line_due(double now_s) const;
  std::string state_text(std::size_t columns) const;

  ProgressOutput output_;
  std::int64_t first_step_;
  std::int64_t last_step_;
  ProgressStep last_;            // the newest step; 0 before the first
  double last_step_s_ = 0;       // when it ended
  double seconds_per_step_ = 0;  // smoothed; 0: not known yet
  std::int64_t printed_step_ = 0;
  double printed_s_ = 0;
  bool has_open_line_ = false;  // a terminal line that is not ended
};

}  // namespace orthant
