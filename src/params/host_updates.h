// HostUpdates: units whose master weights and moments lie on the host. When the norm of a step is
// known, their gradients go there piece by piece, in the order in which the next forward needs the
// units; the host updates a piece while the next one arrives, and its new weights go back. All of
// it runs behind that forward, which waits for a unit alone. Nothing but the state has a place of
// its own on the host: gradients and weights pass through two buffers of a piece.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "mem/arena.h"
#include "mem/transfers.h"
#include "ops/ops.h"
#include "params/segment.h"

namespace orthant {

class HostUpdates {
 public:
  struct Parts {
    Ops& ops;        // the host's: they run beside the rank
    Ledger& ledger;  // theirs alone
    Transfers& transfers;
    Arena& arena;  // on the host
  };
  using Update = std::function<AdamW(const Segment&, const Tensor& step_state)>;

  // What a unit has on the host: [shard], f32 unless said.
  struct Tensors {
    Tensor master;
    Tensor m;  // of the moments' type
    Tensor v;
  };
  HostUpdates(int num_units, const Parts& parts);

  // `value`, `grad`: the unit's shards on the device.
  const Tensors& add(int unit, const Tensor& value, const Tensor& grad, DType moments);
  bool has(int unit) const { return at(unit).device_value.present(); }
  // Part of an added unit, from its element `first` on; its gradient and value lie on the device.
  void add_segment(int unit, const Segment& segment, std::int64_t first);
  // When all are added: takes the buffers.
  void make_buffers();
  void set_update(const Update& update);

  void begin(const Tensor& step_state);  // norm and clip factor are known: updates are due
  void start();                          // those that are due: they are on their way
  bool is_pending(int unit) const { return at(unit).state != State::kSettled; }
  int pending_after(int unit) const;  // the next unit that is; -1: none
  // The unit's weights are those of the last step, and its gradient is read; true: since now.
  bool finish(int unit);
  bool is_settled() const;  // of all units
  void wait_for_host();     // the host may read what is finished
  void drop() noexcept;     // forgets updates that are due: other weights are loaded

 private:
  static constexpr int kBuffers = 2;
  static constexpr std::int64_t kMostElements = std::int64_t{1} << 26;  // of a piece, but for ...
  static constexpr std::int64_t kMostPieces = 32;                       // ... that of a unit

  struct Part {
    Segment segment;
    std::int64_t first;  // in the unit
  };
  // The update of a run of a unit.
  class Piece final : public HostWork {
   public:
    Piece(HostUpdates& of, std::size_t in_buffer, std::int64_t at, std::int64_t num_elements)
        : owner(of),
          buffer(in_buffer),
          first(at),
          count(num_elements) {}
    void run() noexcept override;

    HostUpdates& owner;
    std::size_t buffer;
    std::int64_t first;  // in the unit
    std::int64_t count;
    std::vector<AdamW> updates;
    std::vector<Tensor> reads;
    std::vector<Tensor> writes;
    Cost cost;
    Token leaving;  // the gradient
    Token updated;
    Token coming;  // the value
  };
  enum class State : std::uint8_t { kSettled, kDue, kOnItsWay };
  struct Unit {
    Tensors here;
    Tensor device_value;
    Tensor device_grad;
    std::vector<Part> parts;
    std::deque<Piece> pieces;
    State state = State::kSettled;
  };
  struct Buffer {
    Tensor grad;
    Tensor value;  // absent where the masters are the values
    Token updated;
    Token coming;
  };
  Unit& at(int unit) { return units_.at(static_cast<std::size_t>(unit)); }
  const Unit& at(int unit) const { return units_.at(static_cast<std::size_t>(unit)); }
  std::int64_t piece_elements() const;
  void plan(const Unit& unit, Piece& piece, const Update& update) const;
  void start(const Unit& unit, Piece& piece);

  Parts parts_;
  std::vector<Unit> units_;
  std::vector<Buffer> buffers_;
  std::size_t num_pieces_ = 0;
  Tensor step_state_;  // on the host
  std::exception_ptr fault_;
  std::atomic<bool> has_fault_ = false;
};

}  // namespace orthant
