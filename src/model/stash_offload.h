// StashOffload: between forward and backward the stash of a layer lies on the host. On the device
// it has one of a few windows, which layers use in turn: copies run beside the work of neighbours.
#pragma once

#include <array>
#include <vector>

#include "mem/arena.h"
#include "mem/transfers.h"

namespace orthant {

class StashOffload {
 public:
  // While a layer of backward works, the one above it still holds its input gradient, and the one
  // below arrives.
  static constexpr int kWindows = 3;

  StashOffload(Transfers& transfers, std::vector<Arena*> windows);

  // The stash of one layer of one micro-batch.
  struct Parcel {
    std::array<Tensor, 2> host;  // u8: what forward left, and what came behind it in backward
    std::array<Token, 2> leaving;
    std::array<Token, 2> arriving;
  };
  // `place` numbers the layers of a chunk that leave. Returns the empty window for a forward.
  Arena& open(int place);
  // Starts the copy of the window's contents; the first call takes host memory for the parcel, and
  // a later one for what has been added.
  void leave(int place, Parcel& parcel, Arena& host);
  // Starts to bring it back to where it was.
  void fetch(int place, Parcel& parcel);
  // The window, with the parcel in it.
  Arena& arrive(int place, Parcel& parcel);

 private:
  struct Window {
    Arena* arena;
    Parcel* last;  // the one whose copy out may still read it
  };
  Window& window(int place) { return windows_[static_cast<std::size_t>(place % kWindows)]; }
  void settle(std::array<Token, 2>& tokens);

  Transfers& transfers_;
  std::vector<Window> windows_;
};

}  // namespace orthant
