// ProcessWorld: this process is one rank of a world, which a launcher has started.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/check.h"
#include "comm/communicator.h"
#include "comm/device_links.h"
#include "comm/launch.h"
#include "comm/stream/stream_rank.h"

namespace orthant {

class ProcessWorld {
 public:
  // `local_rank`: among the ranks of this host; -1: they are those of one host in their order.
  ProcessWorld(std::unique_ptr<Wires> wires, double deadline_s, int local_rank = -1);
  ~ProcessWorld();
  ProcessWorld(const ProcessWorld&) = delete;
  ProcessWorld& operator=(const ProcessWorld&) = delete;

  int rank() const { return rank_.rank(); }
  int size() const { return rank_.size(); }
  int num_local() { return rank_.wires().num_local(); }  // ranks on this host
  Transport transport() { return rank_.wires().transport(); }
  int local_rank() const { return local_rank_; }
  int num_threads();  // of this rank, when the ranks share the cores
  bool is_first() const { return rank() == 0; }
  void set_deadline(double seconds) { rank_.set_deadline(seconds); }
  // This rank is at work by itself and may be silent for `busy_s`: see Communicator.
  void sign_of_life(double busy_s) { rank_.sign_of_life(busy_s); }

  // Ranks whose tensors lie on GPUs join together; the world before has gone by then.
  std::unique_ptr<Communicator> join(const CommParts& parts);
  // After the last call of that world, while what its calls have touched is still there.
  void close_links();
  std::string links() const;  // how GPUs are connected: "NCCL 2.28.9"; empty: there are none

  // Runs `act` on every rank. When it throws on some, all throw what the lowest of them threw; rank
  // 0 is to say it, for the others it is Reported.
  void agree(const std::function<void()>& act);
  // Throws on all ranks unless they have the same value; `what` names it, `advice` says what to do.
  void require_same(std::int64_t value, const std::string& what, const std::string& advice);
  // Runs what this rank does with the others. When it throws, the others stop. What another rank
  // has said is thrown as Reported.
  void run(const std::function<void()>& act);
  // When `act` throws, the others are told before what it has made goes: a GPU may wait for them.
  void tell_others(const std::function<void()>& act);

 private:
  StreamRank rank_;
  int local_rank_;
  std::unique_ptr<DeviceLinks> links_;
};

bool has_mpi();  // it is built in

// Meets the other ranks; all must be there within `deadline_s`.
std::unique_ptr<ProcessWorld> join_process_world(const Launch& launch, double deadline_s);

}  // namespace orthant
