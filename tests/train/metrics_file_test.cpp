// metrics.jsonl: the keys of a line, and what a resumed run finds and leaves.
#include "train/metrics_file.h"

#include <filesystem>
#include <limits>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"
#include "base/json.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

class Metrics : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / fmt::format("orthant-{}-{}", info->name(), ::getpid());
    fs::create_directories(folder_);
    path_ = (folder_ / "log" / "metrics.jsonl").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
  std::string path_;
};

StepMetrics step(std::int64_t number) {
  StepMetrics metrics;
  metrics.step = number;
  return metrics;
}

TEST_F(Metrics, ALineHasTheKeysInTheirOrder) {
  const StepMetrics metrics = {.step = 3,
                               .loss = 5.5,
                               .grad_norm = 0.1,
                               .lr = 3e-5,
                               .tokens = 3000000000,
                               .step_ms = 12,
                               .tokens_per_s = 1e6,
                               .tflops_per_rank = 0.25,
                               .mfu = 0.5,
                               .peak_bytes = 7,
                               .valid_loss = 6.25};
  const ExtraMetric extra[] = {{"loss_scale", 1024}};
  EXPECT_EQ(metrics_line(metrics, extra),
            "{\"step\":3,\"loss\":5.5,\"grad_norm\":0.1,\"lr\":3e-05,\"tokens\":3000000000,"
            "\"step_ms\":12,\"tokens_per_s\":1000000,\"tflops_per_rank\":0.25,\"mfu\":0.5,"
            "\"peak_bytes\":7,\"valid_loss\":6.25,\"loss_scale\":1024}\n");
}

TEST_F(Metrics, NumbersReadBackToTheSameBitsAndNonFiniteOnesAreNull) {
  StepMetrics metrics = step(1);
  metrics.loss = 0.1 + 0.2;
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  metrics.lr = std::numeric_limits<double>::denorm_min();
  metrics.valid_loss = std::numeric_limits<double>::quiet_NaN();
  const Json parsed = Json::parse(metrics_line(metrics));
  EXPECT_EQ(parsed.at("loss").get<double>(), 0.1 + 0.2);
  EXPECT_EQ(parsed.at("lr").get<double>(), std::numeric_limits<double>::denorm_min());
  EXPECT_TRUE(parsed.at("grad_norm").is_null());
  EXPECT_TRUE(parsed.at("mfu").is_null());
  EXPECT_TRUE(parsed.at("valid_loss").is_null());
}

TEST_F(Metrics, EachLineIsInTheFileAtOnce) {
  MetricsFile file(path_, 0);
  file.write(metrics_line(step(1)));
  EXPECT_EQ(read_text_file(path_), metrics_line(step(1)));
  file.write(metrics_line(step(2)));
  EXPECT_EQ(read_text_file(path_), metrics_line(step(1)) + metrics_line(step(2)));
}

TEST_F(Metrics, AResumedRunTakesOutWhatALostRunWroteLater) {
  {
    MetricsFile file(path_, 0);
    for (int i = 1; i <= 12; ++i) {
      file.write(metrics_line(step(i)));
    }
  }
  MetricsFile file(path_, 9);
  std::string expected;
  for (int i = 1; i <= 9; ++i) {
    expected += metrics_line(step(i));
  }
  EXPECT_EQ(read_text_file(path_), expected);
  file.write(metrics_line(step(10)));
  EXPECT_EQ(read_text_file(path_), expected + metrics_line(step(10)));
}

TEST_F(Metrics, ALineThatACrashCutOffIsTakenOut) {
  fs::create_directories(folder_ / "log");
  const std::string good = metrics_line(step(1));
  const std::string zeros(100, '\0');
  for (const std::string& tail :
       {std::string("{\"step\":2,\"lo"), metrics_line(step(2)).substr(0, good.size() - 1), zeros,
        zeros + "\n", std::string("[2]\n"), std::string("{}\n"), std::string("\n")}) {
    write_file_atomically(path_, good + tail);
    MetricsFile file(path_, 5);
    file.write(metrics_line(step(6)));
    EXPECT_EQ(read_text_file(path_), good + metrics_line(step(6)));
  }
}

TEST_F(Metrics, AFolderThatCannotBeMadeIsAnError) {
  EXPECT_THROW(MetricsFile("/proc/nowhere/metrics.jsonl", 0), Error);
}

}  // namespace
}  // namespace orthant
