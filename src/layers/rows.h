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

// Of two ranks with split rows each may make a product in two parts, its own rows and the other's,
// beside which rows travel; those of more would be narrow or differ from rank to rank. Halves of a
// micro-batch that take turns have other work beside which all rows travel.
inline bool are_made_in_parts(const Context& ctx, Rows rows) {
  return rows == Rows::kSplit && ctx.mesh.tp().size() == 2 && ctx.give_midway == nullptr;
}

// Calls act(first, rows) for runs of rows that are together all T, when they are there: in parts
// each rank begins with its own, while the other's are on their way.
template <class Act>
void for_rows_as_they_come(const Context& ctx, Rows rows, const Tensor& own,
                           const Gathering& gathered, Act&& act) {
  const bool begins_early = are_made_in_parts(ctx, rows);
  if (begins_early) act(first_row(ctx, rows), own);
  ctx.mesh.tp().wait(gathered.ready);
  if (!begins_early) return act(0, gathered.whole);
  const std::int64_t half = num_rows(ctx, rows);
  const std::int64_t other = half - first_row(ctx, rows);
  act(other, gathered.whole.rows(other, half));
}

// own = this rank's rows of the sum of `whole` over tp, when the token is done. `own` may lie in
// `whole`, and is `whole` where every rank has all rows.
[[nodiscard]] Token start_sum_over_tp(const Context& ctx, Rows rows, const Tensor& own,
                                      const Tensor& whole);

// Calls act(first, count) for runs of rows that are together all T, which it writes to `whole`;
// own = this rank's rows of the sum of `whole` over tp, when the token is done, and `whole` is left
// alone until then. In parts each rank makes the other's rows first, which travel while it makes
// its own.
template <class Act>
[[nodiscard]] Token sum_rows_as_they_are_made(const Context& ctx, Rows rows, const Tensor& own,
                                              const Tensor& whole, Act&& act) {
  Communicator& tp = ctx.mesh.tp();
  if (!are_made_in_parts(ctx, rows)) {
    act(0, whole.shape[0]);
    return start_sum_over_tp(ctx, rows, own, whole);
  }
  const std::int64_t half = num_rows(ctx, rows);
  const std::int64_t other = half - first_row(ctx, rows);
  const int peer = 1 - tp.rank();
  Frame frame(ctx.work);
  const Tensor theirs = frame.alloc(own.shape, own.dtype);
  const Token coming = tp.start_recv(theirs, peer, 0);
  act(other, half);
  const Token leaving = tp.start_send(whole.rows(other, half), peer, 0);
  act(first_row(ctx, rows), half);
  tp.wait(coming);
  ctx.ops.run(Add{.y = own, .a = own_rows(ctx, rows, whole), .b = theirs});
  return leaving;
}

}  // namespace orthant
