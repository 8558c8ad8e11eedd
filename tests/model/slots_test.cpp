// Slots: who gets which arena.
#include "model/slots.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "mem/device.h"

namespace orthant {
namespace {

class SlotsTest : public testing::Test {
 protected:
  SlotsTest() {
    for (int i = 0; i < 3; ++i) {
      arenas_.push_back(
          std::make_unique<Arena>(*device_, in_flight_, "slot" + std::to_string(i), 1 << 16));
      pointers_.push_back(arenas_.back().get());
    }
    for (int i = 0; i < 2; ++i) {
      lates_.push_back(
          std::make_unique<Arena>(*device_, in_flight_, "late" + std::to_string(i), 1 << 16));
    }
    const std::array<Arena*, 2> lates = {lates_[0].get(), lates_[1].get()};
    slots_ = std::make_unique<Slots>(pointers_, lates, 2, 2, 2);
  }
  std::string opened(int chunk, int micro) { return slots_->open(chunk, micro).arena->name(); }

  std::unique_ptr<Device> device_ = make_meta_device();
  InFlight in_flight_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<Arena*> pointers_;
  std::vector<std::unique_ptr<Arena>> lates_;
  std::unique_ptr<Slots> slots_;
};

TEST_F(SlotsTest, AChunkReturnsToASlotThatItHeld) {
  slots_->begin(Slots::List::kTraining);
  EXPECT_EQ(opened(0, 0), "slot0");
  EXPECT_EQ(opened(1, 0), "slot1");
  slots_->close(0, 0);
  slots_->close(1, 0);
  EXPECT_EQ(opened(1, 1), "slot1");
  EXPECT_EQ(opened(1, 2), "slot2");  // a fresh one before that of another chunk
  EXPECT_EQ(opened(1, 3), "slot0");
  EXPECT_THROW((void)slots_->open(0, 4), Error);
}

TEST_F(SlotsTest, ABackwardInHalvesHasALateArenaUntilItsEnd) {
  slots_->begin(Slots::List::kTraining);
  const auto split = [&](int chunk, int micro) {
    slots_->open(chunk, micro);
    return slots_->split(chunk, micro).late->name();
  };
  EXPECT_EQ(split(0, 0), "late0");
  EXPECT_EQ(split(1, 0), "late1");
  int num_late = 0;
  for (Stash& stash : slots_->at(1, 0).stashes) {
    stash.alloc({4}, DType::kF32);
    EXPECT_EQ(lates_[1]->top(), num_late * Arena::kAlign);
    stash.alloc_late({4}, DType::kF32);
    EXPECT_EQ(lates_[1]->top(), ++num_late * Arena::kAlign);
  }
  EXPECT_EQ(num_late, 2);
  EXPECT_THROW((void)split(0, 1), Error);
  slots_->close(0, 0);
  slots_->close(1, 0);
  EXPECT_EQ(lates_[1]->top(), 0);
  EXPECT_EQ(split(1, 2), "late1");  // one that held the chunk before
  slots_->open(0, 2);
  EXPECT_EQ(slots_->at(0, 2).late, nullptr);
}

TEST_F(SlotsTest, EveryRunOfAListHandsOutTheSame) {
  for (int run = 0; run < 2; ++run) {
    slots_->begin(Slots::List::kTraining);
    EXPECT_EQ(opened(1, 0), "slot0");
    EXPECT_EQ(opened(0, 0), "slot1");
    slots_->close(1, 0);
    EXPECT_EQ(opened(0, 1), "slot2");
    slots_->close(0, 0);
    slots_->close(0, 1);
  }
}

TEST_F(SlotsTest, ForwardsAloneUseTheSlotOfATraining) {
  slots_->begin(Slots::List::kForwardOnly);
  EXPECT_EQ(opened(1, 0), "slot0");  // no training before
  slots_->close(1, 0);
  slots_->begin(Slots::List::kTraining);
  opened(0, 0);
  EXPECT_EQ(opened(1, 0), "slot1");
  slots_->close(1, 0);
  slots_->close(0, 0);
  slots_->begin(Slots::List::kForwardOnly);
  EXPECT_EQ(opened(1, 5), "slot1");
  slots_->close(1, 5);
  EXPECT_EQ(opened(0, 5), "slot0");
  EXPECT_THROW(slots_->begin(Slots::List::kTraining), Error);
}

}  // namespace
}  // namespace orthant
