// NcclCarrier: calls between GPUs by NCCL. Every ordered pair of ranks has a communicator of its
// own for its messages, since NCCL runs the calls of one communicator in order and messages of
// other pairs must not wait for each other.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/cuda/queue_watch.h"
#include "comm/device_links.h"
#include "comm/nccl/nccl_api.h"

namespace orthant {

// The communicators of a rank, for whoever watches them and must abort them.
class NcclComms {
 public:
  void add(NcclComm& comm, const CallQueue& queue);  // and the queue of its calls
  void remove(NcclComm& comm);
  void abort_all();
  std::optional<BrokenLink> find_broken();
  std::mutex& mutex() { return mutex_; }

 private:
  struct Entry {
    NcclComm* comm;
    const CallQueue* queue;
  };
  std::mutex mutex_;  // held while NCCL is called
  std::vector<Entry> comms_;
};

class NcclCarrier final : public DeviceCarrier {
 public:
  struct Parts {
    QueueWatch& watch;
    NcclComms& comms;
    cudaStream_t ops;
    bool rank_order;  // sums are added in rank order, with the same bits as on any transport
  };
  NcclCarrier(const Parts& parts, LinkedGroup group);
  ~NcclCarrier() override;
  NcclCarrier(const NcclCarrier&) = delete;
  NcclCarrier& operator=(const NcclCarrier&) = delete;

  void post(const Call& call, Posting& mine) override;
  bool queue(const Call& call, std::span<const Posting> postings) override;
  void wait(const Call& call) override;

 private:
  struct Line;

  std::unique_ptr<Line>& line_of(const Call& call);
  Line& make_line(const Call& call);
  int size() const { return static_cast<int>(group_.members.size()); }
  bool adds_here(const Call& call) const;
  void launch(const Call& call, Line& line);
  // False: the communicator can do no more.
  bool sum_in_rank_order(const Call& call, Line& line, std::unique_lock<std::mutex>& lock);

  Parts parts_;
  LinkedGroup group_;
  std::unique_ptr<Line> calls_;
  std::vector<std::unique_ptr<Line>> sends_;  // by peer
  std::vector<std::unique_ptr<Line>> receives_;
};

}  // namespace orthant
