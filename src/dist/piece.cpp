#include "dist/piece.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace orthant {
namespace {

void check_piece(const Piece& piece) {
  const Shape& extent = piece.box.extent;
  ORTHANT_CHECK(extent.rank() == piece.global.rank(), "piece of {}: its box is {}, the tensor {}",
                piece.name, extent.text(), piece.global.text());
  ORTHANT_CHECK(piece.first >= 0 && piece.count >= 0 && piece.first + piece.count <= extent.count(),
                "piece of {}: elements {}..{} are not in its box {}", piece.name, piece.first,
                piece.first + piece.count, extent.text());
  for (int dim = 0; dim < extent.rank(); ++dim) {
    const std::int64_t begin = piece.box.begin[static_cast<std::size_t>(dim)];
    ORTHANT_CHECK(begin >= 0 && begin + extent[dim] <= piece.global[dim],
                  "piece of {}: its box has {}..{} of dimension {} of {}", piece.name, begin,
                  begin + extent[dim], dim, piece.global.text());
  }
}

// Elements of the box that are contiguous in the global tensor: the inner dimensions that the box
// has whole, and its part of the next one.
std::int64_t row_of(const Piece& piece) {
  std::int64_t row = 1;
  for (int dim = piece.global.rank() - 1; dim >= 0; --dim) {
    row *= piece.box.extent[dim];
    if (piece.box.extent[dim] != piece.global[dim]) break;
  }
  return row;
}

// Where element `at` of the flattened box lies in the flattened global tensor.
std::int64_t to_global(const Piece& piece, std::int64_t at) {
  std::int64_t global = 0;
  std::int64_t stride = 1;
  for (int dim = piece.global.rank() - 1; dim >= 0; --dim) {
    const std::int64_t extent = piece.box.extent[dim];
    global += (piece.box.begin[static_cast<std::size_t>(dim)] + at % extent) * stride;
    at /= extent;
    stride *= piece.global[dim];
  }
  return global;
}

}  // namespace

Piece whole_piece(std::string name, const Shape& global) {
  return {.name = std::move(name),
          .global = global,
          .box = {.begin = {}, .extent = global},
          .first = 0,
          .count = global.count()};
}

std::vector<Run> runs_of(const Piece& piece) {
  // A part that clipping left empty may begin beyond the end.
  if (piece.count == 0) return {};
  check_piece(piece);
  const std::int64_t row = row_of(piece);
  const std::int64_t end = piece.first + piece.count;
  std::vector<Run> runs;
  runs.reserve(static_cast<std::size_t>((end - 1) / row - piece.first / row + 1));
  for (std::int64_t at = piece.first; at < end;) {
    const std::int64_t next = std::min((at / row + 1) * row, end);
    runs.push_back({.local = at - piece.first, .global = to_global(piece, at), .count = next - at});
    at = next;
  }
  return runs;
}

std::vector<PieceCopy> copies(const Piece& saved, const Piece& wanted) {
  ORTHANT_CHECK(saved.name == wanted.name && saved.global == wanted.global,
                "a piece of {} {} is asked from a piece of {} {}", wanted.name,
                wanted.global.text(), saved.name, saved.global.text());
  const std::vector<Run> from = runs_of(saved);
  const std::vector<Run> to = runs_of(wanted);
  std::vector<PieceCopy> found;
  for (std::size_t i = 0, j = 0; i < from.size() && j < to.size();) {
    const Run& a = from[i];
    const Run& b = to[j];
    const std::int64_t begin = std::max(a.global, b.global);
    const std::int64_t end = std::min(a.global + a.count, b.global + b.count);
    if (begin < end) {
      found.push_back({.from = a.local + begin - a.global,
                       .to = b.local + begin - b.global,
                       .count = end - begin});
    }
    if (a.global + a.count <= b.global + b.count) {
      ++i;
    } else {
      ++j;
    }
  }
  return found;
}

}  // namespace orthant
