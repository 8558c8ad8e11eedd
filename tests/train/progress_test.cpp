// The progress display with an injected clock, on a terminal of given width and in a log file.
#include "train/progress.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include <gtest/gtest.h>

#include "base/text.h"

namespace orthant {
namespace {

// A FILE in memory and a clock that the test moves.
class Screen {
 public:
  Screen() : file_(::open_memstream(&data_, &size_)) {}
  ~Screen() {
    std::fclose(file_);
    std::free(data_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  ProgressOutput output(bool is_terminal, int columns = 80) {
    return {.file = file_, .is_terminal = is_terminal, .columns = columns, .now_s = [this] {
              return now_s;
            }};
  }
  std::string text() const {
    std::fflush(file_);
    return {data_, size_};
  }

  double now_s = 1000;

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* file_;
};

ProgressStep step(std::int64_t number) {
  return {.step = number, .loss = 3.5, .tokens_per_s = 12345, .mfu = 0.412};
}

bool has_control(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n'; });
}

std::int64_t count_lines(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

TEST(Progress, ATerminalLineIsRewrittenInPlace) {
  Screen screen;
  {
    Progress progress(screen.output(true), 1, 10);
    screen.now_s += 2;
    progress.step(step(1));
    screen.now_s += 1;
    progress.step(step(2));
    EXPECT_EQ(screen.text(),
              "\rstep 1/10  loss 3.5000  12.3k tokens/s  41.2% of peak  18 s left\x1b[K"
              "\rstep 2/10  loss 3.5000  12.3k tokens/s  41.2% of peak  8 s left\x1b[K");
  }
  EXPECT_EQ(screen.text().back(), '\n');
  EXPECT_EQ(count_lines(screen.text()), 1);
}

TEST(Progress, ANarrowTerminalLosesTheLastParts) {
  const std::vector<std::pair<int, std::string>> cases = {
      {80, "step 1/10  loss 3.5000  12.3k tokens/s  41.2% of peak  18 s left"},
      {65, "step 1/10  loss 3.5000  12.3k tokens/s  41.2% of peak  18 s left"},
      {64, "step 1/10  loss 3.5000  12.3k tokens/s  41.2% of peak"},
      {30, "step 1/10  loss 3.5000"},
      {10, "step 1/10"},
      {6, "step "},
      {1, "s"}};
  for (const auto& [columns, line] : cases) {
    Screen screen;
    Progress progress(screen.output(true, columns), 1, 10);
    screen.now_s += 2;
    progress.step(step(1));
    EXPECT_EQ(screen.text(), "\r" + line + "\x1b[K") << columns;
  }
}

TEST(Progress, FastStepsRewriteTenTimesASecondAndTheLastIsShown) {
  Screen screen;
  Progress progress(screen.output(true), 1, 1000);
  for (int i = 1; i <= 1000; ++i) {
    screen.now_s += 0.001;
    progress.step(step(i));
  }
  const std::string text = screen.text();
  EXPECT_LE(std::count(text.begin(), text.end(), '\r'), 12);
  EXPECT_NE(text.find("step 1000/1000"), std::string::npos);
}

TEST(Progress, MessagesStandAboveTheTerminalLine) {
  Screen screen;
  Progress progress(screen.output(true), 1, 10);
  progress.message("first");
  progress.step(step(1));
  const std::size_t before = screen.text().size();
  progress.evaluation(1, {.loss = 2, .tokens = 8, .sources = {}});
  const std::string text = screen.text().substr(before);
  EXPECT_EQ(text.find("\r\x1b[Kstep 1/10  valid loss 2.0000  perplexity 7.39\n\rstep 1/10  loss"),
            0u);
}

TEST(Progress, EachOfSeveralSourcesHasALine) {
  Screen screen;
  Progress progress(screen.output(false), 1, 10);
  progress.evaluation(1, {.loss = 1.5,
                          .tokens = 40,
                          .sources = {{.prefix = "a", .loss = 1, .tokens = 30},
                                      {.prefix = "b", .loss = 3, .tokens = 10}}});
  EXPECT_EQ(screen.text(),
            "step 1/10  valid loss 1.5000  perplexity 4.48\n"
            "  a  valid loss 1.0000  perplexity 2.72\n"
            "  b  valid loss 3.0000  perplexity 20.09\n");
}

TEST(Progress, ALogFileHasPlainLinesAtASensibleRate) {
  Screen screen;
  {
    Progress progress(screen.output(false), 1, 1000);
    for (int i = 1; i <= 1000; ++i) {
      screen.now_s += 0.25;  // one percent takes 2.5 s
      progress.step(step(i));
    }
  }
  EXPECT_FALSE(has_control(screen.text()));
  EXPECT_EQ(count_lines(screen.text()), 101);
  EXPECT_NE(
      screen.text().find("step 10/1000  loss 3.5000  12.3k tokens/s  41.2% of peak  4 min 08 s "
                         "left\n"),
      std::string::npos)
      << screen.text().substr(0, 300);
}

TEST(Progress, ALogOfAFastRunIsShortAndOfASlowOneShowsEachMinute) {
  Screen fast;
  {
    Progress progress(fast.output(false), 1, 100);
    for (int i = 1; i <= 100; ++i) {
      fast.now_s += 0.01;
      progress.step(step(i));
    }
  }
  EXPECT_LE(count_lines(fast.text()), 3);
  EXPECT_NE(fast.text().find("step 100/100"), std::string::npos);
  Screen slow;
  Progress progress(slow.output(false), 1, 1000000);
  for (int i = 1; i <= 600; ++i) {
    slow.now_s += 1;
    progress.step(step(i));
  }
  EXPECT_EQ(count_lines(slow.text()), 10);
}

TEST(Progress, EvaluationsAndMessagesAreAlwaysInTheLog) {
  Screen screen;
  Progress progress(screen.output(false), 1, 1000);
  progress.message("saved \x1b[1mstep\r 3\n");
  for (int i = 1; i <= 3; ++i) {
    progress.evaluation(i, {.loss = 1.5, .tokens = 8, .sources = {}});
  }
  EXPECT_EQ(count_lines(screen.text()), 4);
  EXPECT_FALSE(has_control(screen.text()));
}

TEST(Progress, AnEarlyEndShowsTheLastStep) {
  Screen screen;
  {
    Progress progress(screen.output(false), 1, 1000);
    progress.step(step(1));
    progress.step(step(2));
    progress.finish();
  }
  EXPECT_EQ(count_lines(screen.text()), 2);
  EXPECT_NE(screen.text().find("step 2/1000"), std::string::npos);
  Screen empty;
  { const Progress progress(empty.output(true), 1, 10); }
  EXPECT_EQ(empty.text(), "");
}

TEST(Progress, ANumberThatIsNotKnownIsNotShown) {
  Screen screen;
  Progress progress(screen.output(false), 5, 10);
  progress.step({.step = 5, .loss = 1, .tokens_per_s = 10});
  EXPECT_EQ(screen.text(), "step 5/10  loss 1.0000  10 tokens/s  0 s left\n");
}

TEST(Progress, DurationsAreShort) {
  EXPECT_EQ(format_duration(0.4), "0 s");
  EXPECT_EQ(format_duration(59.4), "59 s");
  EXPECT_EQ(format_duration(200), "3 min 20 s");
  EXPECT_EQ(format_duration(7500), "2 h 05 min");
  EXPECT_EQ(format_duration(3 * 86400 + 4 * 3600 + 100), "3 d 04 h");
  EXPECT_EQ(format_duration(1.0 / 0.0), "?");
  EXPECT_EQ(format_duration(-1), "?");
}

}  // namespace
}  // namespace orthant
