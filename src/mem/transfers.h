// Transfers: copies between a device and its host, and work of either, that run beside the ops.
// Like a started call of a communicator, each owns its memory until it is waited for, in a dry run
// too.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ledger.h"
#include "mem/device.h"
#include "mem/in_flight.h"

namespace orthant {

class Transfers {
 public:
  Transfers(Device& device, Ledger& ledger, InFlight& in_flight);

  // What is started begins after the ops so far and goes on beside later ones, in order within its
  // lane, and after the calls of `after`, whose memory it may touch. A done token stands for none.
  using After = std::array<Token, 2>;

  // Host tensors lie in memory of device.host(); types and sizes are equal.
  [[nodiscard]] Token start_out(const Tensor& host, const Tensor& device, const After& after = {});
  [[nodiscard]] Token start_in(const Tensor& device, const Tensor& host, const After& after = {});

  struct Work {
    std::string_view what;
    Lane lane = Lane::kHost;  // or kBeside
    Cost cost;                // bytes: of the memory of who does it
    std::span<const Tensor> reads;
    std::span<const Tensor> writes;
    LaneWork* work;
  };
  [[nodiscard]] Token start_work(const Work& work, const After& after = {});

  // Later ops and copies see the result. A done token is waited for at once.
  void wait(Token token);
  // Returns when all that was started is over: the host may touch its memory.
  void drain() noexcept { device_.drain(); }

 private:
  // How many calls of each lane are over.
  static constexpr int kNumLanes = static_cast<int>(Lane::kFirstComm);
  using Clock = std::array<std::int64_t, kNumLanes>;
  static std::int64_t& of(Clock& clock, Lane lane) { return clock[static_cast<std::size_t>(lane)]; }

  struct Started {
    Token token;
    std::string_view what;
    Lane lane;
    std::int64_t sequence;  // of the lane
    std::int64_t number;    // the device's
    std::int64_t bytes;
    Clock over;  // when this one is
  };
  struct Call {
    std::string_view what;
    Lane lane;
    Cost cost;
    std::int64_t bytes;  // that cross
  };
  template <class Begin>
  Token start(const Call& call, std::span<const Tensor> reads, std::span<const Tensor> writes,
              const After& after, Begin begin);
  Token copy(Lane lane, const Tensor& to, const Tensor& from, const After& after);
  const Started* find(Token token) const;
  void order(Lane later, Clock& known, const Started& call);
  void record(const Call& call, Token starts, Token waits_for, const After& after);

  Device& device_;
  Ledger& ledger_;
  InFlight& in_flight_;
  std::vector<Started> started_;
  Clock known_{};                        // to ops queued from here on
  std::array<Clock, kNumLanes> ends_{};  // of each lane: what is over when its last call is
  Clock counts_{};                       // calls of each lane
};

}  // namespace orthant
