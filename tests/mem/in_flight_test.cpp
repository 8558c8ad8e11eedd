// InFlight: what a started call writes nobody touches, what it reads nobody writes.
#include "mem/in_flight.h"

#include <array>

#include <gtest/gtest.h>

#include "base/check.h"

namespace orthant {
namespace {

class InFlightTest : public testing::Test {
 protected:
  std::array<float, 16> memory_{};
  Tensor all_{.data = reinterpret_cast<std::byte*>(memory_.data()), .shape = {16}};
  InFlight in_flight_;
};

TEST_F(InFlightTest, WrittenMemoryIsNeitherReadNorWritten) {
  in_flight_.own_written(Token{1}, all_.flat(4, 4), "recv");
  EXPECT_THROW(in_flight_.check_read(all_.flat(7, 1), "op"), Error);
  EXPECT_THROW(in_flight_.check_write(all_.flat(0, 5), "op"), Error);
  EXPECT_THROW(in_flight_.check_write(all_, "op"), Error);
  // Next to it is free.
  EXPECT_NO_THROW(in_flight_.check_write(all_.flat(0, 4), "op"));
  EXPECT_NO_THROW(in_flight_.check_write(all_.flat(8, 8), "op"));
}

TEST_F(InFlightTest, ReadMemoryIsReadButNotWrittenOrFreed) {
  in_flight_.own_read(Token{1}, all_.flat(4, 4), "send");
  EXPECT_NO_THROW(in_flight_.check_read(all_, "op"));
  EXPECT_THROW(in_flight_.check_write(all_.flat(5, 1), "op"), Error);
  EXPECT_THROW(in_flight_.check_free(all_.data, all_.data + 20, "arena"), Error);
  EXPECT_NO_THROW(in_flight_.check_free(all_.data, all_.data + 16, "arena"));
}

TEST_F(InFlightTest, EachCallGivesBackItsOwn) {
  in_flight_.own_read(Token{1}, all_.flat(0, 4), "send");
  in_flight_.own_written(Token{1}, all_.flat(4, 4), "all_gather");
  in_flight_.own_read(Token{2}, all_.flat(2, 4).flat(0, 1), "send");
  in_flight_.release(Token{1});
  EXPECT_FALSE(in_flight_.empty());
  EXPECT_NO_THROW(in_flight_.check_write(all_.flat(4, 4), "op"));
  EXPECT_THROW(in_flight_.check_write(all_.flat(2, 1), "op"), Error);
  in_flight_.release(Token{2});
  EXPECT_TRUE(in_flight_.empty());
}

TEST_F(InFlightTest, AbsentTensorsAreNobodys) {
  in_flight_.own_written(Token{1}, Tensor(), "recv");
  EXPECT_TRUE(in_flight_.empty());
  in_flight_.own_written(Token{1}, all_, "recv");
  EXPECT_NO_THROW(in_flight_.check_write(Tensor(), "op"));
}

TEST_F(InFlightTest, TheErrorNamesBothCalls) {
  in_flight_.own_written(Token{1}, all_, "all_gather");
  try {
    in_flight_.check_read(all_, "linear_fwd");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "linear_fwd touches memory that a started all_gather still owns; wait for that "
                 "call first");
  }
}

}  // namespace
}  // namespace orthant
