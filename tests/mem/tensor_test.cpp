// Shapes, views and element types.
#include "mem/tensor.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/random.h"

namespace orthant {
namespace {

TEST(Shape, CountsPrintsAndChanges) {
  const Shape shape = {2, 1024, 768};
  EXPECT_EQ(shape.text(), "[2,1024,768]");
  EXPECT_EQ(shape.count(), 2 * 1024 * 768);
  EXPECT_EQ(shape[-1], 768);
  EXPECT_EQ(shape.with(1, 5), (Shape{2, 5, 768}));
  EXPECT_NE(shape, (Shape{2, 1024}));
  EXPECT_EQ(Shape().count(), 1);
  EXPECT_EQ(Shape().text(), "[]");
  EXPECT_EQ((Shape{3, 0}).count(), 0);
}

TEST(Shape, RefusesWhatDoesNotExist) {
  EXPECT_THROW((Shape{1, 2, 3, 4, 5}), Error);
  EXPECT_THROW((Shape{-1}), Error);
  const Shape shape = {2, 3};
  EXPECT_THROW((void)shape[2], Error);
  EXPECT_THROW((void)shape[-3], Error);
  EXPECT_THROW((void)shape.with(2, 1), Error);
}

TEST(Tensor, ViewsPointIntoTheSameMemory) {
  std::array<float, 12> memory{};
  const Tensor t{.data = reinterpret_cast<std::byte*>(memory.data()), .shape = {4, 3}};
  EXPECT_EQ(t.bytes(), 48);
  EXPECT_EQ(t.rows(2, 1).ptr<float>(), memory.data() + 6);
  EXPECT_EQ(t.rows(1, 3).shape, (Shape{3, 3}));
  EXPECT_EQ(t.flat(5, 4).ptr<float>(), memory.data() + 5);
  EXPECT_EQ(t.as({2, 6}).data, t.data);
  EXPECT_THROW((void)t.rows(3, 2), Error);
  EXPECT_THROW((void)t.flat(10, 3), Error);
  EXPECT_THROW((void)t.as({13}), Error);
  EXPECT_TRUE(Tensor().absent());
  EXPECT_TRUE(t.present());
}

TEST(DTypes, HaveSizesAndNames) {
  EXPECT_EQ(size_of(DType::kBF16), 2);
  EXPECT_EQ(size_of(DType::kF64), 8);
  EXPECT_EQ(size_of(DType::kU8), 1);
  EXPECT_EQ(name_of(DType::kBF16), "bf16");
  EXPECT_EQ(name_of(DType::kI64), "i64");
}

float rounded(float value) {
  return static_cast<float>(BFloat16(value));
}

TEST(BFloat16, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(rounded(1.0f), 1.0f);
  EXPECT_EQ(rounded(1.0f + 0x1p-8f), 1.0f);              // a tie: down to even
  EXPECT_EQ(rounded(1.0f + 0x3p-8f), 1.0f + 0x4p-8f);    // a tie: up to even
  EXPECT_EQ(rounded(1.0f + 0x1.1p-8f), 1.0f + 0x1p-7f);  // above a tie
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), std::numeric_limits<float>::infinity());
  EXPECT_EQ(rounded(-std::numeric_limits<float>::infinity()),
            -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::signbit(rounded(-0.0f)));
  EXPECT_TRUE(std::isnan(rounded(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0x7f800001u))));
}

TEST(BFloat16, KeepsEveryValueThatItCanHold) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = std::bit_cast<float>(bits << 16);
    if (std::isnan(value)) continue;
    ASSERT_EQ(BFloat16(value).bits, bits);
  }
}

TEST(BFloat16, IsNeverFurtherThanHalfOfItsLastPlace) {
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const auto value = static_cast<float>(normal(5, 1, i));
    EXPECT_LE(std::abs(rounded(value) - value), std::abs(value) * 0x1p-8f);
  }
}

}  // namespace
}  // namespace orthant
