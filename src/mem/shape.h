// Shape: up to four dimensions, printed as [2,1024,768].
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace orthant {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const;            // negative counts from the end
  std::int64_t count() const;                      // 1 for a scalar
  Shape with(int dim, std::int64_t extent) const;  // a copy with one dimension changed
  std::string text() const;
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace orthant
