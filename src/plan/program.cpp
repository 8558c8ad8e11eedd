#include "plan/program.h"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace orthant {
namespace {

std::uint64_t hash_of(std::span<const Stretch::Op> ops) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  const auto mix = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0x100000001b3ull;
  };
  for (const Stretch::Op& op : ops) {
    mix(op.what.size() + static_cast<std::uint64_t>(op.what.front()));
    mix(std::bit_cast<std::uint64_t>(op.cost.flops));
    mix(std::bit_cast<std::uint64_t>(op.cost.bytes));
  }
  return hash;
}

bool is_alone(const Entry& entry) {
  return entry.starts.done() && entry.waits_for.done();
}

// Turns entries into instructions one after another.
class Builder {
 public:
  Builder(ProgramTables& tables, std::size_t num_entries) : tables_(tables) {
    program_.list.reserve(num_entries / 2);
  }

  void add(const Entry& entry) {
    if (!ops_.empty() && (!is_alone(entry) || entry.at != at_)) end_stretch();
    const std::int32_t index = num_entries_++;
    if (is_alone(entry)) {
      if (ops_.empty()) first_ = index;
      at_ = entry.at;
      where_ = entry.where;
      ops_.push_back({.what = entry.what, .lane = entry.lane, .cost = entry.cost});
      return;
    }
    Instruction call{
        .kind = entry.starts.done() ? Instruction::Kind::kWait : Instruction::Kind::kStart,
        .lane = entry.lane,
        .at = entry.at,
        .what = entry.what,
        .place = place_of(entry.where),
        .peer = entry.peer,
        .group_size = entry.group_size,
        .ops_before = num_ops_,
        .entry = index,
        .fingerprint = entry.fingerprint,
        .bytes = entry.message_bytes,
        .cost = entry.cost};
    if (call.kind == Instruction::Kind::kStart) {
      std::transform(entry.after.begin(), entry.after.end(), call.after.begin(),
                     [this](Token token) { return open_call(token); });
      open_.emplace(entry.starts.id, static_cast<std::int32_t>(program_.list.size()));
    } else {
      const auto started = open_.find(entry.waits_for.id);
      ORTHANT_CHECK(started != open_.end(), "ledger: at {} it waits for a {} that was not started",
                    place_text(tables_, call), entry.what);
      call.link = started->second;
      open_.erase(started);
    }
    program_.list.push_back(call);
  }

  Program finish() {
    end_stretch();
    for (const auto& [token, index] : open_) {
      const Instruction& call = program_.list[static_cast<std::size_t>(index)];
      fail_run("ledger: {} at {} is never waited for", call.what, place_text(tables_, call));
    }
    return std::move(program_);
  }

 private:
  // Few names, each in one place of memory: their addresses are found faster than they are.
  std::int32_t place_of(std::string_view where) {
    for (const auto& [name, id] : places_) {
      if (name.data() == where.data() && name.size() == where.size()) return id;
    }
    return places_.emplace_back(where, tables_.place(where)).second;
  }

  // -1: the rank has waited for it, so that nothing started later comes before its end.
  std::int32_t open_call(Token token) const {
    const auto started = open_.find(token.id);
    return started == open_.end() ? -1 : started->second;
  }

  void end_stretch() {
    if (ops_.empty()) return;
    num_ops_ += static_cast<std::int32_t>(ops_.size());
    program_.list.push_back({.kind = Instruction::Kind::kCompute,
                             .at = at_,
                             .place = place_of(where_),
                             .link = tables_.stretch(ops_),
                             .entry = first_,
                             .cost = {}});
    ops_.clear();
  }

  ProgramTables& tables_;
  std::vector<std::pair<std::string_view, std::int32_t>> places_;
  Program program_;
  std::vector<Stretch::Op> ops_;  // of the stretch that is not ended
  At at_;
  std::string_view where_;
  std::int32_t num_ops_ = 0;
  std::int32_t num_entries_ = 0;
  std::int32_t first_ = 0;                               // entry of the stretch
  std::unordered_map<std::int64_t, std::int32_t> open_;  // token to its start
};

}  // namespace

std::int32_t ProgramTables::place(std::string_view name) {
  const auto found = place_ids_.find(name);
  if (found != place_ids_.end()) return found->second;
  const auto id = static_cast<std::int32_t>(places_.size());
  places_.emplace_back(name);
  place_ids_.emplace(name, id);
  return id;
}

std::int32_t ProgramTables::stretch(std::span<const Stretch::Op> ops) {
  const std::uint64_t hash = hash_of(ops);
  const auto [begin, end] = stretch_ids_.equal_range(hash);
  const auto found = std::find_if(begin, end, [&](const auto& known) {
    return std::equal(ops.begin(), ops.end(), at(known.second).ops.begin(),
                      at(known.second).ops.end());
  });
  if (found != end) return found->second;
  const std::int32_t id = num_stretches();
  Stretch stretch{.ops = {ops.begin(), ops.end()}};
  for (const Stretch::Op& op : ops) {
    stretch.flops += op.cost.flops;
  }
  stretches_.push_back(std::move(stretch));
  stretch_ids_.emplace(hash, id);
  return id;
}

bool is_call(const Instruction& instruction) {
  return instruction.kind == Instruction::Kind::kStart && instruction.lane >= Lane::kFirstComm;
}

bool is_message(const Instruction& instruction) {
  return instruction.what == "send" || instruction.what == "recv";
}

Program make_program(std::span<const Entry> ledger, ProgramTables& tables) {
  Builder builder(tables, ledger.size());
  for (const Entry& entry : ledger) {
    builder.add(entry);
  }
  return builder.finish();
}

std::string place_text(const ProgramTables& tables, const Instruction& instruction) {
  const std::string& place = tables.name(instruction.place);
  const At at = instruction.at;
  if (at.kind == 0) return place.empty() ? "the start of the step" : place;
  std::string text = fmt::format("{}{}", at.kind, at.micro);
  if (at.chunk != 0) text += fmt::format(".{}", at.chunk);
  return place.empty() ? text : text + " " + place;
}

}  // namespace orthant
