#include "ops/ops.h"

namespace orthant {
namespace {

// FNV-1a over shapes and types.
void mix(std::uint64_t& hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x100000001b3ull;
}

void mix(std::uint64_t& hash, const Tensor& tensor) {
  mix(hash, tensor.present() ? static_cast<std::uint64_t>(tensor.dtype) + 1 : 0);
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    mix(hash, static_cast<std::uint64_t>(tensor.shape[i]));
  }
}

}  // namespace

void Ops::record(std::string_view what, const Cost& cost, std::span<const Tensor> reads,
                 std::span<const Tensor> writes) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const Tensor& tensor : reads) {
    in_flight_.check_read(tensor, what);
    mix(hash, tensor);
  }
  for (const Tensor& tensor : writes) {
    in_flight_.check_write(tensor, what);
    mix(hash, tensor);
  }
  ledger_.add({.what = what,
               .where = {},
               .lane = Lane::kCompute,
               .cost = cost,
               .fingerprint = hash,
               .starts = {},
               .waits_for = {}});
}

}  // namespace orthant
