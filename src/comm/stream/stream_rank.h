// StreamRank: the calls of one process rank, in all its groups. Whoever waits moves all of them, so
// a started call goes on while its rank waits for another.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/stream/wires.h"

namespace orthant {

class StreamCommunicator;

class StreamRank {
 public:
  StreamRank(std::unique_ptr<Wires> wires, double deadline_s);
  ~StreamRank() = default;
  StreamRank(const StreamRank&) = delete;
  StreamRank& operator=(const StreamRank&) = delete;

  int rank() const { return wires_->rank(); }
  int size() const { return wires_->size(); }
  Wires& wires() { return *wires_; }
  double deadline_s() const { return deadline_s_; }
  void set_deadline(double seconds);

  void add(StreamCommunicator& group);
  void remove(StreamCommunicator& group);

  void note(const StreamCommunicator& group, const Call& call, int waits_for);
  bool progress();  // of all groups; false: nothing could be moved
  void wait(StreamCommunicator& group, const Call& call);
  void sign_of_life(double busy_s);
  void throw_if_failed();  // the first failure: this rank's own, or PeerFailed
  [[noreturn]] void fail(const std::string& message);
  void end();  // of this rank, which has failed in nothing

 private:
  void fail_if_ended(const StreamCommunicator& group, const Call& call,
                     std::span<const int> missing);
  void wait_for_links(const StreamCommunicator& group, const Call& call,
                      Board::Clock::time_point start, std::uint32_t ticket);

  std::unique_ptr<Wires> wires_;
  double deadline_s_;
  std::vector<StreamCommunicator*> groups_;
};

}  // namespace orthant
