// The vectors of RFC 3720, section B.4.
#include "base/crc32c.h"

#include <string>

#include <gtest/gtest.h>

namespace orthant {
namespace {

TEST(Crc32c, EqualsTheVectorsOfRfc3720) {
  std::string up(32, '\0');
  for (int i = 0; i < 32; ++i) {
    up[static_cast<std::size_t>(i)] = static_cast<char>(i);
  }
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(up), 0x46dd794eu);
  EXPECT_EQ(crc32c(std::string(up.rbegin(), up.rend())), 0x113fdb5cu);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Crc32c, ContinuesWhereItStopped) {
  EXPECT_EQ(crc32c("56789", crc32c("1234")), crc32c("123456789"));
}

}  // namespace
}  // namespace orthant
