#include "ckpt/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/file.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;
constexpr const char* kManifest = "manifest.json";
constexpr const char* kPrefix = "step-";
constexpr const char* kUnfinished = ".partial";

// Folders step-<number>, newest first. Zero-padded, so names sort as numbers do.
std::vector<std::string> checkpoint_folders(const std::string& dir) {
  std::vector<std::string> folders;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(dir, none)) {
    const std::string name = entry.path().filename().string();
    const bool finished = !name.ends_with(kUnfinished);
    if (entry.is_directory() && name.starts_with(kPrefix) && finished)
      folders.push_back(entry.path().string());
  }
  std::sort(folders.rbegin(), folders.rend());
  return folders;
}

}  // namespace

Checkpoint open_checkpoint(const std::string& folder) {
  const std::string path = folder + "/" + kManifest;
  if (!fs::exists(path)) {
    fail_user(
        "{} is not a checkpoint: it has no {}; name a folder step-N of a checkpoint directory",
        folder, kManifest);
  }
  Checkpoint checkpoint{.folder = folder, .manifest = parse_manifest(read_text_file(path), path)};
  for (const auto& [name, bytes] : checkpoint.manifest.files) {
    std::error_code error;
    const std::string file = folder + "/" + name;
    const auto found = fs::file_size(file, error);
    if (error)
      fail_user("checkpoint {}: file {} is missing; remove this checkpoint or restore the file",
                folder, name);
    if (static_cast<std::int64_t>(found) != bytes) {
      fail_user(
          "checkpoint {}: file {} has {} bytes, {} were written; remove this checkpoint or restore "
          "the file",
          folder, name, found, bytes);
    }
  }
  return checkpoint;
}

std::optional<Checkpoint> newest_checkpoint(const std::string& dir,
                                            std::vector<std::string>& passed_over) {
  for (const std::string& folder : checkpoint_folders(dir)) {
    try {
      return open_checkpoint(folder);
    } catch (const Error& error) {
      passed_over.emplace_back(error.what());
    }
  }
  return std::nullopt;
}

std::unique_ptr<StateSource> checkpoint_source(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : checkpoint.manifest.files) {
    names.push_back(name);
  }
  return std::make_unique<StateSource>(checkpoint.folder, names);
}

CheckpointSave::CheckpointSave(std::string dir, std::int64_t step)
    : dir_(std::move(dir)),
      step_(step) {}

std::string CheckpointSave::folder() const {
  return fmt::format("{}/{}{:08}{}", dir_, kPrefix, step_, kUnfinished);
}

void CheckpointSave::begin(const StateFiles& files) const {
  std::error_code error;
  fs::remove_all(folder(), error);
  fs::create_directories(folder(), error);
  if (error) {
    fail_run("cannot make checkpoint folder {}: {}; choose another checkpoint.dir or make room",
             folder(), error.message());
  }
  files.create(folder());
}

void CheckpointSave::commit(const Manifest& manifest, int keep) const {
  write_file_atomically(folder() + "/" + kManifest, manifest_text(manifest));
  const std::string finished = fmt::format("{}/{}{:08}", dir_, kPrefix, step_);
  std::error_code error;
  fs::remove_all(finished, error);
  fs::rename(folder(), finished, error);
  if (error) fail_run("cannot rename {} to {}: {}", folder(), finished, error.message());
  sync_folder(dir_);
  const std::vector<std::string> folders = checkpoint_folders(dir_);
  for (std::size_t i = static_cast<std::size_t>(keep); keep > 0 && i < folders.size(); ++i) {
    fs::remove_all(folders[i], error);
  }
}

void CheckpointSave::abandon() const noexcept {
  std::error_code error;
  fs::remove_all(folder(), error);
}

}  // namespace orthant
