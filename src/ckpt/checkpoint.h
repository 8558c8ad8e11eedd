// Checkpoints of a run: folders step-00000400, whole when they have a manifest, made beside and
// renamed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/manifest.h"
#include "ckpt/state_files.h"

namespace orthant {

struct Checkpoint {
  std::string folder;
  Manifest manifest;
};

bool is_checkpoint(const std::string& folder);  // it has a manifest

// Reads a checkpoint's manifest and checks that its files are there in full; a user error says what
// is not.
Checkpoint open_checkpoint(const std::string& folder);

// The newest whole checkpoint in `dir`; damaged ones are passed over and named in `passed_over`.
std::optional<Checkpoint> newest_checkpoint(const std::string& dir,
                                            std::vector<std::string>& passed_over);

// `path` itself, or the newest in it.
std::optional<Checkpoint> find_checkpoint(const std::string& path,
                                          std::vector<std::string>& passed_over);

std::unique_ptr<StateSource> checkpoint_source(const Checkpoint& checkpoint);

// Removes what saves that failed or were killed have left in `dir`. No rank may be saving.
void remove_unfinished(const std::string& dir) noexcept;

// Saving, in three parts. begin() and commit() are one rank's; between them every rank writes with
// a StateWriter into folder().
class CheckpointSave {
 public:
  CheckpointSave(std::string dir, std::int64_t step);
  std::string folder() const;  // of the unfinished checkpoint

  void begin(const StateFiles& files) const;
  // Writes the manifest, puts the folder in its place, where one of the same step may stand, and
  // removes all but the newest `keep` checkpoints up to this step (0: keeps all).
  void commit(const Manifest& manifest, int keep) const;

 private:
  std::string dir_;
  std::int64_t step_;
};

}  // namespace orthant
