// Embedding tables split by rows: ids outside the part that lies here give zeros and take no
// gradient.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/ledger.h"
#include "mem/tensor.h"

namespace orthant {

enum class Write : std::uint8_t { kSet, kAdd };

// y[t] (=, +=) table[ids[t] - first_row], or zeros
struct EmbeddingFwd {
  static constexpr std::string_view kName = "embedding_fwd";
  Tensor y;                // [T,C]    out, or in, out
  Tensor ids;              // [T] i32
  Tensor table;            // [R,C]    the type of y
  std::int64_t first_row;  // global index of the table's row 0
  Write write;
  auto writes() const { return std::array{y}; }
  auto reads() const { return std::array{ids, table}; }
};

// dtable[ids[t] - first_row] += dy[t], in the order of t
struct EmbeddingBwd {
  static constexpr std::string_view kName = "embedding_bwd";
  Tensor dtable;  // [R,C] f32  in, out: added to
  Tensor dy;      // [T,C]
  Tensor ids;     // [T] i32
  std::int64_t first_row;
  auto writes() const { return std::array{dtable}; }
  auto reads() const { return std::array{dy, ids}; }
};

void check(const EmbeddingFwd& a);
void check(const EmbeddingBwd& a);
Cost cost(const EmbeddingFwd& a);
Cost cost(const EmbeddingBwd& a);
std::int64_t workspace_bytes(const EmbeddingFwd& a);
std::int64_t workspace_bytes(const EmbeddingBwd& a);

}  // namespace orthant
