#include "model/stash_offload.h"

#include <utility>

#include "base/check.h"

namespace orthant {

StashOffload::StashOffload(Transfers& transfers, std::vector<Arena*> windows)
    : transfers_(transfers) {
  ORTHANT_CHECK(windows.size() == kWindows, "{} windows are given, {} are needed", windows.size(),
                kWindows);
  for (Arena* arena : windows) {
    windows_.push_back({.arena = arena, .last = nullptr});
  }
}

void StashOffload::settle(std::array<Token, 2>& tokens) {
  for (Token& token : tokens) {
    transfers_.wait(std::exchange(token, Token{}));
  }
}

Arena& StashOffload::open(int place) {
  Window& to = window(place);
  if (to.last != nullptr) settle(std::exchange(to.last, nullptr)->leaving);
  to.arena->rewind({});
  return *to.arena;
}

void StashOffload::leave(int place, Parcel& parcel, Arena& host) {
  Window& from = window(place);
  std::int64_t done = 0;
  for (std::size_t i = 0; i < parcel.host.size(); ++i) {
    const std::int64_t left = from.arena->top() - done;
    if (left == 0) break;
    Tensor& to = parcel.host[i];
    if (to.absent()) to = host.alloc({left}, DType::kU8, MemClass::kActivations);
    const Tensor part{
        .data = from.arena->contents().data + done, .shape = to.shape, .dtype = DType::kU8};
    parcel.leaving[i] = transfers_.start_out(to, part);
    done += to.count();
  }
  from.last = &parcel;
}

void StashOffload::fetch(int place, Parcel& parcel) {
  settle(parcel.leaving);
  Arena& arena = open(place);
  for (std::size_t i = 0; i < parcel.host.size(); ++i) {
    const Tensor& from = parcel.host[i];
    if (from.absent()) continue;
    const Tensor to = arena.alloc(from.shape, DType::kU8, MemClass::kActivations);
    parcel.arriving[i] = transfers_.start_in(to, from);
  }
}

Arena& StashOffload::arrive(int place, Parcel& parcel) {
  settle(parcel.arriving);
  return *window(place).arena;
}

}  // namespace orthant
