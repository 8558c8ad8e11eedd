// How the update keeps master weights: in f32, beside a value of another type, or in what their
// bf16 values lack, as ops/split_master.h says.
#pragma once

#include <cstdint>

#include "ops/cuda/kernel.cuh"
#include "ops/split_master.h"

namespace orthant::cuda {

template <class T>
struct WholeMasters {
  float* masters;
  T* values;  // null: the masters are the values

  template <int W>
  __device__ Values<W> get(std::int64_t i) const {
    return load<W>(masters + i);
  }
  template <int W>
  __device__ void keep(std::int64_t i, const Values<W>& master) const {
    store<W>(masters + i, master);
    if (values != nullptr) store<W>(values + i, master);
  }
  // In a step that is skipped.
  __device__ bool has_values_to_write() const { return values != nullptr; }
  __device__ void write_value(std::int64_t i) const { values[i] = from_float<T>(masters[i]); }
};

struct SplitMasters {
  std::uint16_t* remainders;
  BF16* values;

  template <int W>
  __device__ Values<W> get(std::int64_t i) const {
    const Raw<W, BF16> value = load_raw<W>(values + i);
    const Raw<W, std::uint16_t> remainder = load_raw<W>(remainders + i);
    constexpr int kEach = Raw<W, BF16>::kEach;
    Values<W> master;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const std::uint32_t upper = upper_of(value.words[k / kEach].elements[k % kEach]);
      const std::uint32_t rest = remainder.words[k / kEach].elements[k % kEach];
      master.at[k] = __uint_as_float(joined_master(upper, rest));
    }
    return master;
  }
  template <int W>
  __device__ void keep(std::int64_t i, const Values<W>& master) const {
    Raw<W, BF16> value;
    Raw<W, std::uint16_t> remainder;
    constexpr int kEach = Raw<W, BF16>::kEach;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const BF16 rounded = from_float<BF16>(master.at[k]);
      value.words[k / kEach].elements[k % kEach] = rounded;
      remainder.words[k / kEach].elements[k % kEach] = static_cast<std::uint16_t>(
          master_remainder(__float_as_uint(master.at[k]), upper_of(rounded)));
    }
    store_raw<W>(values + i, value);
    store_raw<W>(remainders + i, remainder);
  }
  __device__ bool has_values_to_write() const {
    return false;
  }
  __device__ void write_value(std::int64_t /*i*/) const {}

 private:
  __device__ static std::uint32_t upper_of(BF16 value) {
    return static_cast<std::uint32_t>(__bfloat16_as_ushort(value)) << 16;
  }
};

}  // namespace orthant::cuda
