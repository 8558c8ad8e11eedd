#include "base/turns.h"

#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace orthant {
namespace {

TEST(Turns, AreTakenOneAfterTheOther) {
  Turns turns;
  for (int again = 0; again < 3; ++again) {
    std::string order;
    turns.run([&](int body) {
      for (int i = 0; i < 3; ++i) {
        order += body == 0 ? 'a' : 'b';
        EXPECT_TRUE(turns.give() || (body == 1 && i == 2));
      }
    });
    EXPECT_EQ(order, "ababab");
  }
  EXPECT_FALSE(turns.give());
}

TEST(Turns, MidwayTheFirstBodyKeepsAhead) {
  Turns turns;
  std::string order;
  turns.run([&](int body) {
    for (int i = 0; i < 3; ++i) {
      order += body == 0 ? 'a' : 'b';
      turns.give_midway();
    }
  });
  EXPECT_EQ(order, "aababb");
}

TEST(Turns, WhatIsLeftOfOneRunsWhenTheOtherHasEnded) {
  Turns turns;
  std::string order;
  turns.run([&](int body) {
    const int count = body == 0 ? 1 : 4;
    for (int i = 0; i < count; ++i) {
      order += body == 0 ? 'a' : 'b';
      turns.give();
    }
  });
  EXPECT_EQ(order, "abbbb");
  order.clear();
  turns.run([&](int body) { order += body == 0 ? 'a' : 'b'; });
  EXPECT_EQ(order, "ab");
}

struct Scope {
  std::string& order;
  char name;
  Scope(std::string& the_order, char the_name) : order(the_order), name(the_name) {}
  ~Scope() { order += name; }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

// Which body fails, and what of both has been unwound then.
std::string unwound_when(int failing) {
  Turns turns;
  std::string order;
  const auto run = [&] {
    turns.run([&](int body) {
      const Scope scope(order, body == 0 ? 'a' : 'b');
      turns.give();
      if (body == failing) throw std::runtime_error("failed");
      turns.give();
      turns.give();
      order += '!';
    });
  };
  EXPECT_THROW(run(), std::runtime_error);
  std::string unwound = order;
  order.clear();
  turns.run([&](int body) { order += body == 0 ? 'a' : 'b'; });
  EXPECT_EQ(order, "ab") << "after an error turns are taken again";
  return unwound;
}

TEST(Turns, AnErrorOfOneUnwindsBoth) {
  EXPECT_EQ(unwound_when(0), "ab");
  EXPECT_EQ(unwound_when(1), "ba");
}

TEST(Turns, AnErrorBeforeTheSecondBodyBeginsIsThrown) {
  Turns turns;
  EXPECT_THROW(turns.run([](int) { throw std::runtime_error("failed"); }), std::runtime_error);
}

}  // namespace
}  // namespace orthant
