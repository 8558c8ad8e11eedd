// Transfers: copies between a device and its host that run beside the ops. Like a started call of a
// communicator, a copy owns its memory until it is waited for, in a dry run too.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ledger.h"
#include "mem/device.h"
#include "mem/in_flight.h"

namespace orthant {

class Transfers {
 public:
  Transfers(Device& device, Ledger& ledger, InFlight& in_flight);

  // A copy begins after the ops so far, and goes on beside later ones, in order within its
  // direction. Host tensors lie in memory of device.host(); types and sizes are equal.
  [[nodiscard]] Token start_out(const Tensor& host, const Tensor& device);
  [[nodiscard]] Token start_in(const Tensor& device, const Tensor& host);
  // Later ops and copies see the result. A done token is waited for at once.
  void wait(Token token);

 private:
  struct Started {
    Token token;
    Lane lane;
    std::int64_t sequence;  // of the device's lane
    std::int64_t bytes;
  };
  Token start(Lane lane, const Tensor& to, const Tensor& from);
  void record(Lane lane, std::int64_t bytes, Token starts, Token waits_for);

  Device& device_;
  Ledger& ledger_;
  InFlight& in_flight_;
  std::vector<Started> started_;
};

}  // namespace orthant
