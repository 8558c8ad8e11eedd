// The files of a checkpoint: f32 tensors of the whole model, by unit, so that the content does not
// depend on the layout that wrote it. All ranks write their runs into the same files at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ckpt/safetensors.h"
#include "params/param_source.h"

namespace orthant {

// "h.3" for "h.3.mlp.down.weight"; the first word for others.
std::string unit_of(const std::string& param);

// Which tensors a parameter has in the files.
enum class StateSet : std::uint8_t {
  kTraining,  // <name>, <name>.exp_avg, <name>.exp_avg_sq
  kWeights,   // <name>
};

// The same on every rank that gives the same parameters.
class StateFiles {
 public:
  StateFiles(const std::vector<ParamSpec>& params, StateSet set);

  // Makes every file at its full size; a full disk shows here. One rank, before the others write.
  void create(const std::string& folder) const;
  std::vector<std::pair<std::string, std::int64_t>> files() const;      // name and bytes
  const std::vector<std::string>& tensors() const { return tensors_; }  // names, in one order

 private:
  friend class StateWriter;
  struct OneFile {
    std::string name;
    SafetensorsLayout layout;
  };
  const OneFile& file_of(const std::string& param) const;
  std::vector<OneFile> files_;
  std::vector<std::string> tensors_;
  std::unordered_map<std::string, std::size_t> places_;  // in tensors_
};

// One rank's writes. Files are opened when first used.
class StateWriter {
 public:
  StateWriter(const StateFiles& files, std::string folder);
  // `values`: the piece's elements.
  void write(const Piece& piece, StateKind state, std::span<const float> values);
  void sync();
  // Of what was written, for each of files.tensors(): those of all ranks add up to a tensor's
  // checksum.
  const std::vector<std::uint64_t>& checksums() const { return checksums_; }

 private:
  File& open(const std::string& name);
  const StateFiles& files_;
  std::string folder_;
  std::vector<std::uint64_t> checksums_;
  std::vector<std::pair<std::string, File>> open_;
};

// Reads state files as a source. A kWeights folder has moments of 0.
class StateSource final : public ParamSource {
 public:
  // `names`: the files of the folder. `checksums`: of its tensors; empty: unknown.
  StateSource(const std::string& folder, const std::vector<std::string>& names,
              std::map<std::string, std::uint64_t> checksums);
  void read(const ParamSpec& param, StateKind state, std::int64_t first,
            std::span<float> into) const override;
  void verify(const Verify& what) const override;

 private:
  std::string folder_;
  std::map<std::string, std::uint64_t> checksums_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, std::span<const std::byte>> tensors_;
};

}  // namespace orthant
