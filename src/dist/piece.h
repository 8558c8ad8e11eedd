// Piece: a rank's part of one global tensor, and the runs of contiguous elements that both share.
// All of checkpoint re-cutting is these runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "mem/shape.h"

namespace orthant {

// A tensor-parallel part: `extent` elements from `begin` along each dimension of the global tensor.
struct Box {
  std::array<std::int64_t, Shape::kMaxRank> begin{};
  Shape extent;
};

struct Piece {
  std::string name;  // global: "h.3.mlp.up.weight"
  Shape global;      // logical: no padding
  Box box;
  std::int64_t first = 0;  // the part of the flattened box that lies here (a shard of ZeRO)
  std::int64_t count = 0;
};

// A whole tensor as a piece.
Piece whole_piece(std::string name, const Shape& global);

struct Run {
  std::int64_t local;   // element offset from the piece's first element
  std::int64_t global;  // element offset in the flattened global tensor
  std::int64_t count;
};

// The piece's elements as runs, ascending in both offsets, each as long as possible.
std::vector<Run> runs_of(const Piece& piece);

struct PieceCopy {
  std::int64_t from;  // element offset in `saved`
  std::int64_t to;    // element offset in `wanted`
  std::int64_t count;
};

// What to copy from one piece of a tensor into another: their intersection.
std::vector<PieceCopy> copies(const Piece& saved, const Piece& wanted);

}  // namespace orthant
