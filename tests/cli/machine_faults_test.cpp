// What the machine refuses: full disks, limits, folders that cannot be made or written.
#include <cerrno>
#include <cstring>

#include <sys/mount.h>

#include "tests/cli/binary.h"

namespace orthant::test {
namespace {

namespace fs = std::filesystem;

// A small file system in memory, for as long as it lives.
class Mounted {
 public:
  Mounted(std::string path, const char* options)
      : path_(std::move(path)),
        error_(mount(path_, options)) {}
  ~Mounted() {
    if (error_ == 0) ::umount2(path_.c_str(), MNT_DETACH);
  }
  Mounted(const Mounted&) = delete;
  Mounted& operator=(const Mounted&) = delete;
  int error() const { return error_; }
  bool make_read_only() const {
    return ::mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "") == 0;
  }

 private:
  static int mount(const std::string& path, const char* options) {
    fs::create_directories(path);
    return ::mount("tmpfs", path.c_str(), "tmpfs", 0, options) == 0 ? 0 : errno;
  }
  std::string path_;
  int error_;
};

class MachineFaults : public Workplace {
 protected:
  // The run of steps 3 and 4 has failed at its save; what stood before is whole.
  void expect_kept(const std::map<std::string, std::string>& before) const {
    EXPECT_TRUE(files_of("ckpt") == before)
        << fmt::format("{}", fmt::join(names_of(files_of("ckpt")), " "));
    const Finished loss =
        run({"eval", "run.toml", "--train.eval_steps=1", "--checkpoint", "ckpt/step-00000002"});
    EXPECT_EQ(loss.status, 0) << loss.err;
  }
};

TEST_F(MachineFaults, AFullDiskKeepsTheOldCheckpoint) {
  const Mounted small(at("ckpt"), "size=1100k");  // one checkpoint of 720 KiB
  if (small.error() != 0) GTEST_SKIP() << "cannot mount a tmpfs: " << std::strerror(small.error());
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{}, {"--layout.ranks=4", "--layout.tp=2", "--layout.pp=2"}}) {
    std::vector<std::string> options = {"--checkpoint.interval=2"};
    options.insert(options.end(), layout.begin(), layout.end());
    fs::remove_all(at("ckpt/step-00000002"));
    const Finished done = train(options);
    expect_message(done, 1, {"No space left", "ckpt/step-00000004"});
    EXPECT_NE(done.err.find("step 2: checkpoint saved"), std::string::npos) << done.err;
    EXPECT_EQ(losses("log").size(), 4U);
    const auto kept = files_of("ckpt");
    EXPECT_TRUE(kept.contains("step-00000002/manifest.json"));
    EXPECT_FALSE(kept.contains("step-00000004.partial"));
    expect_message(train(options), 1, {"No space left"});
    expect_kept(kept);
  }
}

TEST_F(MachineFaults, AFileThatMayNotGrowKeepsTheOldCheckpoint) {
  expect_trains({"--checkpoint.interval=2"});
  fs::remove_all(at("ckpt/step-00000004"));
  const auto kept = files_of("ckpt");
  const Finished done = train({"--layout.ranks=4", "--layout.tp=2", "--layout.pp=2"},
                              {.file_bytes = 50'000, .out = ""});
  expect_message(done, 1, {"File too large", "ckpt/step-00000004"});
  expect_kept(kept);
  expect_message(
      train({"--dump-gradients", "3", "grads.safetensors"}, {.file_bytes = 50'000, .out = ""}), 1,
      {"File too large"});
  expect_kept(kept);
  for (const auto& [name, content] : files_of("")) {
    EXPECT_EQ(name.find("grads"), std::string::npos) << name;
  }
}

TEST_F(MachineFaults, TrainingGoesOnWithoutACheckpointWhenAsked) {
  for (const char* ranks : {"--layout.ranks=1", "--layout.ranks=4"}) {
    const Mounted small(at("ckpt"), "size=1100k");
    if (small.error() != 0) GTEST_SKIP() << "cannot mount: " << std::strerror(small.error());
    const Finished done = train(
        {"--checkpoint.interval=2", "--checkpoint.on_failure=warn", "--train.steps=6", ranks});
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_NE(done.err.find("step 2: checkpoint saved"), std::string::npos) << done.err;
    EXPECT_NE(done.err.find("step 4: no checkpoint, training goes on: "), std::string::npos)
        << done.err;
    EXPECT_NE(done.err.find("No space left"), std::string::npos) << done.err;
    EXPECT_TRUE(files_of("ckpt").contains("step-00000002/manifest.json"));
    fs::remove_all(at("log"));
  }
}

TEST_F(MachineFaults, AFileThatMayNotGrowLeavesTheOldCheckpointWhenTrainingGoesOn) {
  expect_trains({"--checkpoint.interval=2", "--train.steps=2"});
  const auto kept = files_of("ckpt");
  const Finished done = train({"--checkpoint.on_failure=warn", "--layout.ranks=4", "--layout.tp=2"},
                              {.file_bytes = 50'000, .out = ""});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_NE(done.err.find("step 4: no checkpoint, training goes on: "), std::string::npos)
      << done.err;
  EXPECT_TRUE(files_of("ckpt") == kept);
}

TEST_F(MachineFaults, AFullDiskUnderTheLogIsOneMessage) {
  const Mounted small(at("log"), "size=8k");
  if (small.error() != 0) GTEST_SKIP() << "cannot mount a tmpfs: " << std::strerror(small.error());
  expect_message(train({}), 1, {"No space left", "log/"});
  EXPECT_FALSE(fs::exists(at("log/run.toml.partial")));
}

TEST_F(MachineFaults, FoldersThatCannotBeWrittenAreRefusedFirst) {
  expect_train_refused({"--checkpoint.dir=text.txt"}, {"checkpoint.dir='text.txt'", "is a file"});
  expect_train_refused({"--checkpoint.dir=text.txt/in"}, {"checkpoint.dir", "is a file"});
  expect_train_refused({"--checkpoint.dir=/proc/nope"}, {"checkpoint.dir='/proc/nope'"});
  expect_train_refused({"--log.dir=text.txt"}, {"log.dir='text.txt'", "is a file"});
  expect_train_refused({"--log.dir=/proc/nope"}, {"log.dir='/proc/nope'"});
  expect_train_refused({"--log.dir="}, {"log.dir is empty"});
  expect_refused({"eval", "run.toml", "--logits", "no/such"}, 2, {"--logits='no/such'"});
  expect_refused({"convert", "ckpt", "/proc/nope"}, 2, {"ckpt is neither"});
}

TEST_F(MachineFaults, AReadOnlyCheckpointFolderIsRefusedFirst) {
  const Mounted small(at("ckpt"), "size=1100k");
  if (small.error() != 0) {
    if (::geteuid() == 0) GTEST_SKIP() << "root without mounts writes to any folder";
    fs::permissions(at("ckpt"), fs::perms::owner_read | fs::perms::owner_exec);
  } else {
    expect_trains({"--train.steps=1", "--log.dir=first"});
    ASSERT_TRUE(small.make_read_only());
  }
  expect_train_refused({}, {"checkpoint.dir='ckpt'", "cannot be written to"});
}

TEST_F(MachineFaults, AFullStandardOutputIsAFailure) {
  const Finished done = run({"version"}, {.file_bytes = 0, .out = "/dev/full"});
  expect_message(done, 1, {"standard output", "No space left"});
}

}  // namespace
}  // namespace orthant::test
