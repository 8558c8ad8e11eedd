// Packing of matrix blocks into panels, converted to f32: panel p holds rows p * R .. p * R + R -
// 1, as R floats for each k; missing rows are zero. May write up to kLanes floats past a panel's
// end.
#pragma once

#include <algorithm>

#include "ops/cpu/vector.h"

namespace orthant::cpu::ORTHANT_LEVEL {

// Up to kLanes rows of `lanes` elements become columns: out[k * width + row].
template <class T, class Lanes>
inline void pack_square(const T* from, std::int64_t stride, int rows, Lanes lanes, int width,
                        float* out) {
  Floats r[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    r[i] = i < rows ? load(from + i * stride, lanes) : zero();
  }
  transpose(r);
  int depth = kLanes;
  if constexpr (std::is_same_v<Lanes, Tail>) {
    depth = lanes.count;
  }
  for (int k = 0; k < depth; ++k) {
    store(out + k * width, r[k]);
  }
}

// `from` has `depth` contiguous elements in each of `rows` rows.
template <int R, class T>
void pack_rows(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t depth,
               float* out) {
  for (std::int64_t row = 0; row < rows; row += R, out += R * depth) {
    for (std::int64_t k = 0; k < depth; k += kLanes) {
      for (int part = 0; part < R; part += kLanes) {
        const std::int64_t here = std::min<std::int64_t>({rows - row - part, R - part, kLanes});
        const T* at = from + (row + part) * stride + k;
        float* to = out + k * R + part;
        const int count = static_cast<int>(std::max<std::int64_t>(here, 0));
        if (k + kLanes <= depth) {
          pack_square(at, stride, count, Full{}, R, to);
        } else {
          pack_square(at, stride, count, Tail{static_cast<int>(depth - k)}, R, to);
        }
      }
    }
  }
}

// `from` has `rows` contiguous elements in each of `depth` lines.
template <int R, class T>
void pack_columns(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t depth,
                  float* out) {
  for (std::int64_t row = 0; row < rows; row += R, out += R * depth) {
    const bool whole = row + (R + kLanes - 1) / kLanes * kLanes <= rows;
    for (std::int64_t k = 0; k < depth; ++k) {
      for (int part = 0; part < R; part += kLanes) {
        const T* at = from + k * stride + row + part;
        const std::int64_t here = std::min<std::int64_t>(rows - row - part, R - part);
        Floats v = zero();
        if (whole || here >= kLanes) {
          v = load(at);
        } else if (here > 0) {
          v = load(at, Tail{static_cast<int>(here)});
        }
        store(out + k * R + part, v);
      }
    }
  }
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
