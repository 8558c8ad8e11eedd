// DeviceLinks: how ranks that are processes move tensors between their GPUs. The host tells the
// other sides of a call where its tensors are; when all have said so, the call is queued on a
// stream beside the ops, and the host waits for no GPU.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/call.h"
#include "comm/communicator.h"

namespace orthant {

class StreamRank;

// What a rank tells the others of one call; its carrier knows what it says.
struct alignas(64) Posting {
  std::array<std::byte, 128> bytes{};
};

// Moves the calls of one group.
class DeviceCarrier {
 public:
  virtual ~DeviceCarrier() = default;
  // The call comes after what the ops have queued so far.
  virtual void post(const Call& call, Posting& mine) = 0;
  // All sides have posted the call: `postings` is theirs by group rank, of a message its other
  // side's alone. False: not yet, ask again. Calls of one kind and peer are queued in their order.
  virtual bool queue(const Call& call, std::span<const Posting> postings) = 0;
  // What the ops queue from here on comes after the call, which is queued.
  virtual void wait(const Call& call) = 0;
};

// What a carrier knows of its group.
struct LinkedGroup {
  std::string title;         // "rank 5 (tp group 4,5)"
  std::vector<int> members;  // world ranks
  int rank;                  // in the group
  int lane;
  Tensor scratch;               // of the device, for sums that are made here; may be absent
  bool has_few_values = false;  // in its collectives
};

// Of one rank.
class DeviceLinks {
 public:
  virtual ~DeviceLinks() = default;
  virtual std::unique_ptr<DeviceCarrier> carrier(LinkedGroup group) = 0;
  // All ranks together, after their last call and before what their calls have touched goes.
  virtual void close() = 0;
  // The first call between two ranks connects them, and must not meet calls that are at work.
  virtual bool connects_by_calls() const = 0;
  virtual std::string text() const = 0;  // what they are: "NCCL 2.28.9"
};

// All ranks make theirs together. Null where parts.queue is: the tensors lie in host memory. Throws
// where two ranks of a host have one GPU.
std::unique_ptr<DeviceLinks> make_device_links(StreamRank& rank, const CommParts& parts);

}  // namespace orthant
