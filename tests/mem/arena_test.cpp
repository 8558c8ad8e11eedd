// Arenas: high-water marks, what bytes are for, overflow, frames.
#include "mem/arena.h"

#include <cstring>
#include <memory>

#include <gtest/gtest.h>

#include "base/check.h"

namespace orthant {
namespace {

class ArenaTest : public testing::Test {
 protected:
  InFlight in_flight_;
  std::unique_ptr<Device> device_ = make_host_device();
  Arena arena_{*device_, in_flight_, "slot", 8192};
};

TEST_F(ArenaTest, KeepsTheHighestTop) {
  const Arena::Mark mark = arena_.mark();
  arena_.alloc({100}, DType::kF32, MemClass::kWork);
  EXPECT_EQ(arena_.top(), 512);
  arena_.alloc({1}, DType::kBF16, MemClass::kActivations);
  EXPECT_EQ(arena_.top(), 768);
  arena_.rewind(mark);
  EXPECT_EQ(arena_.top(), 0);
  arena_.alloc({64}, DType::kF32, MemClass::kWork);
  EXPECT_EQ(arena_.peak(), 768);
}

TEST_F(ArenaTest, SaysWhatTheBytesAtThePeakWereFor) {
  {
    Frame frame(arena_);
    frame.alloc({64}, DType::kF32);
  }
  arena_.alloc({128}, DType::kF32, MemClass::kParameters);
  arena_.alloc({3}, DType::kF64, MemClass::kGradients);
  const ClassBytes& bytes = arena_.peak_by_class();
  EXPECT_EQ(bytes[static_cast<std::size_t>(MemClass::kParameters)], 512);
  EXPECT_EQ(bytes[static_cast<std::size_t>(MemClass::kGradients)], 256);
  EXPECT_EQ(bytes[static_cast<std::size_t>(MemClass::kWork)], 0);
  std::int64_t sum = 0;
  for (const std::int64_t part : bytes) {
    sum += part;
  }
  EXPECT_EQ(sum, arena_.peak());
}

TEST_F(ArenaTest, GivesAlignedZeroedMemoryThatDoesNotOverlap) {
  const Tensor a = arena_.alloc({7}, DType::kU8, MemClass::kWork);
  const Tensor b = arena_.alloc({5, 3}, DType::kI64, MemClass::kWork);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data) % Arena::kAlign, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data) % Arena::kAlign, 0u);
  EXPECT_GE(b.data, a.data + a.bytes());
  EXPECT_EQ(b.ptr<std::int64_t>()[14], 0);
}

TEST_F(ArenaTest, OverflowNamesTheArenaItsPlanAndTheTensor) {
  arena_.alloc({1024}, DType::kF32, MemClass::kWork);
  try {
    arena_.alloc({2, 1024}, DType::kBF16, MemClass::kWork);
    arena_.alloc({1}, DType::kBF16, MemClass::kWork);
    FAIL() << "an overflow was allowed";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "arena 'slot' is planned for 8.0 KiB, tensor [1] bf16 raises it to 8.2 KiB; plan and "
              "run disagree, please report");
  }
  EXPECT_EQ(arena_.peak(), 8192);
}

TEST_F(ArenaTest, RewindsOnlyDownwards) {
  arena_.alloc({1}, DType::kF32, MemClass::kWork);
  const Arena::Mark high = arena_.mark();
  arena_.rewind({});
  EXPECT_THROW(arena_.rewind(high), Error);
}

TEST_F(ArenaTest, FramesNest) {
  Frame outer(arena_);
  outer.alloc({64}, DType::kF32);
  {
    Frame inner(arena_);
    inner.alloc({64}, DType::kF32);
    EXPECT_EQ(arena_.top(), 512);
  }
  EXPECT_EQ(arena_.top(), 256);
}

TEST_F(ArenaTest, AFrameWithAStartedCallInItsMemoryDoesNotEnd) {
  const auto leave_too_early = [this] {
    Frame frame(arena_);
    in_flight_.own_read(Token{1}, frame.alloc({4}, DType::kF32), "send");
  };
  EXPECT_THROW(leave_too_early(), Error);
  in_flight_.release(Token{1});
  // An error on its way out is not replaced by that of the frame.
  const auto leave_by_error = [this] {
    Frame frame(arena_);
    in_flight_.own_read(Token{2}, frame.alloc({4}, DType::kF32), "send");
    fail_user("first");
  };
  try {
    leave_by_error();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
}

TEST_F(ArenaTest, RewindingMemoryOfAStartedCallIsAnError) {
  const Arena::Mark empty = arena_.mark();
  const Tensor low = arena_.alloc({4}, DType::kF32, MemClass::kWork);
  const Arena::Mark middle = arena_.mark();
  arena_.alloc({4}, DType::kF32, MemClass::kWork);
  in_flight_.own_read(Token{1}, low, "send");
  EXPECT_NO_THROW(arena_.rewind(middle));
  EXPECT_THROW(arena_.rewind(empty), Error);
  in_flight_.release(Token{1});
  EXPECT_NO_THROW(arena_.rewind(empty));
}

TEST(Devices, CopyToAndFromTheHost) {
  const InFlight in_flight;
  const auto device = make_host_device();
  Arena arena(*device, in_flight, "a", 4096);
  const Tensor t = arena.alloc({3}, DType::kF32, MemClass::kWork);
  const float sent[3] = {1, 2, 3};
  float received[3] = {};
  device->to_device(t, std::as_bytes(std::span(sent)));
  device->to_host(std::as_writable_bytes(std::span(received)), t);
  EXPECT_EQ(std::memcmp(sent, received, sizeof(sent)), 0);
  EXPECT_THROW(device->to_device(t, std::as_bytes(std::span(sent).first(2))), Error);
}

TEST(Devices, MetaReservesTheDryRunsArenasWithoutMemory) {
  const InFlight in_flight;
  const auto device = make_meta_device();
  Arena first(*device, in_flight, "a", kDryRunArenaBytes);
  Arena second(*device, in_flight, "b", kDryRunArenaBytes);
  const Tensor t = first.alloc({1 << 20, 1 << 10}, DType::kF32, MemClass::kWork);
  EXPECT_EQ(first.peak(), std::int64_t{1} << 32);
  EXPECT_TRUE(t.present());
  const float sent[1] = {1};
  EXPECT_NO_THROW(device->to_device(t.flat(0, 1), std::as_bytes(std::span(sent))));
}

}  // namespace
}  // namespace orthant
