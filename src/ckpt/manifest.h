// The manifest of a checkpoint: written last, so that a folder with one is whole.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace orthant {

struct Manifest {
  static constexpr int kVersion = 1;
  std::int64_t step = 0;        // steps done
  std::int64_t updates = 0;     // of them not skipped: Adam's t
  double loss_scale = 1;        // of fp16; 1: none
  std::int64_t good_steps = 0;  // since loss_scale was changed
  std::int64_t skipped = 0;     // steps whose gradients did not fit
  std::int64_t position = 0;    // samples used: where the data goes on
  std::int64_t tokens = 0;
  // The weights of data.train from a position on; empty: no blend.
  struct Blend {
    std::int64_t position = 0;
    std::vector<std::pair<std::string, double>> weights;  // prefix and weight
  };
  std::vector<Blend> blends = {};
  std::vector<std::pair<std::string, std::string>>
      model;  // key and value of the model's config, in order
  std::vector<std::pair<std::string, std::int64_t>> files;  // name and bytes
  // Of each tensor of the files (ckpt/checksum.h); empty: of an older version, which had none.
  std::map<std::string, std::uint64_t> checksums = {};
};

std::string manifest_text(const Manifest& manifest);
// `path` is for messages. A user error when it is not a manifest of this version.
Manifest parse_manifest(const std::string& text, const std::string& path);

}  // namespace orthant
