// What bench ops measures with: memory for the arguments of an op, and the speed of a copy.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include <omp.h>

#include "base/random.h"
#include "cli/bench.h"
#include "mem/device.h"
#include "ops/ops.h"

namespace orthant {

// Bytes read plus written by a copy of 64 MiB.
class ReferenceCopy {
 public:
  explicit ReferenceCopy(int num_threads)
      : num_threads_(num_threads),
        from_(kBytes, 1),
        to_(kBytes, 2) {}
  double bytes_per_second() {
    const double start = seconds_now(num_threads_);
#pragma omp parallel num_threads(num_threads_)
    {
      const auto parts = static_cast<std::size_t>(omp_get_num_threads());
      const auto part = static_cast<std::size_t>(omp_get_thread_num());
      std::memcpy(to_.data() + kBytes / parts * part, from_.data() + kBytes / parts * part,
                  kBytes / parts);
    }
    return 2.0 * kBytes / (seconds_now(num_threads_) - start);
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{64} << 20;
  int num_threads_;
  std::vector<char> from_, to_;
};

// A cpu backend and memory for one op's arguments.
class Bed {
 public:
  explicit Bed(int num_threads)
      : num_threads_(num_threads),
        ops_(make_ops("cpu", {.ledger = ledger_,
                              .in_flight = in_flight_,
                              .work = work_,
                              .num_threads = num_threads})) {}

  Tensor values(const Shape& shape, DType type) {
    const Tensor wide = alloc(shape, DType::kF32);
    float* to = wide.ptr<float>();
    for (std::int64_t i = 0; i < wide.count(); i += 4) {
      const auto words = philox(1, 2, static_cast<std::uint64_t>(i));
      for (std::int64_t j = i; j < std::min(i + 4, wide.count()); ++j) {
        to[j] = static_cast<float>(uniform(words[static_cast<std::size_t>(j - i)])) - 0.5F;
      }
    }
    if (type == DType::kF32) return wide;
    const Tensor narrow = alloc(shape, type);
    ops_->run(Copy{.y = narrow, .x = wide});
    return narrow;
  }
  Tensor ids(std::int64_t count, std::int64_t bound) {
    const Tensor tensor = alloc({count}, DType::kI32);
    for (std::int64_t i = 0; i < count; ++i) {
      tensor.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7919 % bound);
    }
    return tensor;
  }
  Tensor samples(std::int64_t count) {
    const Tensor tensor = alloc({count}, DType::kI64);
    for (std::int64_t i = 0; i < count; ++i) {
      tensor.ptr<std::int64_t>()[i] = 1000 + i;
    }
    return tensor;
  }
  Tensor step_state() {
    const Tensor tensor = alloc(step_state_shape(), DType::kU8);
    *tensor.ptr<StepState>() = {.step = 1, .seed = 1, .lr = 1e-4, .inv_tokens = 1e-3, .updates = 1};
    return tensor;
  }
  Tensor alloc(const Shape& shape, DType type) {
    return memory_.alloc(shape, type, MemClass::kActivations);
  }
  template <OpArgs A>
  double run_seconds(const A& args) {
    ledger_.restart();
    const double start = seconds_now(num_threads_);
    ops_->run(args);
    return seconds_now(num_threads_) - start;
  }

 private:
  int num_threads_;
  Ledger ledger_;
  InFlight in_flight_;
  std::unique_ptr<Device> device_ = make_host_device();
  Arena memory_{*device_, in_flight_, "bench", std::int64_t{4} << 30};
  Arena work_{*device_, in_flight_, "work", std::int64_t{1} << 30};
  std::unique_ptr<Ops> ops_;
};

}  // namespace orthant
