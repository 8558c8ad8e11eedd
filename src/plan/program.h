// Program: what one kind of rank does in a step, as the plan reads it: the calls of its ledger one
// by one, and what it computes between them as stretches that many places share.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ledger.h"

namespace orthant {

// Ops that follow each other without a call between them.
struct Stretch {
  struct Op {
    std::string_view what;
    Lane lane;
    Cost cost;
    friend bool operator==(const Op&, const Op&) = default;
  };
  std::vector<Op> ops;
  double flops = 0;
};

// What the programs of a plan share. Names of places and stretches are told once.
class ProgramTables {
 public:
  std::int32_t place(std::string_view name);
  std::int32_t stretch(std::span<const Stretch::Op> ops);
  const std::string& name(std::int32_t place) const {
    return places_[static_cast<std::size_t>(place)];
  }
  const Stretch& at(std::int32_t stretch) const {
    return stretches_[static_cast<std::size_t>(stretch)];
  }
  std::int32_t num_stretches() const { return static_cast<std::int32_t>(stretches_.size()); }

 private:
  std::vector<std::string> places_;
  std::map<std::string, std::int32_t, std::less<>> place_ids_;
  std::vector<Stretch> stretches_;
  std::multimap<std::uint64_t, std::int32_t> stretch_ids_;  // by hash
};

struct Instruction {
  enum class Kind : std::uint8_t {
    kCompute,  // a stretch
    kStart,    // of a call: it goes on at once
    kWait      // for a call that this rank has started
  };
  Kind kind;
  Lane lane = Lane::kCompute;  // of the call
  At at = {};
  std::string_view what = {};  // of a call: "all_reduce", "send"
  std::int32_t place = 0;      // where in the model; ProgramTables::name
  std::int32_t link = -1;      // kCompute: the stretch; kWait: the instruction that it waits for
  std::int32_t peer = -1;      // group rank
  std::int32_t group_size = 1;
  std::int32_t ops_before = 0;    // of the whole program
  std::int32_t entry = 0;         // the first of its entries in the ledger
  std::uint64_t fingerprint = 0;  // what all sides of a call agree on
  std::int64_t bytes = 0;         // of its message
  Cost cost;                      // of a copy between device and host, or work on the host
  std::array<std::int32_t, 2> after = {-1,
                                       -1};  // instructions whose calls are over before it begins
};

struct Program {
  std::vector<Instruction> list;
};

bool is_call(const Instruction& instruction);     // the start of a call between ranks
bool is_message(const Instruction& instruction);  // a send or a receive

// Throws when the ledger waits for what was not started, or never waits for what was.
Program make_program(std::span<const Entry> ledger, ProgramTables& tables);

// "F3 h.1", "update": where in the step an instruction stands.
std::string place_text(const ProgramTables& tables, const Instruction& instruction);

}  // namespace orthant
