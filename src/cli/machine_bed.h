// What bench machine measures with: one device, memory for the arguments of an op, and how long it
// takes again and again.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "mem/arena.h"
#include "mem/device.h"
#include "ops/ops.h"

namespace orthant {

class MachineBed {
 public:
  struct Sizes {
    std::int64_t values;  // bytes for arguments
    std::int64_t work;    // for workspaces
  };
  MachineBed(const std::string& kind, int num_threads, const Sizes& sizes)
      : device_(make_device(kind, 0)),
        memory_(*device_, in_flight_, "bench", sizes.values),
        work_(*device_, in_flight_, "work", sizes.work),
        ops_(make_ops(kind, {.ledger = ledger_,
                             .in_flight = in_flight_,
                             .work = work_,
                             .num_threads = num_threads,
                             .target = kind == "cuda" ? Target::kCuda : Target::kHost,
                             .queue = device_->queue()})),
        normals_(make_normals()),
        arguments_(memory_.mark()) {}

  Device& device() { return *device_; }
  InFlight& in_flight() { return in_flight_; }
  std::int64_t reserved_bytes() const { return memory_.capacity() + work_.capacity(); }

  // Forgets the arguments of the op before.
  void reset() { memory_.rewind(arguments_); }

  Tensor alloc(const Shape& shape, DType type) {
    return memory_.alloc(shape, type, MemClass::kActivations);
  }
  // Standard normal numbers over 8, the same again after a while: sums stay small.
  Tensor values(const Shape& shape, DType type) {
    const Tensor tensor = alloc(shape, type);
    for (std::int64_t at = 0; at < tensor.count(); at += kNormals) {
      const std::int64_t count = std::min(kNormals, tensor.count() - at);
      ops_->run(Copy{.y = tensor.flat(at, count), .x = normals_.flat(0, count)});
    }
    ledger_.restart();
    return tensor;
  }
  Tensor ids(std::int64_t count, std::int64_t bound) {
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::uint64_t>(bound));
    }
    return put({count}, DType::kI32, std::as_bytes(std::span(numbers)));
  }
  Tensor samples(std::int64_t count) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = 1000 + static_cast<std::int64_t>(i);
    }
    return put({count}, DType::kI64, std::as_bytes(std::span(numbers)));
  }
  Tensor step_state() {
    const StepState state = {.step = 1, .seed = 1, .lr = 1e-4, .inv_tokens = 1e-3, .updates = 1};
    return put(step_state_shape(), DType::kU8, std::as_bytes(std::span(&state, 1)));
  }

  // Of one op among many: runs it for a third of `budget_s`, then measures for the rest.
  template <OpArgs A>
  double seconds(const A& args, double budget_s) {
    run_many(args, 1);
    const double once = run_many(args, 1);
    const auto count = [once](double of) {
      return std::max(1, static_cast<int>(std::min(of / once, 20000.0)));
    };
    run_many(args, count(budget_s / 3));
    const int num_runs = count(budget_s * 2 / 3);
    return run_many(args, num_runs) / num_runs;
  }

 private:
  static constexpr std::int64_t kNormals = std::int64_t{1} << 20;

  Tensor put(const Shape& shape, DType type, std::span<const std::byte> bytes) {
    const Tensor tensor = alloc(shape, type);
    device_->to_device(tensor, bytes);
    return tensor;
  }
  Tensor make_normals() {
    std::vector<float> numbers(static_cast<std::size_t>(kNormals));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<float>(normal(1, 2, i) / 8);
    }
    return put({kNormals}, DType::kF32, std::as_bytes(std::span(numbers)));
  }
  template <OpArgs A>
  double run_many(const A& args, int times) {
    finish();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) {
      ops_->run(args);
      ledger_.restart();
    }
    finish();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  // Waits for what is queued.
  void finish() {
    float first = 0;
    device_->to_host(std::as_writable_bytes(std::span(&first, 1)), normals_.flat(0, 1));
  }

  Ledger ledger_;
  InFlight in_flight_;
  std::unique_ptr<Device> device_;
  Arena memory_;
  Arena work_;
  std::unique_ptr<Ops> ops_;
  Tensor normals_;
  Arena::Mark arguments_;
};

}  // namespace orthant
