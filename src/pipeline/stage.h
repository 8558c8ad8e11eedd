// Stage: what the interpreter drives. Implemented in model/.
#pragma once

#include "mem/tensor.h"

namespace orthant {

class Stage {
 public:
  virtual ~Stage() = default;
  virtual void open(int chunk, int micro) = 0;   // takes a slot, before the micro-batch's forward
  virtual void close(int chunk, int micro) = 0;  // gives it back, after its last backward
  // Boundary tensors, one buffer each a chunk: what forward reads (part > 0) and writes (not the
  // last part), what backward or backward_input reads (not the last part) and writes (part > 0).
  // When such a call has returned, the next receive may land in the buffer that it read: what is
  // needed later it takes along. Where two parts of one rank meet, what one writes and the other
  // reads is the same buffer.
  virtual Tensor act_in(int chunk) = 0;
  virtual Tensor act_out(int chunk) = 0;
  virtual Tensor grad_in(int chunk) = 0;
  virtual Tensor grad_out(int chunk) = 0;
  virtual void forward(int chunk, int micro) = 0;
  virtual void backward(int chunk, int micro) = 0;  // both halves, layer by layer
  virtual void backward_input(int chunk, int micro) = 0;
  virtual void backward_weight(int chunk, int micro) = 0;
};

}  // namespace orthant
