// Stash: what one micro-batch keeps between forward and backward, in the arena of its slot.
#pragma once

#include <array>
#include <cstddef>
#include <new>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "mem/arena.h"

namespace orthant {

// Memory for what backward computes again: work where it does both halves at once, else what lasts
// until the second.
struct Room {
  Arena& arena;
  MemClass what;
  Tensor like(const Tensor& tensor) const { return arena.alloc(tensor.shape, tensor.dtype, what); }
};

class Stash {
 public:
  // Layers are numbered 0..num_layers-1 within their stage.
  Stash(Arena& slot, int num_layers)
      : arena_(&slot),
        late_(&slot),
        entries_(static_cast<std::size_t>(num_layers)) {}

  Arena& arena() const { return *arena_; }
  Room late_room() const { return {.arena = *late_, .what = MemClass::kActivations}; }
  // Where tensors lie from now on; `late`: those that backward_input leaves for backward_weight.
  void use(Arena& arena, Arena& late) {
    arena_ = &arena;
    late_ = &late;
  }
  Tensor alloc(const Shape& shape, DType dtype) {
    return arena_->alloc(shape, dtype, MemClass::kActivations);
  }
  Tensor alloc_late(const Shape& shape, DType dtype) {
    return late_->alloc(shape, dtype, MemClass::kActivations);
  }

  // Forward: a small struct of named tensors. Uses no heap.
  template <class Saved>
  Saved& make(int layer) {
    static_assert(std::is_trivially_destructible_v<Saved> && sizeof(Saved) <= kEntryBytes);
    Entry& entry = entries_.at(static_cast<std::size_t>(layer));
    entry.type = &kTypeTag<Saved>;
    return *new (entry.bytes.data()) Saved{};
  }

  // Backward: the same struct. The input half may replace tensors that only it reads.
  template <class Saved>
  Saved& get(int layer) {
    Entry& entry = entries_.at(static_cast<std::size_t>(layer));
    ORTHANT_CHECK(entry.type == &kTypeTag<Saved>,
                  "layer {} has no stash of this kind; forward comes first", layer);
    return *std::launder(reinterpret_cast<Saved*>(entry.bytes.data()));
  }

  void clear() {
    for (Entry& entry : entries_) {
      entry.type = nullptr;
    }
  }

 private:
  static constexpr std::size_t kEntryBytes = 2048;
  template <class Saved>
  static constexpr char kTypeTag = 0;
  struct Entry {
    const char* type = nullptr;
    alignas(std::max_align_t) std::array<std::byte, kEntryBytes> bytes;
  };
  Arena* arena_;
  Arena* late_;
  std::vector<Entry> entries_;
};

}  // namespace orthant
