#include "base/text.h"

#include <gtest/gtest.h>

namespace orthant {
namespace {

TEST(Text, BytesHaveAUnitThatFits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(std::int64_t{412} << 20), "412.0 MiB");
  EXPECT_EQ(format_bytes(std::int64_t{3} << 40), "3.0 TiB");
  EXPECT_EQ(format_bytes(std::int64_t{1} << 62), "4096.0 PiB");
}

TEST(Text, JoinAndSplitAreOpposites) {
  const std::vector<std::string> parts = {"a", "b", "c"};
  EXPECT_EQ(join(parts), "a, b, c");
  EXPECT_EQ(split(join(parts, "."), '.'), parts);
  EXPECT_EQ(join({}), "");
  EXPECT_EQ(split("", '.'), std::vector<std::string>{""});
  EXPECT_EQ(split("a..b", '.'), (std::vector<std::string>{"a", "", "b"}));
}

TEST(Text, TheNearestNameIsTheOneWithTheFewestEdits) {
  const std::vector<std::string> known = {"layers", "hidden", "heads", "kv_heads"};
  EXPECT_EQ(nearest("head", known), "heads");
  EXPECT_EQ(nearest("hiden", known), "hidden");
  EXPECT_EQ(nearest("kvheads", known), "kv_heads");
  EXPECT_EQ(nearest("x", {}), "");
}

TEST(Text, TablesPadColumnsAndPutNumbersToTheRight) {
  EXPECT_EQ(format_table({{"class", "bytes"}, {"work", "17 B"}, {"optimizer", "1.5 KiB"}}),
            "class      bytes\n"
            "work          17 B\n"
            "optimizer  1.5 KiB\n");
  EXPECT_EQ(format_table({{"a", ""}, {"bb", "c"}}), "a\nbb  c\n");
  EXPECT_EQ(format_table({}), "");
}

}  // namespace
}  // namespace orthant
