#include "layers/rows.h"

namespace orthant {

std::int64_t num_rows(const Context& ctx, Rows rows) {
  return rows == Rows::kAll ? ctx.micro.T() : ctx.micro.T() / ctx.mesh.tp().size();
}

std::int64_t first_row(const Context& ctx, Rows rows) {
  return rows == Rows::kAll ? 0 : ctx.mesh.tp().rank() * num_rows(ctx, rows);
}

Tensor own_rows(const Context& ctx, Rows rows, const Tensor& whole) {
  return whole.rows(first_row(ctx, rows), num_rows(ctx, rows));
}

Tensor room_for_all(const Context& ctx, Rows rows, const Tensor& own, Frame& frame) {
  return rows == Rows::kAll ? own : frame.alloc(own.shape.with(0, ctx.micro.T()), own.dtype);
}

Tensor all_rows(const Context& ctx, Rows rows, const Tensor& own, Frame& frame) {
  const auto [whole, ready] = start_all_rows(ctx, rows, own, frame);
  ctx.mesh.tp().wait(ready);
  return whole;
}

Gathering start_all_rows(const Context& ctx, Rows rows, const Tensor& own, Frame& frame) {
  const Tensor whole = room_for_all(ctx, rows, own, frame);
  if (rows == Rows::kAll) return {.whole = whole, .ready = {}};
  return {.whole = whole, .ready = ctx.mesh.tp().start_all_gather(whole, own)};
}

Token start_sum_over_tp(const Context& ctx, Rows rows, const Tensor& own, const Tensor& whole) {
  return rows == Rows::kAll ? ctx.mesh.tp().start_all_reduce(own, Reduce::kSum)
                            : ctx.mesh.tp().start_reduce_scatter(own, whole);
}

}  // namespace orthant
