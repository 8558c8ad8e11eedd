// HostUpdates: units whose master weights and moments lie on the host. When the norm of a step is
// known, they are updated piece by piece, in the order in which the next forward needs the units:
// behind that forward, which waits for a unit alone. Of a piece that the host updates the gradient
// goes there while it updates the one before, and the new weights come back; the old ones go there
// too where they are half of their masters. Where a device can work beside its ops it updates most
// pieces itself: the state comes, and goes back. So both directions of the link and the host's
// memory are at work. The bits are the same.
// Nothing but the state has a place of its own on the host, and nothing of it on the device: all
// else passes through three buffers of a piece on either side.
#pragma once

#include <array>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "mem/arena.h"
#include "mem/transfers.h"
#include "ops/ops.h"
#include "params/segment.h"

namespace orthant {

class HostUpdates {
 public:
  // Who updates a piece, beside the rank; null: nobody here.
  struct Side {
    Ops* ops = nullptr;
    Ledger* ledger = nullptr;  // theirs alone
  };
  struct Parts {
    Side host;
    Side device;
    Transfers& transfers;
    Arena& arena;    // on the host
    Arena& staging;  // on the device
  };
  using Update = std::function<AdamW(const Segment&, const Tensor& step_state)>;

  // What a unit has on the host: [shard].
  struct Tensors {
    Tensor master;
    Tensor m;
    Tensor v;
  };
  struct Types {
    DType master = DType::kF32;  // or i16: what the values on the device lack
    DType moments = DType::kF32;
  };
  HostUpdates(int num_units, const Parts& parts);

  // `value`, `grad`: the unit's shards on the device.
  const Tensors& add(int unit, const Tensor& value, const Tensor& grad, const Types& types);
  bool has(int unit) const { return at(unit).device_value.present(); }
  // Part of an added unit, from its element `first` on; its gradient and value lie on the device.
  void add_segment(int unit, const Segment& segment, std::int64_t first);
  // When all are added: takes the buffers.
  void make_buffers();
  void set_update(const Update& update);

  void begin(const Tensor& step_state);  // norm and clip factor are known: updates are due
  void start();                          // those that are due: the first are on their way
  bool is_pending(int unit) const { return at(unit).state != State::kSettled; }
  int pending_after(int unit) const;  // the next unit that is; -1: none
  // The unit's weights are those of the last step, and its gradient is read; true: since now.
  bool finish(int unit);
  bool is_settled() const;  // of all units
  void wait_for_host();     // the host may read what is finished
  void drop() noexcept;     // forgets updates that are due: other weights are loaded

 private:
  static constexpr std::size_t kBuffers = 3;                            // of either side
  static constexpr std::int64_t kMostElements = std::int64_t{1} << 25;  // of a piece, but for ...
  static constexpr std::int64_t kMostPieces = 32;                       // ... that of a unit
  // Of so many pieces the device updates all but one where it can: of its state fewer bytes pass
  // through the host's memory than where the host reads and writes it, gradient, and weights.
  static constexpr std::size_t kOneOfHost = 3;
  // A GPU's queues hold so many more than the unit needs that is asked for; beyond, the thread that
  // fills them would wait for the updates, and the forward with it.
  static constexpr std::size_t kStepsAhead = 32;
  static_assert(kOneOfHost <= kStepsAhead);  // finish() finds a unit's pieces on their way back

  struct Part {
    Segment segment;
    std::int64_t first;  // in the unit
  };
  // Of a piece on the host: its gradient and its value, which is absent where the masters are the
  // values. On the device: its master weights, absent likewise, and its moments.
  struct Buffer {
    std::array<Tensor, 3> tensors;
    Token updated;  // what was in it, and ...
    Token left;     // ... has gone where it belongs
  };
  // The update of a run of a unit.
  class Piece final : public LaneWork {
   public:
    Piece(HostUpdates& of, bool is_of_host, std::size_t in_buffer, std::int64_t at,
          std::int64_t num_elements)
        : owner(of),
          on_host(is_of_host),
          buffer(in_buffer),
          first(at),
          count(num_elements) {}
    void run() noexcept override;

    HostUpdates& owner;
    bool on_host;
    std::size_t buffer;
    std::int64_t first;  // in the unit
    std::int64_t count;
    std::vector<AdamW> updates;
    std::vector<Tensor> reads;
    std::vector<Tensor> writes;
    Cost cost;
    std::array<Token, 3> coming;  // what the update reads
    Token updated;
    std::array<Token, 3> leaving;  // what it has written
  };
  enum class State : std::uint8_t { kSettled, kDue, kOnItsWay };
  struct Unit {
    Tensors here;
    Tensor device_value;
    Tensor device_grad;
    std::vector<Part> parts;
    std::deque<Piece> pieces;
    std::size_t last_step = 0;  // of its pieces, and one more, among steps_
    State state = State::kSettled;
  };
  using Step = std::pair<Unit*, Piece*>;
  Unit& at(int unit) { return units_.at(static_cast<std::size_t>(unit)); }
  const Unit& at(int unit) const { return units_.at(static_cast<std::size_t>(unit)); }
  Buffer& buffer_of(const Piece& piece) {
    return buffers_[(piece.on_host ? 0 : kBuffers) + piece.buffer];
  }
  bool shares() const { return parts_.device.ops != nullptr; }
  // Values are half of their masters.
  static bool is_split(const Unit& unit) { return unit.here.master.dtype == DType::kI16; }
  std::int64_t piece_elements() const;
  void make_pieces(Unit& unit, std::int64_t elements);
  Segment staged(const Unit& unit, Piece& piece, const Part& part, std::int64_t first,
                 std::int64_t count);
  void plan(const Unit& unit, Piece& piece, const Update& update);
  void advance(std::size_t steps);
  void fetch_next(bool on_host);
  void fetch(const Step& step);
  void update(const Step& step);
  void put(const Step& step);
  void put_last_of_host();
  void wait_for_state();
  void note_fault() noexcept;  // the exception that is being handled
  void throw_fault();

  Parts parts_;
  std::vector<Unit> units_;
  std::vector<Buffer> buffers_;  // the host's, then the device's
  std::size_t num_pieces_ = 0;
  std::size_t num_host_pieces_ = 0;            // of them
  std::vector<Step> steps_;                    // pieces of the units that were due, in their order
  std::array<std::size_t, 2> next_fetched_{};  // of steps_: of the host, of the device
  std::size_t num_started_ = 0;
  const Step* last_of_host_ = nullptr;  // started; its weights come back when the next is
  std::vector<Token> state_back_;       // on its way to the host; no forward needs it
  Tensor step_state_;                   // on the host
  Tensor device_state_;       // the same beside the rank's own, which the next step writes
  std::mutex fault_mutex_;    // the host's pieces run on a thread of the driver
  std::exception_ptr fault_;  // the first
};

}  // namespace orthant
