// Split: which part of a tensor each rank of a group adds up.
#pragma once

#include <algorithm>
#include <cstdint>

namespace orthant {

class Split {
 public:
  static constexpr std::int64_t kLine = 256;  // elements, or bytes of memory
  enum class Parts : std::uint8_t {
    kEqual,  // the runs of a reduce_scatter: count / size each
    kLines,  // whole lines, so the last parts may be shorter or empty
  };
  Split(std::int64_t count, int size, Parts parts)
      : count_(count),
        part_((count + size - 1) / size) {
    if (parts == Parts::kLines) part_ = (part_ + kLine - 1) / kLine * kLine;
  }
  std::int64_t first(int r) const { return std::min(count_, part_ * r); }
  std::int64_t count(int r) const { return first(r + 1) - first(r); }
  std::int64_t most() const { return count(0); }

 private:
  std::int64_t count_;
  std::int64_t part_;
};

}  // namespace orthant
