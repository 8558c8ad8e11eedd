// What connects the ranks of a launcher: memory that they share on one host, or MPI.
#include <utility>

#include "comm/meet.h"
#include "comm/process_world.h"
#include "comm/shm/shm_world.h"

#if ORTHANT_MPI
#include "comm/mpi/mpi_wires.h"
#endif

namespace orthant {
namespace {

#if ORTHANT_MPI
constexpr bool kHasMpi = true;
#else
constexpr bool kHasMpi = false;
std::unique_ptr<Wires> make_mpi_wires(const Launch& launch) {
  fail_user(
      "{} has started this rank, but MPI is not built into this binary; install "
      "libopenmpi-dev and build again, or start the ranks with orthant launch",
      name_of(launch.by));
}
#endif

std::unique_ptr<Wires> connect(const Launch& launch, double deadline_s) {
  switch (launch.by) {
    case Launch::By::kOrthant:
      return make_shm_wires(std::make_unique<ShmWorld>(launch.world_fd, launch.size), launch.rank,
                            nullptr);
    case Launch::By::kTorchrun: return meet(launch, deadline_s);
    case Launch::By::kSlurm:
      return kHasMpi && launch.has_pmi ? make_mpi_wires(launch) : meet(launch, deadline_s);
    case Launch::By::kOpenMpi:
    case Launch::By::kPmi: return make_mpi_wires(launch);
  }
  fail_run("no transport for ranks that {} starts", name_of(launch.by));
}

}  // namespace

bool has_mpi() {
  return kHasMpi;
}

std::unique_ptr<ProcessWorld> join_process_world(const Launch& launch, double deadline_s) {
  return std::make_unique<ProcessWorld>(connect(launch, deadline_s), deadline_s, launch.local_rank);
}

}  // namespace orthant
