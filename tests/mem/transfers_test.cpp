// Copies between device and host own their memory until they are waited for.
#include "mem/transfers.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "mem/arena.h"

namespace orthant {
namespace {

struct Bed {
  explicit Bed(std::unique_ptr<Device> made) : device(std::move(made)) {}
  std::unique_ptr<Device> device;
  Ledger ledger;
  InFlight in_flight;
  Arena arena{*device, in_flight, "device", 4096};
  Arena host_arena{device->host(), in_flight, "host", 4096};
  Transfers transfers{*device, ledger, in_flight};
  Tensor here = arena.alloc({8}, DType::kF32, MemClass::kActivations);
  Tensor there = host_arena.alloc({8}, DType::kF32, MemClass::kActivations);
};

TEST(Transfers, BringBackWhatTheyTookOut) {
  Bed bed(make_host_device());
  for (int i = 0; i < 8; ++i) {
    bed.here.ptr<float>()[i] = static_cast<float>(i + 1);
  }
  bed.transfers.wait(bed.transfers.start_out(bed.there, bed.here));
  for (int i = 0; i < 8; ++i) {
    bed.here.ptr<float>()[i] = 0;
  }
  bed.transfers.wait(bed.transfers.start_in(bed.here, bed.there));
  EXPECT_EQ(bed.here.ptr<float>()[7], 8);
  EXPECT_TRUE(bed.in_flight.empty());
}

TEST(Transfers, OwnTheirMemoryInADryRunToo) {
  for (auto* make : {make_host_device, make_meta_device}) {
    Bed bed(make());
    const Token out = bed.transfers.start_out(bed.there, bed.here);
    EXPECT_NO_THROW(bed.in_flight.check_read(bed.here, "reader"));
    EXPECT_THROW(bed.in_flight.check_write(bed.here, "writer"), Error);
    EXPECT_THROW((void)bed.transfers.start_in(bed.here, bed.there), Error);
    EXPECT_THROW(bed.host_arena.rewind({}), Error);
    bed.transfers.wait(out);
    EXPECT_THROW(bed.transfers.wait(out), Error);
    const Token in = bed.transfers.start_in(bed.here, bed.there);
    EXPECT_THROW(bed.in_flight.check_read(bed.here, "reader"), Error);
    bed.transfers.wait(in);
    EXPECT_THROW((void)bed.transfers.start_in(bed.here.flat(0, 4), bed.there), Error);

    const auto entries = bed.ledger.entries();
    ASSERT_EQ(entries.size(), 4u);
    EXPECT_EQ(entries[0].lane, Lane::kCopyOut);
    EXPECT_EQ(entries[0].message_bytes, 32);
    EXPECT_EQ(entries[1].waits_for, entries[0].starts);
    EXPECT_EQ(entries[2].lane, Lane::kCopyIn);
  }
}

class Doubling final : public LaneWork {
 public:
  explicit Doubling(const Tensor& tensor) : tensor_(tensor) {}
  void run() noexcept override {
    for (std::int64_t i = 0; i < tensor_.count(); ++i) {
      tensor_.ptr<float>()[i] *= 2;
    }
  }

 private:
  Tensor tensor_;
};

TEST(Transfers, WorkOfTheHostRunsBetweenTheCopiesThatItIsGiven) {
  Bed bed(make_host_device());
  bed.here.ptr<float>()[3] = 21;
  Doubling doubling(bed.there);
  const Tensor both[] = {bed.there};
  const Transfers::Work work{
      .what = "double", .cost = {.bytes = 64}, .reads = both, .writes = both, .work = &doubling};
  const Token out = bed.transfers.start_out(bed.there, bed.here);
  const Token twice = bed.transfers.start_work(work, {out, {}});
  const Token in = bed.transfers.start_in(bed.here, bed.there, {twice, {}});
  EXPECT_THROW(bed.in_flight.check_read(bed.here, "reader"), Error);
  for (const Token token : {out, twice, in}) {
    bed.transfers.wait(token);
  }
  EXPECT_EQ(bed.here.ptr<float>()[3], 42);
  EXPECT_TRUE(bed.in_flight.empty());
  const auto entries = bed.ledger.entries();
  EXPECT_EQ(entries[1].lane, Lane::kHost);
  EXPECT_EQ(entries[1].after[0], out);
  EXPECT_EQ(entries[2].after[0], twice);
}

TEST(Transfers, NothingIsTouchedBeforeWhatOwnsItIsOver) {
  Bed bed(make_meta_device());
  Doubling doubling(bed.there);
  const Tensor both[] = {bed.there};
  const Transfers::Work work{
      .what = "double", .cost = {}, .reads = both, .writes = both, .work = &doubling};
  const Token out = bed.transfers.start_out(bed.there, bed.here);
  EXPECT_THROW((void)bed.transfers.start_work(work), Error);
  const Token twice = bed.transfers.start_work(work, {out, {}});
  EXPECT_THROW((void)bed.transfers.start_in(bed.here, bed.there), Error);
  EXPECT_THROW((void)bed.transfers.start_in(bed.here, bed.there, {out, {}}), Error);
  const Token in = bed.transfers.start_in(bed.here, bed.there, {twice, {}});
  // What comes behind the work in its lane is behind the copy before it too.
  const Token again = bed.transfers.start_work(work, {in, {}});
  const Token leaving = bed.transfers.start_out(bed.there, bed.here, {again, {}});
  bed.transfers.wait(leaving);
  EXPECT_NO_THROW(bed.transfers.wait(bed.transfers.start_in(bed.here, bed.there)));
}

}  // namespace
}  // namespace orthant
