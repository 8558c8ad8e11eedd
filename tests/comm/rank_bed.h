// RankBed: what one rank needs to call collectives, and a world of such ranks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "comm/backends.h"
#include "mem/arena.h"

namespace orthant {

struct RankBed {
  explicit RankBed(ThreadWorld& world, int rank)
      : comm(world.join(rank, {.ledger = ledger, .in_flight = in_flight})) {}
  RankBed(int rank, int size)
      : comm(make_meta_world(rank, size, {.ledger = ledger, .in_flight = in_flight})) {}

  Tensor alloc(const Shape& shape, DType dtype) {
    return arena.alloc(shape, dtype, MemClass::kWork);
  }

  Ledger ledger;
  InFlight in_flight;
  std::unique_ptr<Device> device = make_host_device();
  Arena arena{*device, in_flight, "test", std::int64_t{1} << 26};
  std::unique_ptr<Communicator> comm;
};

// Runs body(bed) on every rank of a world of threads.
inline void run_ranks(int size, double deadline_s, const std::function<void(RankBed&)>& body) {
  ThreadWorld world(size, deadline_s);
  run_rank_threads(world, [&](int rank) {
    RankBed bed(world, rank);
    body(bed);
  });
}

// The message of the Error that `act` throws; empty when it throws none.
inline std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace orthant
