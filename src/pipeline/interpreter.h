// Interpreter: runs one rank's lowered actions on a Stage. A loop over a switch.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "pipeline/schedule.h"
#include "pipeline/stage.h"

namespace orthant {

class Interpreter {
 public:
  Interpreter(Communicator& acts, Communicator& grads, Stage& stage, Placement placement);
  // A micro-batch's slot is opened before its forward and closed after its last backward action, or
  // after its forward when it has none (evaluation). Every message has been waited for when this
  // returns.
  void run(const RankActions& actions);

 private:
  struct Pending;
  Communicator& acts_;
  Communicator& grads_;
  Stage& stage_;
  Placement placement_;
};

}  // namespace orthant
