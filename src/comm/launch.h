// Launch: which rank of which world a launcher has made this process, by the variables that it set.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

using Environment = std::map<std::string, std::string>;
Environment read_environment();  // of this process

struct Launch {
  enum class By { kOrthant, kTorchrun, kOpenMpi, kSlurm, kPmi };
  By by = By::kOrthant;
  int rank = 0;
  int size = 1;         // 0: the launcher does not say
  int local_rank = -1;  // -1: the launcher does not say
  int local_size = -1;
  std::string host;      // where rank 0 is; empty: the launcher does not say
  int port = 0;          // where rank 0 listens
  bool has_pmi = false;  // MPI can find the other ranks
  int world_fd = -1;     // of orthant launch: the shared memory
};
std::string_view name_of(Launch::By by);  // "torchrun"

// Nothing without a launcher. Variables that contradict each other are a user error.
std::optional<Launch> detect_launch(const Environment& environment);

// What is wrong with a world in which these ranks have met; empty: nothing. Each rank from 0 to
// size-1 must have come once, and all must speak of the same size.
std::string check_roll(std::span<const Launch> come);

// "gnode[08-10,20],login1" -> gnode08 gnode09 gnode10 gnode20 login1.
std::vector<std::string> expand_hosts(const std::string& list);
// "8(x2),2" -> 8 8 2: tasks of each node.
std::vector<int> expand_tasks(const std::string& list);

}  // namespace orthant
