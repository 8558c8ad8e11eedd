// Packing of matrix blocks into panels, converted to f32: panel p holds rows p * R .. p * R + R -
// 1, as R floats for each k; missing rows are zero. May write up to 8 floats past a panel's end.
#pragma once

#include <algorithm>

#include "ops/cpu/vector.h"

namespace orthant::cpu {

inline void transpose(F8 (&r)[8]) {
  F8 t[8];
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  F8 s[8];
  for (int i = 0; i < 2; ++i) {
    s[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    s[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    s[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    s[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(s[i], s[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(s[i], s[i + 4], 0x31);
  }
}

// Up to eight rows of `lanes` elements become columns: out[k * width + row].
template <class T, class Lanes>
inline void pack_square(const T* from, std::int64_t stride, int rows, Lanes lanes, int width,
                        float* out) {
  F8 r[8];
  for (int i = 0; i < 8; ++i) {
    r[i] = i < rows ? load(from + i * stride, lanes) : zero();
  }
  transpose(r);
  int depth = 8;
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
    for (std::int64_t k = 0; k < depth; k += 8) {
      for (int part = 0; part < R; part += 8) {
        const std::int64_t here = std::min<std::int64_t>({rows - row - part, R - part, 8});
        const T* at = from + (row + part) * stride + k;
        float* to = out + k * R + part;
        const int count = static_cast<int>(std::max<std::int64_t>(here, 0));
        if (k + 8 <= depth) {
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
    const bool whole = row + (R + 7) / 8 * 8 <= rows;
    for (std::int64_t k = 0; k < depth; ++k) {
      for (int part = 0; part < R; part += 8) {
        const T* at = from + k * stride + row + part;
        const std::int64_t here = std::min<std::int64_t>(rows - row - part, R - part);
        F8 v = zero();
        if (whole || here >= 8) {
          v = load(at);
        } else if (here > 0) {
          v = load(at, Tail{static_cast<int>(here)});
        }
        store(out + k * R + part, v);
      }
    }
  }
}

}  // namespace orthant::cpu
