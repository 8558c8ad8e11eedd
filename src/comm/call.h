// Call: what one rank asks of its group, and whether two ranks ask the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mem/tensor.h"

namespace orthant {

enum class Reduce : std::uint8_t { kSum, kMax };

// A copy of a name: of a ledger's place, of a group. It may outlive what it names and cross to
// another process; what is beyond its 63 characters is cut off.
class Place {
 public:
  Place() = default;
  explicit Place(std::string_view name);
  std::string_view text() const { return {text_, size_}; }
  friend bool operator==(const Place& a, const Place& b) { return a.text() == b.text(); }

 private:
  char text_[63] = {};
  std::uint8_t size_ = 0;
};

// Backends move bytes by it; plan matches it between ranks.
struct Call {
  enum class Kind : std::uint8_t {
    kAllReduce,
    kAllGather,
    kReduceScatter,
    kBroadcast,
    kSend,
    kRecv,
    kBarrier
  };
  Kind kind;
  Tensor out;  // all_reduce: in, out; all_gather: [N*n...]; reduce_scatter: [n...]; broadcast: in,
               // out; recv: out
  Tensor in;   // all_gather: [n...]; reduce_scatter: [N*n...]; send: in
  Reduce reduce = Reduce::kSum;
  int peer = -1;              // group rank of the other side, or the root
  std::int64_t identity = 0;  // of a message: both sides name it in the same order
  std::int64_t sequence = 0;  // of this group's collectives, or of this ordered pair's messages
  Place where = {};           // in the program
};

std::string_view name_of(Call::Kind kind);  // "all_reduce", ...: string literals
bool is_message(Call::Kind kind);
bool reads_in(Call::Kind kind);    // from Call::in
bool writes_out(Call::Kind kind);  // to Call::out

std::string text_of(Call::Kind kind, const Place& where);  // "all_reduce 'h.7.mlp.down'"
// "all_gather 'h.6.attn' of [8] f32 from [4] f32": all that peers must agree on.
std::string details_of(const Call& call);

// Two ranks of a group ask for the same collective, at the same place of the program.
bool agree(const Call& a, const Call& b);
// A receive takes what a send gives.
bool match(const Call& send, const Call& recv);

}  // namespace orthant
