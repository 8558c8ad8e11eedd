#include "params/param_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace orthant {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

ParamStore::ParamStore(std::vector<UnitSpec> units, Sharding sharding, DType compute,
                       Purpose purpose, const Parts& parts)
    : sharding_(sharding),
      compute_(compute),
      purpose_(purpose),
      parts_(parts) {
  for (UnitSpec& spec : units) {
    Unit unit;
    unit.spec = std::move(spec);
    place(unit);
    units_.push_back(std::move(unit));
  }
  closing_order_.reserve(units_.size());
  allocate();
  for (const Unit& unit : units_) {
    add_segments(unit);
  }
}

// A dp group of one has nothing to shard, whatever was asked: same meaning, fewer bytes.
bool ParamStore::sharded() const {
  return sharding_.optimizer && parts_.mesh.dp().size() > 1;
}

Communicator& ParamStore::norm_group() const {
  return sharded() ? parts_.mesh.world() : parts_.mesh.model();
}

ParamStore::Unit* ParamStore::tied(UnitSpec::Tie tie) {
  const auto found = std::find_if(units_.begin(), units_.end(),
                                  [tie](const Unit& u) { return u.spec.tie == tie; });
  return found == units_.end() ? nullptr : &*found;
}

// Gives every parameter its place in the unit. Groups start at multiples of kNormBlock, so that
// neither sharding nor the neighbours change which squares are added in one block of the norm.
void ParamStore::place(Unit& unit) const {
  for (const Param* param : unit.spec.params) {
    const std::int64_t count = param->local.count();
    if (!param->spec.follows) {
      unit.count = round_up(unit.count, kNormBlock);
      unit.groups.push_back({unit.count, 0, param->spec.decays, param->spec.split_dim < 0});
    }
    unit.firsts.push_back(unit.count);
    unit.count += count;
    Group& group = unit.groups.back();
    ORTHANT_CHECK(group.decays == param->spec.decays, "{} follows a parameter of another kind",
                  param->spec.name);
    group.count = round_up(unit.count - group.first, kNormBlock);
  }
  const int shards = sharded() ? parts_.mesh.dp().size() : 1;
  unit.count = round_up(unit.count, kNormBlock * shards);
  unit.shard_count = unit.count / shards;
  unit.shard_first = sharded() ? unit.shard_count * parts_.mesh.dp().rank() : 0;
}

void ParamStore::allocate() {
  for (Unit& unit : units_) {
    const Unit* first = tied(UnitSpec::Tie::kFirst);
    unit.shares_value = unit.spec.tie == UnitSpec::Tie::kSecond && first != nullptr;
    unit.value = unit.shares_value
                     ? first->value
                     : parts_.params.alloc({unit.count}, compute_, MemClass::kParameters);
    if (purpose_ == Purpose::kTrain) allocate_training(unit);
    for (std::size_t i = 0; i < unit.spec.params.size(); ++i) {
      Param& param = *unit.spec.params[i];
      const std::int64_t count = param.local.count();
      param.value = unit.value.flat(unit.firsts[i], count).as(param.local);
      if (unit.grad.present()) param.grad = unit.grad.flat(unit.firsts[i], count).as(param.local);
    }
  }
}

void ParamStore::allocate_training(Unit& unit) {
  unit.grad = parts_.params.alloc({unit.count}, DType::kF32, MemClass::kGradients);
  if (unit.shares_value) return;
  const Shape shard = {unit.shard_count};
  unit.master = compute_ == DType::kF32
                    ? unit.value.flat(unit.shard_first, unit.shard_count)
                    : parts_.params.alloc(shard, DType::kF32, MemClass::kOptimizer);
  unit.m = parts_.params.alloc(shard, DType::kF32, MemClass::kOptimizer);
  unit.v = parts_.params.alloc(shard, DType::kF32, MemClass::kOptimizer);
}

void ParamStore::add_segments(const Unit& unit) {
  if (unit.shares_value || purpose_ == Purpose::kInfer) return;
  const bool is_copy = unit.spec.tie == UnitSpec::Tie::kSecond;
  const bool is_first_tp = parts_.mesh.tp().rank() == 0;
  for (const Group& group : unit.groups) {
    const std::int64_t begin = std::max(group.first, unit.shard_first);
    const std::int64_t end =
        std::min(group.first + group.count, unit.shard_first + unit.shard_count);
    if (begin >= end) continue;
    const std::int64_t count = end - begin;
    const std::int64_t at = begin - unit.shard_first;
    segments_.push_back(
        {.master = unit.master.flat(at, count),
         .m = unit.m.flat(at, count),
         .v = unit.v.flat(at, count),
         .value = compute_ == DType::kF32 ? Tensor{} : unit.value.flat(begin, count),
         .grad = unit.grad.flat(begin, count),
         .decays = group.decays,
         .counted = !is_copy && (!group.replicated || is_first_tp)});
  }
}

void ParamStore::begin_step() {
  for (const Unit& unit : units_) {
    parts_.ops.run(Zero{.y = unit.grad});
  }
}

// With ZeRO below 3 the values are always whole; with ZeRO below 2 so are the gradients.
void ParamStore::use(int unit) {
  ORTHANT_CHECK(unit >= 0 && unit < num_units() && !sharding_.params, "unit {} cannot be used",
                unit);
}

void ParamStore::release(int unit) {
  ORTHANT_CHECK(unit >= 0 && unit < num_units(), "unit {} does not exist", unit);
}

void ParamStore::open_grads(int unit) {
  ORTHANT_CHECK(unit >= 0 && unit < num_units() && !sharding_.grads,
                "gradients of unit {} cannot be opened", unit);
}

void ParamStore::close_grads(int unit, Micro micro) {
  if (micro != Micro::kLast) return;
  Unit& u = units_.at(static_cast<std::size_t>(unit));
  Communicator& dp = parts_.mesh.dp();
  u.reduction = sharded()
                    ? dp.start_reduce_scatter(u.grad.flat(u.shard_first, u.shard_count), u.grad)
                    : dp.start_all_reduce(u.grad, Reduce::kSum);
  closing_order_.push_back(unit);
}

void ParamStore::finish_grads() {
  for (const int unit : closing_order_) {
    parts_.mesh.dp().wait(units_[static_cast<std::size_t>(unit)].reduction);
  }
  closing_order_.clear();
  const Unit* first = tied(UnitSpec::Tie::kFirst);
  const Unit* second = tied(UnitSpec::Tie::kSecond);
  if (first != nullptr && second != nullptr) {
    parts_.ops.run(Accumulate{.y = first->grad.flat(first->shard_first, first->shard_count),
                              .x = second->grad.flat(second->shard_first, second->shard_count)});
  } else if (first != nullptr || second != nullptr) {
    const Unit* mine = first != nullptr ? first : second;
    parts_.mesh.ends().all_reduce(mine->grad.flat(mine->shard_first, mine->shard_count),
                                  Reduce::kSum);
  }
}

void ParamStore::publish() {
  if (!sharded()) return;
  for (const Unit& unit : units_) {
    if (!unit.shares_value)
      parts_.mesh.dp().all_gather(unit.value, unit.value.flat(unit.shard_first, unit.shard_count));
  }
}

std::vector<ParamStore::Owned> ParamStore::owned() const {
  std::vector<Owned> all;
  const int dp = parts_.mesh.dp().size();
  for (const Unit& unit : units_) {
    if (unit.spec.tie == UnitSpec::Tie::kSecond) continue;
    // Without ZeRO each dp rank saves its share all the same.
    const std::int64_t share = round_up((unit.count + dp - 1) / dp, kNormBlock);
    const std::int64_t begin =
        sharded() ? unit.shard_first : std::min(unit.count, share * parts_.mesh.dp().rank());
    const std::int64_t end =
        sharded() ? begin + unit.shard_count : std::min(unit.count, begin + share);
    for (std::size_t i = 0; i < unit.spec.params.size(); ++i) {
      const Param& param = *unit.spec.params[i];
      if (param.spec.split_dim < 0 && parts_.mesh.tp().rank() != 0) continue;
      const std::int64_t first = std::max(begin, unit.firsts[i]);
      const std::int64_t last = std::min(end, unit.firsts[i] + param.box.extent.count());
      if (first >= last) continue;
      const std::int64_t at = first - unit.shard_first;
      all.push_back({.spec = &param.spec,
                     .piece = {param.spec.name, param.spec.global, param.box,
                               first - unit.firsts[i], last - first},
                     .weight = unit.master.flat(at, last - first),
                     .m = unit.m.flat(at, last - first),
                     .v = unit.v.flat(at, last - first),
                     .grad = unit.grad.flat(first, last - first)});
    }
  }
  return all;
}

}  // namespace orthant
