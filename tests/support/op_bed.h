// OpBed: one backend of ops with memory, and tensors of contents that depend on their names alone:
// two beds that are asked for the same tensors hold the same bits.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/ledger.h"
#include "base/random.h"
#include "mem/arena.h"
#include "mem/device.h"
#include "mem/in_flight.h"
#include "ops/ops.h"
#include "ops/split_master.h"

namespace orthant {

class OpBed {
 public:
  static constexpr std::int64_t kArenaBytes = std::int64_t{1} << 28;
  static constexpr std::uint64_t kSeed = 20240229;

  // On the meta backend memory is address space only, and contents are dropped; it plans for
  // `target`.
  explicit OpBed(std::string_view kind, int num_threads = 1)
      : OpBed(kind, num_threads, target_of(kind)) {}
  OpBed(std::string_view kind, int num_threads, Target target)
      : device_(make_device(kind, 0)),
        values_(*device_, in_flight_, "values", kArenaBytes),
        work_(*device_, in_flight_, "work", kArenaBytes),
        ops_(make_ops(kind, {.ledger = ledger_,
                             .in_flight = in_flight_,
                             .work = work_,
                             .num_threads = num_threads,
                             .target = target,
                             .queue = device_->queue()})) {}

  template <OpArgs A>
  void run(const A& args) {
    ops_->run(args);
  }

  // Forgets all tensors, whose memory is used again: a bed on a GPU takes long to make.
  void reset() {
    values_.rewind({});
    ledger_.restart();
    copies_.clear();
  }

  Tensor zeros(const Shape& shape, DType dtype) {
    return values_.alloc(shape, dtype, MemClass::kActivations);
  }

  // For an op to write: not a number until it has.
  Tensor out(const Shape& shape, DType dtype) {
    const Tensor tensor = zeros(shape, dtype);
    put(tensor, std::vector<std::uint8_t>(static_cast<std::size_t>(tensor.bytes()), 0xff));
    return tensor;
  }

  // Standard normal elements times `scale`, plus `offset`, rounded to the type.
  Tensor normal(std::string_view name, const Shape& shape, DType dtype, double scale = 1,
                double offset = 0) {
    std::vector<double> values(static_cast<std::size_t>(shape.count()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = offset + scale * orthant::normal(kSeed, stream_of(name), i);
    }
    return floats(shape, dtype, values);
  }

  Tensor floats(const Shape& shape, DType dtype, std::span<const double> values) {
    const Tensor tensor = zeros(shape, dtype);
    set(tensor, values);
    return tensor;
  }

  void set(const Tensor& tensor, std::span<const double> values) {
    switch (tensor.dtype) {
      case DType::kF64: return put(tensor, converted<double>(values));
      case DType::kF32: return put(tensor, converted<float>(values));
      case DType::kBF16: return put(tensor, converted<BFloat16>(values));
      default: fail_run("test: contents of a {} tensor", name_of(tensor.dtype));
    }
  }

  // Whole numbers of low..high, both included.
  Tensor whole(std::string_view name, const Shape& shape, DType dtype, std::int64_t low,
               std::int64_t high) {
    std::vector<std::int64_t> values(static_cast<std::size_t>(shape.count()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint64_t word = philox(kSeed, stream_of(name), i)[0];
      values[i] =
          low + static_cast<std::int64_t>(word % static_cast<std::uint64_t>(high - low + 1));
    }
    return whole(shape, dtype, values);
  }

  Tensor whole(const Shape& shape, DType dtype, std::span<const std::int64_t> values) {
    const Tensor tensor = zeros(shape, dtype);
    if (dtype == DType::kI64) {
      put(tensor, std::vector<std::int64_t>(values.begin(), values.end()));
    } else if (dtype == DType::kI16) {
      put(tensor, std::vector<std::int16_t>(values.begin(), values.end()));
    } else {
      put(tensor, std::vector<std::int32_t>(values.begin(), values.end()));
    }
    return tensor;
  }

  Tensor step_state(const StepState& state) {
    const Tensor tensor = zeros(step_state_shape(), DType::kU8);
    device_->to_device(tensor, std::as_bytes(std::span(&state, 1)));
    return tensor;
  }

  // The tensor in memory that the test can read; it stays until the next call for that tensor.
  Tensor on_host(const Tensor& tensor) {
    if (device_->queue() == nullptr || tensor.absent()) return tensor;
    std::vector<std::byte>& copy = copies_[tensor.data];
    copy.resize(static_cast<std::size_t>(tensor.bytes()));
    device_->to_host(copy, tensor);
    return {.data = copy.data(), .shape = tensor.shape, .dtype = tensor.dtype};
  }

  Ledger& ledger() { return ledger_; }
  InFlight& in_flight() { return in_flight_; }
  const Arena& work() const { return work_; }

 private:
  template <class T>
  static std::vector<T> converted(std::span<const double> values) {
    std::vector<T> result;
    result.reserve(values.size());
    for (const double value : values) {
      if constexpr (std::is_same_v<T, double>) {
        result.push_back(value);
      } else {
        result.push_back(T(static_cast<float>(value)));
      }
    }
    return result;
  }

  template <class T>
  void put(const Tensor& tensor, const std::vector<T>& values) {
    device_->to_device(tensor, std::as_bytes(std::span(values)));
  }

  Ledger ledger_;
  InFlight in_flight_;
  std::unique_ptr<Device> device_;
  Arena values_;
  Arena work_;
  std::unique_ptr<Ops> ops_;
  std::map<const std::byte*, std::vector<std::byte>> copies_;
};

// The elements of a float tensor in host memory.
inline std::vector<double> values_of(const Tensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.count()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (tensor.dtype) {
      case DType::kF64: values[i] = tensor.ptr<const double>()[i]; break;
      case DType::kF32: values[i] = tensor.ptr<const float>()[i]; break;
      case DType::kBF16: values[i] = static_cast<float>(tensor.ptr<const BFloat16>()[i]); break;
      case DType::kI16: values[i] = tensor.ptr<const std::int16_t>()[i]; break;
      case DType::kI32: values[i] = tensor.ptr<const std::int32_t>()[i]; break;
      case DType::kI64: values[i] = static_cast<double>(tensor.ptr<const std::int64_t>()[i]); break;
      default: values[i] = static_cast<double>(tensor.ptr<const std::uint8_t>()[i]);
    }
  }
  return values;
}

// Masters that are split, in host memory.
inline std::vector<double> joined_masters(const Tensor& remainders, const Tensor& values) {
  std::vector<double> masters(static_cast<std::size_t>(values.count()));
  for (std::size_t i = 0; i < masters.size(); ++i) {
    masters[i] =
        joined_master(values.ptr<const BFloat16>()[i], remainders.ptr<const std::int16_t>()[i]);
  }
  return masters;
}

inline StepState state_of(const Tensor& tensor) {
  StepState state;
  std::memcpy(&state, tensor.data, sizeof(state));
  return state;
}

}  // namespace orthant
