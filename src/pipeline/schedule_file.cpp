#include "pipeline/schedule_file.h"

#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "pipeline/boundary.h"

namespace orthant {
namespace {

constexpr std::string_view kSpace = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// Takes the first word off the text.
std::string_view take_word(std::string_view& text) {
  text = trimmed(text);
  const std::string_view word = text.substr(0, text.find_first_of(kSpace));
  text.remove_prefix(word.size());
  return word;
}

std::optional<int> read_number(std::string_view word) {
  int number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return number;
}

class Reader {
 public:
  Reader(const std::string& path, int num_ranks) : path_(path), num_ranks_(num_ranks) {}

  ScheduleFile read(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      ++line_;
      read_line(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (!placement_) {
      fail_user("layout.schedule_file={} has no line 'placement straight', 'looped N' or 'v'",
                path_);
    }
    if (static_cast<int>(compute_.size()) != num_ranks_) {
      fail_user("layout.schedule_file={} has {} ranks, layout.pp={}; write a line for each", path_,
                compute_.size(), num_ranks_);
    }
    prove();
    return {std::move(*placement_), compute_, count_micros(compute_)};
  }

 private:
  void read_line(std::string_view line) {
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) return;
    const std::string_view first = take_word(line);
    if (!placement_) {
      if (first != "placement") fail_word(first, "the first line names the placement");
      read_placement(line);
    } else {
      if (first != "rank") fail_word(first, "a line is 'rank N:' and its actions");
      read_rank(line);
    }
  }

  void read_placement(std::string_view line) {
    const std::string_view name = take_word(line);
    if (name == "straight") {
      placement_ = straight(num_ranks_);
    } else if (name == "v") {
      placement_ = v_shape(num_ranks_);
    } else if (name == "looped") {
      const std::string_view loops = take_word(line);
      const std::optional<int> count = read_number(loops);
      if (!count || *count < 1 || *count > kMaxChunks) {
        fail_word(loops, fmt::format("'looped' takes the parts of a rank, 1 to {}", kMaxChunks));
      }
      placement_ = looped(num_ranks_, *count);
    } else {
      fail_word(name, "a placement is 'straight', 'looped N' or 'v'");
    }
    if (!trimmed(line).empty()) fail_word(take_word(line), "nothing follows the placement");
  }

  void read_rank(std::string_view line) {
    const std::string_view number = take_word(line);
    if (number != fmt::format("{}:", compute_.size())) {
      fail_word(number, fmt::format("here comes 'rank {}:'", compute_.size()));
    }
    RankActions actions;
    for (std::string_view word = take_word(line); !word.empty(); word = take_word(line)) {
      actions.push_back(read_action(word));
    }
    compute_.push_back(std::move(actions));
    lines_.push_back(line_);
  }

  Action read_action(std::string_view word) const {
    RankActions actions;
    try {
      actions = from_text(word);
    } catch (const Error& error) {
      fail(error.what());
    }
    if (is_compute(actions.front().kind)) return actions.front();
    fail_word(word, "messages are added by themselves; leave them out");
  }

  // What simulate() finds is the writer's to mend.
  void prove() const {
    try {
      simulate(lower(compute_, *placement_), *placement_);
    } catch (const ScheduleError& error) {
      fail_user("layout.schedule_file={} line {}: {}", path_,
                lines_[static_cast<std::size_t>(error.rank())], error.what());
    }
  }

  [[noreturn]] void fail(const std::string& what) const {
    fail_user("layout.schedule_file={} line {}: {}", path_, line_, what);
  }
  [[noreturn]] void fail_word(std::string_view word, const std::string& what) const {
    fail(fmt::format("'{}' is found; {}", word, what));
  }

  const std::string& path_;
  int num_ranks_;
  int line_ = 0;
  std::optional<Placement> placement_;
  Schedule compute_;
  std::vector<int> lines_;  // of each rank
};

}  // namespace

ScheduleFile parse_schedule_file(std::string_view text, const std::string& path, int num_ranks) {
  return Reader(path, num_ranks).read(text);
}

}  // namespace orthant
