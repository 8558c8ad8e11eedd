// Rows: which of a micro-batch's T rows a tp rank has outside the matrix products: all of them, or
// 1/tp in sequence parallelism (Korthikanti et al., arXiv:2205.05198). Then gathers stand before
// the products, and sums end scattered.
#pragma once

#include <cstdint>

#include "layers/context.h"

namespace orthant {

enum class Rows : std::uint8_t { kAll, kSplit };

// The number of this rank's rows, and the place of the first within the micro-batch.
std::int64_t num_rows(const Context& ctx, Rows rows);
std::int64_t first_row(const Context& ctx, Rows rows);

// This rank's rows of a tensor with all.
Tensor own_rows(const Context& ctx, Rows rows, const Tensor& whole);

// Memory for all rows: `own` itself, or [T,...] in the frame.
Tensor room_for_all(const Context& ctx, Rows rows, const Tensor& own, Frame& frame);

// All rows: `own` itself, or gathered into the frame.
Tensor all_rows(const Context& ctx, Rows rows, const Tensor& own, Frame& frame);
// The same, to be read when the token is done.
struct Gathering {
  Tensor whole;
  Token ready;
};
[[nodiscard]] Gathering start_all_rows(const Context& ctx, Rows rows, const Tensor& own,
                                       Frame& frame);

// Calls act(first, rows) for runs of rows that are together all T: this rank's own while the
// others' are on their way, then those. The token of `gathered` is waited for in between.
template <class Act>
void for_rows_as_they_come(const Context& ctx, Rows rows, const Tensor& own,
                           const Gathering& gathered, Act&& act) {
  if (rows == Rows::kAll) return act(0, gathered.whole);
  const std::int64_t first = first_row(ctx, rows);
  const std::int64_t end = first + num_rows(ctx, rows);
  act(first, own);
  ctx.mesh.tp().wait(gathered.ready);
  if (first > 0) act(0, gathered.whole.rows(0, first));
  if (end < ctx.micro.T()) act(end, gathered.whole.rows(end, ctx.micro.T() - end));
}

// own = this rank's rows of the sum of `whole` over tp, when the token is done. `own` may lie in
// `whole`, and is `whole` where every rank has all rows.
[[nodiscard]] Token start_sum_over_tp(const Context& ctx, Rows rows, const Tensor& own,
                                      const Tensor& whole);

}  // namespace orthant
