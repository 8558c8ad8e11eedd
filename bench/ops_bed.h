// What ops_bench measures with: memory for the arguments of an op, and the machine's own speed.
#pragma once

#include <algorithm>
#include <cstring>
#include <ctime>
#include <memory>
#include <unordered_map>
#include <vector>

#include <benchmark/benchmark.h>
#include <dnnl.hpp>
#include <omp.h>

#include "base/random.h"
#include "mem/device.h"
#include "ops/ops.h"

namespace orthant {

// Time of the clock on the wall; with one thread the processor's time, which other programs on the
// machine cannot take.
inline double seconds_now(int num_threads) {
  timespec now{};
  clock_gettime(num_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// oneDNN's f32 product of 1024^3, plain row-major.
class ReferenceProduct {
 public:
  ReferenceProduct() : a_(kCount, 0.5F), b_(kCount, 0.25F), c_(kCount) {
    const dnnl::memory::desc desc({kSide, kSide}, dnnl::memory::data_type::f32,
                                  dnnl::memory::format_tag::ab);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc primitive(engine_, desc, desc, desc);
#else
    const dnnl::matmul::desc op(desc, desc, desc);
    const dnnl::matmul::primitive_desc primitive(op, engine_);
#endif
    matmul_ = dnnl::matmul(primitive);
    args_ = {{DNNL_ARG_SRC, dnnl::memory(desc, engine_, a_.data())},
             {DNNL_ARG_WEIGHTS, dnnl::memory(desc, engine_, b_.data())},
             {DNNL_ARG_DST, dnnl::memory(desc, engine_, c_.data())}};
  }
  double flops_per_second(int num_threads) {
    const double start = seconds_now(num_threads);
    matmul_.execute(stream_, args_);
    stream_.wait();
    return 2.0 * kSide * kSide * kSide / (seconds_now(num_threads) - start);
  }

 private:
  static constexpr std::int64_t kSide = 1024;
  static constexpr std::size_t kCount = kSide * kSide;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::vector<float> a_, b_, c_;
  dnnl::matmul matmul_;
  std::unordered_map<int, dnnl::memory> args_;
};

// Bytes read plus written by a copy of 64 MiB.
class ReferenceCopy {
 public:
  ReferenceCopy() : from_(kBytes, 1), to_(kBytes, 2) {}
  double bytes_per_second(int num_threads) {
    const double start = seconds_now(num_threads);
#pragma omp parallel num_threads(num_threads)
    {
      const auto parts = static_cast<std::size_t>(omp_get_num_threads());
      const auto part = static_cast<std::size_t>(omp_get_thread_num());
      std::memcpy(to_.data() + kBytes / parts * part, from_.data() + kBytes / parts * part,
                  kBytes / parts);
    }
    benchmark::DoNotOptimize(to_.data());
    return 2.0 * kBytes / (seconds_now(num_threads) - start);
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{64} << 20;
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

// What the machine itself does, measured while ops are.
class Machine {
 public:
  double flops_per_second(int num_threads) {
    omp_set_num_threads(num_threads);
    if (product_ == nullptr || product_threads_ != num_threads) {
      product_ = std::make_unique<ReferenceProduct>();
      product_threads_ = num_threads;
    }
    return product_->flops_per_second(num_threads);
  }
  double bytes_per_second(int num_threads) { return copy_.bytes_per_second(num_threads); }

 private:
  std::unique_ptr<ReferenceProduct> product_;
  int product_threads_ = 0;
  ReferenceCopy copy_;
};

}  // namespace orthant
