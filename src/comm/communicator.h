// Communicator: one group of ranks. Every call is checked, recorded, then executed; in the meta
// backend there is nothing behind "executed".
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ledger.h"
#include "comm/call.h"
#include "mem/arena.h"
#include "mem/in_flight.h"

namespace orthant {

class DeviceLinks;

// A group's own references, shared by all groups of a rank.
struct CommParts {
  Ledger& ledger;
  InFlight& in_flight;
  void* queue = nullptr;         // of the device that the rank's tensors lie on; null: host memory
  Arena* scratch = nullptr;      // on that device, for reserve_scratch(); null: none is reserved
  bool rank_order = true;        // false: GPUs may add in any order where that is faster
  bool prefers_nccl = false;     // even where the GPUs of all processes reach each other
  DeviceLinks* links = nullptr;  // of a process, as its world has made them
};

class Communicator {
 public:
  // `members` are world ranks in ascending order; `lane` numbers the communicators of a rank.
  Communicator(std::string name, std::vector<int> members, int rank, int lane,
               const CommParts& parts);
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }  // "tp", "world": for messages
  int rank() const { return rank_; }                 // in the group
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& members() const { return members_; }
  int world_rank() const { return members_[static_cast<std::size_t>(rank_)]; }
  std::string title() const;  // "rank 5 (tp group 4,5)"

  // In order: later ops of this rank see the result. A group of one does nothing and records
  // nothing (whole and part must then be the same memory), so the code of one device is this code.
  // Sums are added in rank order, 16-bit sums in f32 and rounded once: the same bits on all ranks
  // and transports.
  void all_reduce(const Tensor& t, Reduce reduce);           // f32, f64, bf16, f16, i64
  void all_gather(const Tensor& whole, const Tensor& part);  // part r becomes the r-th run of whole
  void reduce_scatter(const Tensor& part,
                      const Tensor& whole);  // part may lie inside whole, at its own run
  void broadcast(const Tensor& t, int root);
  void barrier();  // host only: not part of a step

  // Overlapping: a started call owns its memory until wait(). Wait for the collectives of one group
  // in their order, and for the messages of one direction and peer in theirs; a blocking call may
  // come between start and wait.
  [[nodiscard]] Token start_all_reduce(const Tensor& t, Reduce reduce);
  [[nodiscard]] Token start_all_gather(const Tensor& whole, const Tensor& part);
  [[nodiscard]] Token start_reduce_scatter(const Tensor& part, const Tensor& whole);
  // Messages of an ordered pair arrive in their order; a send ends when its receive has been
  // posted.
  [[nodiscard]] Token start_send(const Tensor& t, int peer, std::int64_t identity);
  [[nodiscard]] Token start_recv(const Tensor& t, int peer, std::int64_t identity);
  void wait(Token token);  // a done token is waited for at once

  // For work that takes turns on this thread: called before each wait, and again until no earlier
  // call is to be waited for, so that each body of work keeps its own order alone. `give` returns
  // false when there is nobody to give the turn to.
  void give_turns(std::function<bool()> give) { give_turn_ = std::move(give); }

  // This rank is at work outside of any call, saving or reading, and may be silent for `busy_s`
  // from now: only then layout.deadline_s begins to run for peers that wait for it.
  virtual void sign_of_life(double /*busy_s*/) {}

  // Its calls in a step are of few values, so that what connects it may be small; before connect().
  void expect_few_values() { has_few_values_ = true; }

  // Memory of the device for sums that are made piece by piece; before the first call.
  void reserve_scratch(std::int64_t bytes);

  // Makes the connections that its collectives, or messages between neighbours in a ring, will use,
  // where making them among other calls would be wrong. All members call it, after
  // reserve_scratch().
  virtual void connect() {}
  virtual void connect_ring() {}

  // Throws when a rank has failed: what the device has computed since may be wrong.
  virtual void throw_if_failed() {}

  // The group of some members of this one (world ranks, ascending, this rank among them). Every
  // member calls it in the same program order; nothing is communicated for it.
  virtual std::unique_ptr<Communicator> subgroup(std::string name, std::vector<int> members,
                                                 int lane) = 0;

 protected:
  const CommParts& parts() const { return parts_; }
  const Tensor& scratch() const { return scratch_; }
  bool has_few_values() const { return has_few_values_; }
  int position_of(
      const std::vector<int>& members) const;  // this rank's place in a list of world ranks

 private:
  struct Started {
    Token token;
    Call call;
  };
  std::string title(const Call& call) const;  // "all_reduce 'h.7.mlp.down' in group 'tp'"
  void check(const Call& call) const;
  const Started& started(Token token) const;
  const Started* earlier_than(const Started& one) const;
  void check_runs(const Call& call, const Tensor& whole, const Tensor& part) const;
  void number(Call& call);
  void record_start(const Call& call, Token token);
  Token start(Call call);
  void run(const Call& call);
  void finish(std::size_t index);
  virtual void do_start(const Call& call, Token token) = 0;
  virtual void do_wait(const Call& call, Token token) = 0;

  std::string name_;
  std::vector<int> members_;
  int rank_;
  int lane_;
  CommParts parts_;
  Tensor scratch_;
  bool has_few_values_ = false;
  std::function<bool()> give_turn_;
  std::vector<Started> started_;
  std::int64_t collectives_ = 0;
  std::vector<std::int64_t> sent_;      // messages to each member so far
  std::vector<std::int64_t> received_;  // from each member
};

}  // namespace orthant
