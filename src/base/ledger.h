// Ledger: what a rank did, in program order. The dry run and the real run write the same entries.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace orthant {

// What may overlap. Entries of one lane run in order; kHost is work of the host's processor,
// kBeside that of the device beside its ops, kFirstComm + i the lane of communicator i.
enum class Lane : std::uint8_t { kCompute, kCopyIn, kCopyOut, kHost, kBeside, kFirstComm };

// Completion of one started call. The default is "already done".
struct Token {
  std::int64_t id = 0;
  bool done() const { return id == 0; }
  friend bool operator==(const Token&, const Token&) = default;
};

struct Cost {
  double flops = 0;  // multiply and add count as two
  double bytes = 0;  // read plus written in device memory
  // What the speed of arithmetic depends on: the inner dimension of a product, the size of a head.
  double depth = 0;
  // Of `bytes` those of an activation that is made with a product, in time of its own.
  double activation_bytes = 0;
  friend bool operator==(const Cost&, const Cost&) = default;
};

// What the schedule had the rank do: F3.1 is {'F', 1, 3}; kind 0 between the actions of a schedule.
struct At {
  char kind = 0;
  std::uint8_t chunk = 0;
  std::int32_t micro = 0;
  friend bool operator==(const At&, const At&) = default;
};

struct Entry {
  std::string_view what;   // "linear_fwd", "all_reduce", "send": a string literal
  std::string_view where;  // "h.7.mlp.down": owned by a layer, lives as long as the rank
  Lane lane = Lane::kCompute;
  At at = {};  // the action that has begun last
  Cost cost;
  std::uint64_t fingerprint = 0;  // of the shapes and types that the call touches
  std::int64_t message_bytes = 0;
  int group_size = 1;
  int peer = -1;
  Token starts;                     // the call this entry started, or
  Token waits_for;                  // the call it waited for
  std::array<Token, 2> after = {};  // calls that are over before the one it started begins
};

// Two entries say the same; times do not exist here.
bool same(const Entry& a, const Entry& b);

class Ledger {
 public:
  void add(Entry entry) {
    entry.where = where_;
    entry.at = at_;
    entries_.push_back(entry);
    if (observer_) observer_();
  }
  // Called after every entry; empty: none.
  void observe(std::function<void()> observer) { observer_ = std::move(observer); }
  Token next_token() { return Token{++last_token_}; }
  std::span<const Entry> entries() const { return entries_; }
  // Forgets the entries and numbers tokens anew; keeps the memory, so that later steps allocate
  // none.
  void restart() {
    entries_.clear();
    last_token_ = 0;
    at_ = {};
  }
  // Entries belong to this action until the next begins.
  void begin_action(At at) { at_ = at; }
  std::string_view where() const { return where_; }

 private:
  friend class Where;
  std::vector<Entry> entries_;
  std::string_view where_;
  At at_;
  std::int64_t last_token_ = 0;
  std::function<void()> observer_;
};

// Names the place in the program for the entries of a scope.
class [[nodiscard]] Where {
 public:
  Where(Ledger& ledger, std::string_view name) : ledger_(ledger), before_(ledger.where_) {
    ledger.where_ = name;
  }
  ~Where() { ledger_.where_ = before_; }
  Where(const Where&) = delete;
  Where& operator=(const Where&) = delete;

 private:
  Ledger& ledger_;
  std::string_view before_;
};

}  // namespace orthant
