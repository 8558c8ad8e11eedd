#include "ckpt/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include <fcntl.h>

#include "base/check.h"
#include "base/file.h"
#include "ckpt/foreign.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;
constexpr const char* kManifest = "manifest.json";
constexpr const char* kPrefix = "step-";
constexpr const char* kUnfinished = ".partial";
constexpr const char* kReplaced = ".replaced";  // still whole: counts as a checkpoint

std::string folder_name(std::int64_t step) {
  return fmt::format("{}{:08}", kPrefix, step);
}

struct StepFolder {
  std::int64_t step;
  bool is_replaced;
  std::string path;
};

// Of a finished checkpoint: a save gives no other names.
std::optional<StepFolder> step_folder(const fs::path& path) {
  const std::string name = path.filename().string();
  StepFolder folder{.step = 0, .is_replaced = name.ends_with(kReplaced), .path = path.string()};
  std::string_view digits = name;
  if (!digits.starts_with(kPrefix)) return std::nullopt;
  digits.remove_prefix(std::string_view(kPrefix).size());
  if (folder.is_replaced) digits.remove_suffix(std::string_view(kReplaced).size());
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), folder.step);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  const std::string given = folder_name(folder.step) + (folder.is_replaced ? kReplaced : "");
  if (!is_number || folder.step < 0 || name != given) return std::nullopt;
  return folder;
}

// Newest first.
std::vector<StepFolder> step_folders(const std::string& dir) {
  std::vector<StepFolder> folders;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(dir, none)) {
    std::optional<StepFolder> folder = step_folder(entry.path());
    if (folder && entry.is_directory(none)) folders.push_back(std::move(*folder));
  }
  std::sort(folders.begin(), folders.end(), [](const StepFolder& a, const StepFolder& b) {
    return std::tuple(b.step, a.is_replaced, a.path) < std::tuple(a.step, b.is_replaced, b.path);
  });
  return folders;
}

[[noreturn]] void fail_rename(const std::string& from, const std::string& to,
                              const std::string& why) {
  fail_run("cannot rename {} to {}: {}; look at the folder's owner and mount", from, to, why);
}

// Where `to` is there, one of the two stands under a finished name at every moment.
void put_in_place(const std::string& from, const std::string& to) {
  std::error_code error;
  std::string old = from;
  if (!fs::exists(to, error)) {
    fs::rename(from, to, error);
    if (error) fail_rename(from, to, error.message());
  } else if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
    // This file system cannot exchange names.
    old = to + kReplaced;
    fs::remove_all(old, error);
    fs::rename(to, old, error);
    if (error) fail_rename(to, old, error.message());
    fs::rename(from, to, error);
    if (error) fail_rename(from, to, error.message());
  }
  sync_folder(fs::path(to).parent_path().string());
  fs::remove_all(old, error);
}

}  // namespace

bool is_checkpoint(const std::string& folder) {
  std::error_code unknown;
  return fs::exists(fs::path(folder) / kManifest, unknown);
}

Checkpoint open_checkpoint(const std::string& folder) {
  const std::string path = folder + "/" + kManifest;
  if (!is_checkpoint(folder)) {
    refuse_foreign(folder);
    fail_user(
        "{} is not a checkpoint: it has no {}; name a folder step-N of a checkpoint directory",
        folder, kManifest);
  }
  Manifest manifest = parse_manifest(read_text_file(path), path);
  Checkpoint checkpoint{.folder = folder, .manifest = std::move(manifest)};
  for (const auto& [name, bytes] : checkpoint.manifest.files) {
    std::error_code error;
    const auto found = fs::file_size(fs::path(folder) / name, error);
    if (error) {
      fail_user("checkpoint {}: file {} is missing; remove this checkpoint or restore the file",
                folder, name);
    }
    if (static_cast<std::int64_t>(found) != bytes) {
      fail_user(
          "checkpoint {}: file {} has {} bytes, {} were written; remove this checkpoint or restore "
          "the file",
          folder, name, found, bytes);
    }
  }
  return checkpoint;
}

namespace {

// Throws what is wrong with it.
Checkpoint open_whole(const StepFolder& folder) {
  Checkpoint checkpoint = open_checkpoint(folder.path);
  checkpoint_source(checkpoint);  // throws when a file has no sound header
  if (checkpoint.manifest.step != folder.step) {
    fail_user("checkpoint {} is of step {}: it is passed over; give it the name of its step, {}",
              folder.path, checkpoint.manifest.step, folder_name(checkpoint.manifest.step));
  }
  return checkpoint;
}

bool is_whole(const StepFolder& folder) {
  try {
    open_whole(folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::optional<Checkpoint> newest_checkpoint(const std::string& dir,
                                            std::vector<std::string>& passed_over) {
  for (const StepFolder& folder : step_folders(dir)) {
    try {
      return open_whole(folder);
    } catch (const Error& error) {
      passed_over.emplace_back(error.what());
    }
  }
  return std::nullopt;
}

std::optional<Checkpoint> find_checkpoint(const std::string& path,
                                          std::vector<std::string>& passed_over) {
  if (is_checkpoint(path)) return open_checkpoint(path);
  return newest_checkpoint(path, passed_over);
}

std::unique_ptr<StateSource> checkpoint_source(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : checkpoint.manifest.files) {
    names.push_back(name);
  }
  return std::make_unique<StateSource>(checkpoint.folder, names, checkpoint.manifest.checksums);
}

CheckpointSave::CheckpointSave(std::string dir, std::int64_t step)
    : dir_(std::move(dir)),
      step_(step) {}

std::string CheckpointSave::folder() const {
  return dir_ + "/" + folder_name(step_) + kUnfinished;
}

void CheckpointSave::begin(const StateFiles& files) const {
  remove_unfinished(dir_);
  std::error_code error;
  fs::create_directories(folder(), error);
  if (error) {
    fail_run("cannot make checkpoint folder {}: {}; choose another checkpoint.dir or make room",
             folder(), error.message());
  }
  files.create(folder());
}

void CheckpointSave::commit(const Manifest& manifest, int keep) const {
  write_file_atomically(folder() + "/" + kManifest, manifest_text(manifest));
  put_in_place(folder(), dir_ + "/" + folder_name(step_));
  if (keep <= 0) return;
  // Those of later steps are of another run: the one just written must not go for them.
  std::vector<StepFolder> folders = step_folders(dir_);
  std::erase_if(folders, [this](const StepFolder& folder) { return folder.step > step_; });
  std::error_code error;
  int num_whole = 0;
  for (const StepFolder& folder : folders) {
    if (num_whole == keep) {
      fs::remove_all(folder.path, error);
    } else if (is_whole(folder)) {
      ++num_whole;
    }
  }
}

void remove_unfinished(const std::string& dir) noexcept {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(kUnfinished)) {
      fs::remove_all(entry.path(), error);
    }
  }
}

}  // namespace orthant
