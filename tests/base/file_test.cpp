#include "base/file.h"

#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"

namespace orthant {
namespace {

class FileTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() /
      fmt::format("orthant_file_test_{}_{}", ::getpid(),
                  testing::UnitTest::GetInstance()->current_test_info()->name());
};

Fault fault_of(const std::function<void()>& act, const std::string& path) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    return error.fault();
  }
  ADD_FAILURE() << "no error";
  return Fault::kPlan;
}

TEST_F(FileTest, ReadsBackWhatWasWritten) {
  const std::string text("line\nwith \0 inside", 18);
  write_file_atomically(path("a"), text);
  EXPECT_EQ(read_text_file(path("a")), text);
  const MappedFile mapped(path("a"));
  EXPECT_EQ(mapped.bytes().size(), text.size());
  EXPECT_EQ(mapped.bytes()[5], std::byte{'w'});
  write_file_atomically(path("a"), "");
  EXPECT_EQ(read_text_file(path("a")), "");
  EXPECT_TRUE(MappedFile(path("a")).bytes().empty());
  EXPECT_FALSE(std::filesystem::exists(path("a.partial")));
}

TEST_F(FileTest, AFailedWriteLeavesTheOldFile) {
  write_file_atomically(path("a"), "old");
  std::filesystem::create_directory(path("a.partial"));
  EXPECT_THROW(write_file_atomically(path("a"), "new"), Error);
  EXPECT_EQ(read_text_file(path("a")), "old");
}

TEST_F(FileTest, ReadsAndWritesAtPositions) {
  File file(path("a"), File::Mode::kCreate);
  file.resize(10);
  EXPECT_EQ(file.size(), 10);
  const std::byte sent[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
  file.write(sent, 7);
  file.append("tail");
  file.sync();
  std::vector<std::byte> received(4);
  const File again(path("a"), File::Mode::kRead);
  again.read(received, 6);
  EXPECT_EQ(received[0], std::byte{0});
  EXPECT_EQ(received[3], std::byte{3});
  EXPECT_EQ(again.size(), 14);
}

TEST_F(FileTest, ATruncatedFileIsAUserErrorWithItsPath) {
  write_file_atomically(path("a"), "12345");
  const File file(path("a"), File::Mode::kRead);
  std::vector<std::byte> buffer(4);
  EXPECT_EQ(fault_of([&] { file.read(buffer, 3); }, path("a")), Fault::kUser);
}

TEST_F(FileTest, WhatIsMissingOrAFolderIsAUserErrorWithItsPath) {
  const std::string missing = path("none");
  EXPECT_EQ(fault_of([&] { (void)read_text_file(missing); }, missing), Fault::kUser);
  EXPECT_EQ(fault_of([&] { const MappedFile mapped(missing); }, missing), Fault::kUser);
  const std::string folder = folder_.string();
  EXPECT_EQ(fault_of([&] { (void)read_text_file(folder); }, folder), Fault::kUser);
  EXPECT_EQ(fault_of([&] { const MappedFile mapped(folder); }, folder), Fault::kUser);
  EXPECT_EQ(fault_of([&] { write_file_atomically(missing + "/b", "x"); }, missing), Fault::kUser);
}

TEST_F(FileTest, AFolderIsLockedForOneAtATime) {
  constexpr int kTimes = 50;
  write_file_atomically(path("count"), "0");
  const auto count_up = [&] {
    for (int i = 0; i < kTimes; ++i) {
      const FolderLock lock(folder_.string());
      write_file_atomically(path("count"),
                            std::to_string(std::stoi(read_text_file(path("count"))) + 1));
    }
  };
  std::thread other(count_up);
  count_up();
  other.join();
  EXPECT_EQ(read_text_file(path("count")), std::to_string(2 * kTimes));
}

TEST_F(FileTest, OwnersMove) {
  write_file_atomically(path("a"), "abc");
  MappedFile mapped(path("a"));
  const MappedFile moved(std::move(mapped));
  EXPECT_EQ(moved.bytes().size(), 3u);
  File file(path("a"), File::Mode::kWrite);
  File other(std::move(file));
  other.append("d");
  EXPECT_EQ(other.size(), 4);
}

}  // namespace
}  // namespace orthant
