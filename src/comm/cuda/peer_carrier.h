// PeerCarrier: calls between GPUs of one host as copies and sums of mapped memory. Copies are made
// by copy engines, so that products beside them keep their multiprocessors; sums are added in rank
// order. A GPU that waits for another does so in its queue, without a kernel.
#pragma once

#include <memory>
#include <vector>

#include "comm/cuda/peer_memory.h"
#include "comm/cuda/queue_watch.h"
#include "comm/device_links.h"

namespace orthant {

class PeerCarrier final : public DeviceCarrier {
 public:
  struct Parts {
    QueueWatch& watch;
    PeerMemory& memory;
    SharedFlags& flags;
    cudaStream_t ops;
  };
  PeerCarrier(const Parts& parts, LinkedGroup group);
  ~PeerCarrier() override;
  PeerCarrier(const PeerCarrier&) = delete;
  PeerCarrier& operator=(const PeerCarrier&) = delete;

  void post(const Call& call, Posting& mine) override;
  bool queue(const Call& call, std::span<const Posting> postings) override;
  void wait(const Call& call) override;

 private:
  // Streams beside that of the calls.
  class Halves;
  struct Helpers;

  WatchedQueue& queue_of(const Call& call);
  Helpers& helpers();
  std::size_t size() const { return group_.members.size(); }
  void send(const Call& call, const Posting& theirs);
  void receive(const Call& call);
  void exchange(const Call& call, std::span<const Posting> postings);
  void move(const Call& call, cudaStream_t stream);
  void sum(const Call& call, std::int64_t first, std::int64_t count, std::byte* to,
           cudaStream_t stream);
  void put(std::byte* local, std::int64_t offset, std::int64_t bytes, cudaStream_t stream);
  void copy(Halves Helpers::*by, std::byte* to, const std::byte* from, std::int64_t bytes,
            cudaStream_t stream);

  Parts parts_;
  LinkedGroup group_;
  std::unique_ptr<WatchedQueue> calls_;
  std::vector<std::unique_ptr<WatchedQueue>> sends_;  // by peer
  std::vector<std::unique_ptr<WatchedQueue>> receives_;
  std::unique_ptr<Helpers> helpers_;
  // Of the call that is queued, by group rank: the tensor that others reach, here or mapped.
  std::vector<std::byte*> places_;
  std::vector<const std::byte*> inputs_;
};

}  // namespace orthant
