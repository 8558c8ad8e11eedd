#include "layers/linear.h"

namespace orthant {
namespace {

// Parameters that follow each other in memory, seen as one tensor of `shape`.
Tensor joined_values(const std::vector<Param>& params, const Shape& shape) {
  if (params.empty()) return {};
  const Tensor& first = params.front().value;
  return {.data = first.data, .shape = shape, .dtype = first.dtype};
}

Tensor joined_grads(const std::vector<Param>& params, const Shape& shape) {
  if (params.empty()) return {};
  return {.data = params.front().grad.data, .shape = shape, .dtype = DType::kF32};
}

// Rows of a tensor that may be absent.
Tensor rows_of(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  return tensor.present() ? tensor.rows(first, count) : Tensor{};
}

std::vector<Param> parts_of(const std::vector<ParamSpec>& specs, const Mesh& mesh) {
  std::vector<Param> params;
  params.reserve(specs.size());
  for (const ParamSpec& spec : specs) {
    params.push_back(make_param(spec, mesh.coord(Axis::kTp), mesh.size(Axis::kTp)));
  }
  return params;
}

}  // namespace

Linear::Linear(const std::vector<ParamSpec>& weights, const std::vector<ParamSpec>& biases,
               std::int64_t in, Split split, Rows rows, const Mesh& mesh)
    : weights_(parts_of(weights, mesh)),
      biases_(parts_of(biases, mesh)),
      in_(in),
      out_(0),
      split_(split),
      rows_(rows) {
  for (const Param& weight : weights_) {
    out_ += weight.local.count() / in_;
  }
}

Token Linear::forward(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& gelu) const {
  const bool adds_bias = split_ == Split::kColumn || ctx.mesh.tp().rank() == 0;
  Frame frame(ctx.work);
  const auto product = [&](std::int64_t first, const Tensor& rows) {
    ctx.ops.run(LinearFwd{.y = y.rows(first, rows.shape[0]),
                          .x = rows,
                          .w = joined_values(weights_, {out_, in_}),
                          .b = adds_bias ? joined_values(biases_, {out_}) : Tensor{},
                          .gelu = rows_of(gelu, first, rows.shape[0])});
  };
  if (split_ == Split::kColumn) {
    const Gathering gathered = start_all_rows(ctx, rows_, x, frame);
    for_rows_as_they_come(ctx, rows_, x, gathered, product);
    return {};
  }
  if (ctx.give_midway != nullptr) (*ctx.give_midway)();
  return sum_rows_as_they_are_made(
      ctx, rows_, own_rows(ctx, rows_, y), y,
      [&](std::int64_t first, std::int64_t count) { product(first, x.rows(first, count)); });
}

void Linear::backward_input(Context& ctx, const Tensor& dx, const Tensor& dy) const {
  Frame frame(ctx.work);
  if (split_ == Split::kRow) {
    spread_input_gradient(ctx, dx, dy, start_all_rows(ctx, rows_, dy, frame), {});
    return;
  }
  const Tensor whole = room_for_all(ctx, rows_, dx, frame);
  ctx.mesh.tp().wait(sum_input_gradient(ctx, dx, whole, dy));
}

// dx = the sum over tp of `whole`, which is made here.
Token Linear::sum_input_gradient(Context& ctx, const Tensor& dx, const Tensor& whole,
                                 const Tensor& dy) const {
  const Tensor w = joined_values(weights_, {out_, in_});
  return sum_rows_as_they_are_made(
      ctx, rows_, dx, whole, [&](std::int64_t first, std::int64_t count) {
        ctx.ops.run(
            LinearBwdInput{.dx = whole.rows(first, count), .dy = dy.rows(first, count), .w = w});
      });
}

// dx of all rows, of dy that ranks have parts of.
void Linear::spread_input_gradient(Context& ctx, const Tensor& dx, const Tensor& dy,
                                   const Gathering& gathered, const Tensor& gelu_x) const {
  const Tensor w = joined_values(weights_, {out_, in_});
  for_rows_as_they_come(ctx, rows_, dy, gathered, [&](std::int64_t first, const Tensor& rows) {
    const std::int64_t count = rows.shape[0];
    ctx.ops.run(LinearBwdInput{
        .dx = dx.rows(first, count), .dy = rows, .w = w, .gelu_x = rows_of(gelu_x, first, count)});
  });
}

void Linear::backward_weight(Context& ctx, const Tensor& dy, const Tensor& x) const {
  const bool gathers_x = split_ == Split::kColumn;
  Frame frame(ctx.work);
  const Tensor whole = all_rows(ctx, rows_, gathers_x ? x : dy, frame);
  add_weight_gradient(ctx, gathers_x ? dy : whole, gathers_x ? whole : x);
}

void Linear::add_weight_gradient(Context& ctx, const Tensor& dy, const Tensor& x) const {
  ctx.ops.run(LinearBwdWeight{.dw = joined_grads(weights_, {out_, in_}),
                              .db = joined_grads(biases_, {out_}),
                              .dy = dy,
                              .x = x});
}

void Linear::backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                      const Tensor& gelu_x) const {
  Frame frame(ctx.work);
  if (split_ == Split::kRow) {
    const Gathering gathered = start_all_rows(ctx, rows_, dy, frame);
    spread_input_gradient(ctx, dx, dy, gathered, gelu_x);
    return add_weight_gradient(ctx, gathered.whole, x);
  }
  const Gathering gathered = start_all_rows(ctx, rows_, x, frame);
  const Tensor whole = room_for_all(ctx, rows_, dx, frame);
  const Token sum = sum_input_gradient(ctx, dx, whole, dy);
  ctx.mesh.tp().wait(gathered.ready);
  add_weight_gradient(ctx, dy, gathered.whole);
  ctx.mesh.tp().wait(sum);
}

void Linear::collect(std::vector<Param*>& out) {
  for (Param& weight : weights_) {
    out.push_back(&weight);
  }
  for (Param& bias : biases_) {
    out.push_back(&bias);
  }
}

}  // namespace orthant
