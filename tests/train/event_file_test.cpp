// The event file against bytes packed by hand (Python's struct and a bitwise CRC), and read back.
#include "train/event_file.h"

#include <bit>
#include <filesystem>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"
#include "base/crc32c.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr double kWall = 1700000000.5;

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return text;
}

// The messages of a file; checks both checksums of each.
std::vector<std::string> messages_of(const std::string& path) {
  const std::string text = read_text_file(path);
  std::vector<std::string> messages;
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t length = 0;
    text.copy(reinterpret_cast<char*>(&length), 8, at);
    messages.push_back(text.substr(at + 12, length));
    EXPECT_EQ(framed_record(messages.back()), text.substr(at, 16 + length));
    at += 16 + length;
  }
  return messages;
}

TEST(EventFile, RecordsEqualTheBytesPackedByHand) {
  EXPECT_EQ(hex(framed_record(version_event(kWall))),
            "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110");
  EXPECT_EQ(hex(framed_record(restart_event(kWall, 301))),
            "100000000000000095fbfe180900002040fc54d94110ad023a020801596f3f79");
  const EventScalar scalars[] = {{"train/loss", 3.25}, {"lr", 3e-4}};
  EXPECT_EQ(hex(framed_record(scalars_event(kWall, 300, scalars))),
            "2c00000000000000f4aecc450900002040fc54d94110ac022a1e0a110a0a747261696e2f6c6f7373150000"
            "50400a090a026c721552499d39948b570d");
}

TEST(EventFile, NonFiniteNumbersAndLongStepsAreKept) {
  const EventScalar scalars[] = {{"a", std::numeric_limits<double>::infinity()}};
  const std::string event = scalars_event(kWall, std::numeric_limits<std::int64_t>::max(), scalars);
  EXPECT_EQ(hex(event.substr(9, 10)), "10ffffffffffffffff7f");
  EXPECT_EQ(hex(event.substr(event.size() - 4)), "0000807f");
}

class EventFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / fmt::format("orthant-{}-{}", info->name(), ::getpid());
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

TEST_F(EventFiles, ANewRunBeginsWithTheVersion) {
  EventFile file(folder_.string(), kWall, 0);
  const EventScalar scalars[] = {{"loss", 1}};
  file.write(kWall + 1, 1, scalars);
  EXPECT_EQ(messages_of(file.path()),
            (std::vector<std::string>{version_event(kWall), scalars_event(kWall + 1, 1, scalars)}));
  EXPECT_EQ(fs::path(file.path()).filename().string().find("events.out.tfevents.1700000000."), 0u);
}

TEST_F(EventFiles, AResumedRunForgetsTheStepsOfALostOne) {
  const EventFile file(folder_.string(), kWall, 300);
  EXPECT_EQ(messages_of(file.path()),
            (std::vector<std::string>{version_event(kWall), restart_event(kWall, 301)}));
}

TEST_F(EventFiles, TwoStartsInOneSecondAreTwoFiles) {
  const EventFile first(folder_.string(), kWall, 0);
  const EventFile second(folder_.string(), kWall, 0);
  EXPECT_NE(first.path(), second.path());
}

}  // namespace
}  // namespace orthant
