// Checksums: parts add up, and every change of one bit or of order is seen.
#include "ckpt/checksum.h"

#include <bit>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace orthant {
namespace {

std::vector<float> some_values(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::bit_cast<float>(philox(1, 2, i)[0]);
  }
  return values;
}

// As formats have it; checkpoints that are on disk hold it.
std::uint64_t by_definition(std::span<const float> values, std::uint64_t first) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint64_t mix = std::bit_cast<std::uint32_t>(values[i]);
    mix += (first + i + 1) * 0x9e3779b97f4a7c15;
    mix = (mix ^ mix >> 29) * 0xbf58476d1ce4e5b9;
    sum += mix ^ mix >> 32;
  }
  return sum;
}

TEST(Checksum, IsThatOfItsDefinitionAtEveryLengthAndPlace) {
  const std::vector<float> values = some_values(40);
  for (std::size_t count = 0; count <= values.size(); ++count) {
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{3}, std::int64_t{1} << 40}) {
      const std::span<const float> some = std::span<const float>(values).first(count);
      EXPECT_EQ(checksum(some, first), by_definition(some, static_cast<std::uint64_t>(first)))
          << count << " from " << first;
    }
  }
  EXPECT_EQ(checksum(std::vector<float>{1, -2.5f, 0, 1e-30f, 7}, 9), 0x9bbbcc8dfd549be6);
}

TEST(Checksum, OfPartsAddUpToThatOfTheWhole) {
  const std::vector<float> values = some_values(1000);
  const std::span<const float> all(values);
  const std::uint64_t whole = checksum(all, 0);
  EXPECT_EQ(checksum(all.first(1), 0) + checksum(all.subspan(1, 400), 1) +
                checksum(all.subspan(401), 401),
            whole);
}

TEST(Checksum, SeesEveryBit) {
  std::vector<float> values = some_values(64);
  const std::uint64_t before = checksum(values, 7);
  for (float& value : values) {
    for (int bit = 0; bit < 32; ++bit) {
      const float kept = value;
      value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ std::uint32_t{1} << bit);
      EXPECT_NE(checksum(values, 7), before);
      value = kept;
    }
  }
}

TEST(Checksum, SeesZerosSignsAndOrder) {
  EXPECT_NE(checksum(std::vector<float>{0, 0}, 0), checksum(std::vector<float>{0}, 0));
  EXPECT_NE(checksum(std::vector<float>{0.0f}, 0), checksum(std::vector<float>{-0.0f}, 0));
  EXPECT_NE(checksum(std::vector<float>{1, 2}, 0), checksum(std::vector<float>{2, 1}, 0));
}

}  // namespace
}  // namespace orthant
