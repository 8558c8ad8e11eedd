// Arena: owner of memory, a stack with a high-water mark. Its capacity is what the dry run
// measured.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "mem/device.h"
#include "mem/in_flight.h"
#include "mem/tensor.h"

namespace orthant {

// What bytes are for: the classes of the memory plan.
enum class MemClass : std::uint8_t {
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kWork,
  kStaging,
  kCommunication
};
inline constexpr int kNumMemClasses = 7;
std::string_view name_of(MemClass what);
using ClassBytes = std::array<std::int64_t, kNumMemClasses>;

class Arena {
 public:
  static constexpr std::int64_t kAlign = 256;
  struct Mark {
    std::int64_t top = 0;
    ClassBytes by_class{};
  };

  enum class Place : std::uint8_t { kDevice, kHost };  // kHost: in device.host()
  Arena(Device& device, const InFlight& in_flight, std::string name, std::int64_t capacity_bytes,
        Place place = Place::kDevice);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Overflow is an error that names the arena, its plan and the tensor.
  Tensor alloc(const Shape& shape, DType dtype, MemClass what);
  Tensor contents() const { return {.data = base_, .shape = {now_.top}, .dtype = DType::kU8}; }
  Mark mark() const { return now_; }
  void restart_peak() { peak_ = now_; }  // of a phase: a dry run's
  void rewind(const Mark& mark);         // an error while a started call owns memory above the mark

  const std::string& name() const { return name_; }
  Place place() const { return place_; }
  std::int64_t capacity() const { return capacity_; }
  std::int64_t top() const { return now_.top; }
  std::int64_t peak() const { return peak_.top; }  // most bytes ever in use: the dry run's answer
  const ClassBytes& peak_by_class() const {
    return peak_.by_class;
  }  // what they were, padding included

 private:
  Device& device_;
  const InFlight& in_flight_;
  std::string name_;
  std::int64_t capacity_;
  Place place_;
  std::byte* base_;
  Mark now_;
  Mark peak_;
};

// A scope of temporary tensors.
class [[nodiscard]] Frame {
 public:
  explicit Frame(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  // Not noexcept: leaving a scope while a started call owns its memory is the error that this
  // finds.
  ~Frame() noexcept(false);
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  Tensor alloc(const Shape& shape, DType dtype) {
    return arena_.alloc(shape, dtype, MemClass::kWork);
  }

 private:
  Arena& arena_;
  Arena::Mark mark_;
  int exceptions_ = count_exceptions();
  static int count_exceptions();
};

}  // namespace orthant
