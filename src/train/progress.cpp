// The most important parts of the line come first; a narrow terminal loses the last ones.
#include "train/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace orthant {
namespace {

constexpr double kTerminalSeconds = 0.1;  // between two rewrites
constexpr double kLogSeconds = 60;        // a log line at least this often
constexpr double kLogPercentSeconds = 1;  // and one per percent, but not more often than this

double steady_now_s() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

int columns_of(std::FILE* file) {
  constexpr int kDefault = 80;
  winsize size = {};
  if (::ioctl(::fileno(file), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefault;
  return size.ws_col;
}

// "1234" -> "1234", "45678" -> "45.7k", "1.2M".
std::string format_rate(double rate) {
  if (!std::isfinite(rate)) return "?";
  if (rate < 10e3) return fmt::format("{:.0f}", rate);
  if (rate < 10e6) return fmt::format("{:.1f}k", rate / 1e3);
  return fmt::format("{:.1f}M", rate / 1e6);
}

// One line without control characters, whatever the text holds.
std::string as_one_line(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = ' ';
  }
  return line;
}

}  // namespace

ProgressOutput progress_output(std::FILE* file) {
  return {.file = file,
          .is_terminal = ::isatty(::fileno(file)) != 0,
          .columns = 0,
          .now_s = steady_now_s};
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "?";
  const auto total = static_cast<std::int64_t>(std::llround(seconds));
  if (total < 60) return fmt::format("{} s", total);
  if (total < 3600) return fmt::format("{} min {:02} s", total / 60, total % 60);
  const std::int64_t minutes = total / 60;
  if (minutes < 24 * 60) return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
  const std::int64_t hours = minutes / 60;
  return fmt::format("{} d {:02} h", hours / 24, hours % 24);
}

Progress::Progress(ProgressOutput output, std::int64_t first_step, std::int64_t last_step)
    : output_(std::move(output)),
      first_step_(first_step),
      last_step_(last_step),
      last_step_s_(output_.now_s()) {}

Progress::~Progress() {
  finish();
}

// Steps differ in time, the first most of all: a smoothed time follows a change within some steps.
void Progress::step(const ProgressStep& step) {
  constexpr double kShare = 0.1;  // of the newest step in the smoothed time
  const double now_s = output_.now_s();
  const double seconds = now_s - last_step_s_;
  const bool is_second = last_.step == first_step_;
  seconds_per_step_ =
      last_.step == 0 || is_second ? seconds : (1 - kShare) * seconds_per_step_ + kShare * seconds;
  last_ = step;
  last_step_s_ = now_s;
  if (output_.is_terminal) {
    const bool is_last = step.step == last_step_;
    if (is_last || printed_step_ == 0 || now_s - printed_s_ >= kTerminalSeconds) rewrite_line();
  } else if (is_log_line_due(now_s)) {
    print_line(state_text(std::string::npos));
    printed_step_ = step.step;
    printed_s_ = now_s;
  }
}

bool Progress::is_log_line_due(double now_s) const {
  if (printed_step_ == 0 || last_.step == last_step_) return true;
  const double since_s = now_s - printed_s_;
  const auto percent = [this](std::int64_t step) {
    return step * 100 / std::max<std::int64_t>(last_step_, 1);
  };
  const bool is_new_percent = percent(last_.step) > percent(printed_step_);
  return since_s >= kLogSeconds || (is_new_percent && since_s >= kLogPercentSeconds);
}

// As many parts as fit.
std::string Progress::state_text(std::size_t columns) const {
  std::vector<std::string> parts = {fmt::format("step {}/{}", last_.step, last_step_),
                                    fmt::format("loss {:.4f}", last_.loss),
                                    fmt::format("{} tokens/s", format_rate(last_.tokens_per_s))};
  if (std::isfinite(last_.mfu)) parts.push_back(fmt::format("{:.1f}% of peak", 100 * last_.mfu));
  const double left_s = static_cast<double>(last_step_ - last_.step) * seconds_per_step_;
  parts.push_back(format_duration(left_s) + " left");
  std::string text;
  for (const std::string& part : parts) {
    const std::string more = text.empty() ? part : "  " + part;
    if (text.size() + more.size() > columns) break;
    text += more;
  }
  return text.empty() ? parts[0].substr(0, columns) : text;
}

// A display that cannot be written to, say a closed pipe, is no reason to end a run.
void Progress::put(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), output_.file);
  std::fflush(output_.file);
}

void Progress::rewrite_line() {
  // The last column stays free: some terminals wrap when it is written.
  const int columns = output_.columns > 0 ? output_.columns : columns_of(output_.file);
  const std::string text = state_text(static_cast<std::size_t>(std::max(columns - 1, 1)));
  put("\r" + text + "\x1b[K");  // and clears the rest of the line
  printed_step_ = last_.step;
  printed_s_ = output_.now_s();
  has_open_line_ = true;
}

void Progress::print_line(std::string_view text) {
  const char* clear = has_open_line_ ? "\r\x1b[K" : "";
  put(clear + as_one_line(text) + "\n");
  if (has_open_line_) rewrite_line();
}

void Progress::evaluation(std::int64_t step, const EvalResult& valid) {
  print_line(fmt::format("step {}/{}  valid loss {:.4f}  perplexity {:.2f}", step, last_step_,
                         valid.loss, perplexity(valid.loss)));
  if (valid.sources.size() < 2) return;
  for (const SourceLoss& source : valid.sources) {
    print_line(fmt::format("  {}  valid loss {:.4f}  perplexity {:.2f}", source.prefix, source.loss,
                           perplexity(source.loss)));
  }
}

void Progress::message(std::string_view text) {
  print_line(text);
}

void Progress::finish() {
  if (output_.is_terminal && last_.step != printed_step_) rewrite_line();
  if (has_open_line_) {
    put("\n");
  } else if (!output_.is_terminal && last_.step != printed_step_) {
    print_line(state_text(std::string::npos));
  }
  printed_step_ = last_.step;
  has_open_line_ = false;
}

}  // namespace orthant
