// Layer: an explicit forward and a backward in two halves. A layer owns parameters and never
// activations: micro-batches interleave.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/context.h"
#include "layers/stash.h"
#include "params/param.h"

namespace orthant {

// What passes between layers: a residual, an addend not yet added to it, and the call still
// producing that. The next layer's norm adds them on its way.
struct Flow {
  Tensor x;        // [R,C]  R = T, or T/tp in sequence parallelism
  Tensor pending;  // [R,C]  absent: nothing to add
  Token ready;     // a call of mesh.tp() to wait for before reading `pending`
};

// y = x + pending, once that is ready.
void complete(Context& ctx, const Tensor& y, const Flow& flow);

class Layer {
 public:
  // `id` numbers the layers of a stage; `name` is the place in messages: "h.3".
  Layer(int id, std::string name) : id_(id), name_(std::move(name)) {}
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  int id() const { return id_; }
  const std::string& name() const { return name_; }

  // `out` comes with memory of the caller: x, which stays until the backward when this layer or the
  // next asks for that, and pending for all T rows, which stays until the next layer has read it. A
  // layer that leaves nothing to add makes out.pending absent. When the caller gives none, the
  // forward runs again for its stash, and what only the output needs is left out.
  virtual void forward(Context& ctx, const Flow& in, Flow& out, Stash& stash) const = 0;

  // dy is the gradient of (x + pending) of the forward's out; the result is that of its in, written
  // over a tensor of the stash that only this half reads, so that a waiting weight half costs no
  // byte more. dy must stay as it is until backward_weight. The first layer of a model returns an
  // absent tensor.
  virtual Tensor backward_input(Context& ctx, const Tensor& dy, Stash& stash) const = 0;
  virtual void backward_weight(Context& ctx, Stash& stash) const = 0;
  // Both halves at once, with the same bits, but for GELU's gradient inside of a GPU's product.
  virtual Tensor backward(Context& ctx, const Tensor& dy, Stash& stash) const;
  // True: backward_input does the work of both halves, and nothing is left for backward_weight.
  virtual bool joins_halves() const { return false; }

  // Whether backward needs the memory of in.x, and that of out.x, as forward has left them. A layer
  // that keeps no input is given memory for it in ctx.input, where its gradient stays until the
  // layer before has read it.
  virtual bool keeps_input() const { return true; }
  virtual bool keeps_output() const { return true; }

  // In the order of their unit.
  virtual void collect(std::vector<Param*>& out) = 0;

 private:
  int id_;
  std::string name_;
};

// The spec whose name ends with `suffix`, or null: a parameter that the model does not have.
const ParamSpec* find_spec(const std::vector<ParamSpec>& specs, const std::string& suffix);

// Those of the named specs that exist, in the order of the suffixes.
std::vector<ParamSpec> pick_specs(const std::vector<ParamSpec>& specs,
                                  std::initializer_list<std::string> suffixes);

}  // namespace orthant
