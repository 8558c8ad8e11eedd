// Masters that are split: every kind of number comes back, and AdamW makes of them what it makes of
// whole ones, but for those halfway between two values.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/close.h"

namespace orthant {
namespace {

constexpr std::uint32_t kInfinity = 0x7f800000U;

bool is_nan(std::uint32_t bits) {
  return (bits & 0x7fffffffU) > kInfinity;
}

// What a master comes back as.
std::uint32_t expected_of(std::uint32_t bits) {
  const bool is_lowered = (bits & 0x1ffffU) == 0x8000U;  // halfway, and the even value is below
  return is_lowered ? bits - 1 : bits;
}

std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

// All upper halves: both signs of zero, of subnormal and normal numbers, of infinities and of what
// is not a number; each with the lower halves at which something changes.
TEST(SplitMaster, EveryKindOfNumberComesBack) {
  for (std::uint32_t upper = 0; upper <= 0xffffU; ++upper) {
    for (const std::uint32_t lower :
         {0x0U, 0x1U, 0x1234U, 0x7ffeU, 0x7fffU, 0x8000U, 0x8001U, 0xabcdU, 0xfffeU, 0xffffU}) {
      const std::uint32_t bits = upper << 16 | lower;
      const auto master = std::bit_cast<float>(bits);
      const BFloat16 value(master);
      const std::int16_t remainder = master_remainder(master);
      const float joined = joined_master(value, remainder);
      if (is_nan(bits)) {
        ASSERT_TRUE(std::isnan(joined)) << fmt::format("{:08x}", bits);
        continue;
      }
      ASSERT_EQ(bits_of(joined), expected_of(bits)) << fmt::format("{:08x}", bits);
      // And stays: its value and remainder are the same again.
      ASSERT_EQ(BFloat16(joined).bits, value.bits) << fmt::format("{:08x}", bits);
      ASSERT_EQ(master_remainder(joined), remainder) << fmt::format("{:08x}", bits);
    }
  }
}

TEST(SplitMaster, WhatIsNotFiniteStaysSo) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float master : {infinity, -infinity}) {
    EXPECT_EQ(master_remainder(master), 0);
    EXPECT_EQ(joined_master(BFloat16(master), 0), master);
  }
  // A value of infinity alone does not make a master infinite, as beside a whole one.
  const float largest = std::numeric_limits<float>::max();
  EXPECT_TRUE(std::isinf(static_cast<float>(BFloat16(largest))));
  EXPECT_EQ(joined_master(BFloat16(largest), master_remainder(largest)), largest);
}

// Both on one backend, from the same masters.
class Pair {
 public:
  Pair(const std::string& kind, std::int64_t count, DType state_type) : bed_(kind) {
    state_ = bed_.step_state({.step = 5, .seed = 77, .lr = 1e-2, .clip_factor = 0.7, .updates = 3});
    const Tensor remainder = bed_.whole("remainder", {count}, DType::kI16, -0x7fff, 0x7fff);
    const Tensor value = bed_.normal("master", {count}, DType::kBF16);
    whole_ = adam(count, state_type);
    whole_.master = bed_.floats({count}, DType::kF32,
                                joined_masters(bed_.on_host(remainder), bed_.on_host(value)));
    whole_.value = bed_.out({count}, DType::kBF16);
    split_ = adam(count, state_type);
    split_.master = remainder;
    split_.value = value;
  }

  void run() {
    bed_.run(whole_);
    bed_.run(split_);
  }

  void expect_same_but_for_ties() {
    const Tensor whole = bed_.on_host(whole_.master);
    const std::vector<double> split =
        joined_masters(bed_.on_host(split_.master), bed_.on_host(split_.value));
    for (std::int64_t i = 0; i < whole.count(); ++i) {
      ASSERT_EQ(bits_of(static_cast<float>(split[static_cast<std::size_t>(i)])),
                expected_of(whole.ptr<const std::uint32_t>()[i]))
          << i << "\n"
          << repro_line();
    }
    const auto same = [&](const Tensor& a, const Tensor& b) {
      const Tensor here = bed_.on_host(a);
      return std::memcmp(here.data, bed_.on_host(b).data, static_cast<std::size_t>(here.bytes()));
    };
    EXPECT_EQ(same(split_.value, whole_.value), 0);
    EXPECT_EQ(same(split_.m, whole_.m), 0);
    EXPECT_EQ(same(split_.v, whole_.v), 0);
  }

 private:
  AdamW adam(std::int64_t count, DType state_type) {
    return {.master = {},
            .m = bed_.normal("m", {count}, state_type, 0.1),
            .v = bed_.zeros({count}, state_type),
            .value = {},
            .grad = bed_.normal("grad", {count}, state_type),
            .step_state = state_,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .eps = 1e-8,
            .weight_decay = 0.1,
            .places = {.first = 3, .row = 37, .stride = 101, .offset = 11},
            .stream = 99};
  }

  OpBed bed_;
  Tensor state_;
  AdamW whole_;
  AdamW split_;
};

std::vector<std::string> backends() {
  std::vector<std::string> kinds = {"ref", "cpu"};
  if (!gpus().empty()) kinds.emplace_back("cuda");
  return kinds;
}

TEST(SplitMaster, AdamWMakesOfThemWhatItMakesOfWholeOnes) {
  for (const std::string& kind : backends()) {
    for (const DType state_type : {DType::kF32, DType::kBF16}) {
      for (const std::int64_t count : {1, 15, 64, 100003}) {
        SCOPED_TRACE(fmt::format("{}, state in {}, {}", kind, name_of(state_type), count));
        Pair pair(kind, count, state_type);
        pair.run();
        pair.expect_same_but_for_ties();
      }
    }
  }
}

// With these settings a step moves a master by the learning rate, away from the gradient's sign.
AdamW moving_adam(OpBed& bed, const std::vector<double>& values, const std::vector<double>& grads,
                  const StepState& state) {
  const auto count = static_cast<std::int64_t>(values.size());
  return {.master = bed.zeros({count}, DType::kI16),
          .m = bed.zeros({count}, DType::kF32),
          .v = bed.zeros({count}, DType::kF32),
          .value = bed.floats({count}, DType::kBF16, values),
          .grad = bed.floats({count}, DType::kF32, grads),
          .step_state = bed.step_state(state),
          .beta1 = 0,
          .beta2 = 0,
          .eps = 0,
          .weight_decay = 0};
}

// Halfway above 1 the even value is below, above 1 + 2^-7 it is above.
TEST(SplitMaster, AMasterHalfwayBetweenValuesIsLoweredWhereTheEvenOneIsBelow) {
  for (const std::string& kind : backends()) {
    OpBed bed(kind);
    const AdamW adam = moving_adam(bed, {1, -1, 1 + 0x1p-7, -1 - 0x1p-7}, {-1, 1, -1, 1},
                                   {.lr = 0x1p-8, .updates = 1});
    bed.run(adam);
    const double lowered = 1 + 0x1p-8 - 0x1p-23;
    EXPECT_EQ(joined_masters(bed.on_host(adam.master), bed.on_host(adam.value)),
              (std::vector<double>{lowered, -lowered, 1 + 0x3p-8, -1 - 0x3p-8}))
        << kind;
    EXPECT_EQ(values_of(bed.on_host(adam.value)),
              (std::vector<double>{1, -1, 1 + 0x1p-6, -1 - 0x1p-6}))
        << kind;
  }
}

TEST(SplitMaster, AMasterThatIsNotFiniteDoesNotBecomeSo) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::string& kind : backends()) {
    OpBed bed(kind);
    const AdamW adam = moving_adam(bed, {std::nan(""), 1, 1, infinity},
                                   {1, std::nan(""), infinity, 1}, {.lr = 0x1p-8, .updates = 1});
    bed.run(adam);
    const std::vector<double> after =
        joined_masters(bed.on_host(adam.master), bed.on_host(adam.value));
    for (std::size_t i = 0; i < after.size(); ++i) {
      EXPECT_FALSE(std::isfinite(after[i])) << kind << ", " << i << ": " << after[i];
    }
  }
}

TEST(SplitMaster, ASkippedStepChangesNoBit) {
  for (const std::string& kind : backends()) {
    OpBed bed(kind);
    AdamW adam = moving_adam(bed, std::vector<double>(100, 1), std::vector<double>(100, 1),
                             {.lr = 1, .skip = 1, .updates = 1});
    // Bits that no update writes, too.
    adam.value = bed.out({100}, DType::kBF16);
    adam.master = bed.whole("remainder", {100}, DType::kI16, -0x8000, 0x7fff);
    const std::vector<double> before = values_of(bed.on_host(adam.master));
    bed.run(adam);
    EXPECT_EQ(values_of(bed.on_host(adam.master)), before) << kind;
    const Tensor value = bed.on_host(adam.value);
    for (std::int64_t i = 0; i < value.count(); ++i) {
      ASSERT_EQ(value.ptr<const std::uint16_t>()[i], 0xffff) << kind;
    }
  }
}

TEST(SplitMaster, CountsTheValueThatIsReadAndWritten) {
  OpBed bed("meta");
  const Tensor state = bed.step_state({});
  const auto bytes_of_one = [&](DType master) {
    constexpr std::int64_t kCount = 1000;
    const AdamW adam{.master = bed.zeros({kCount}, master),
                     .m = bed.zeros({kCount}, DType::kF32),
                     .v = bed.zeros({kCount}, DType::kF32),
                     .value = bed.zeros({kCount}, DType::kBF16),
                     .grad = bed.zeros({kCount}, DType::kF32),
                     .step_state = state,
                     .beta1 = 0.9,
                     .beta2 = 0.95,
                     .eps = 1e-8,
                     .weight_decay = 0};
    return (cost(adam).bytes - static_cast<double>(state.bytes())) / kCount;
  };
  EXPECT_EQ(bytes_of_one(DType::kF32), 2 * (4 + 4 + 4) + 2 + 4);
  EXPECT_EQ(bytes_of_one(DType::kI16), 2 * (2 + 4 + 4) + 2 * 2 + 4);
}

}  // namespace
}  // namespace orthant
