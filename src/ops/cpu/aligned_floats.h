// AlignedFloats: memory of the cpu backend's own.
#pragma once

#include <cstddef>
#include <memory>

namespace orthant::cpu {

// Floats at the start of a cache line, not initialised: pages that are never used cost nothing.
class AlignedFloats {
 public:
  explicit AlignedFloats(std::size_t count)
      : lines_(std::make_unique_for_overwrite<Line[]>((count + 15) / 16)) {}
  float* data() { return lines_[0].values; }

 private:
  struct alignas(64) Line {
    float values[16];
  };
  std::unique_ptr<Line[]> lines_;
};

}  // namespace orthant::cpu
