// Storage, and one step's way through it.
#include "params/param_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace orthant {

// A dp group of one has nothing to shard, whatever was asked: same meaning, fewer bytes.
ParamStore::ParamStore(std::vector<UnitSpec> units, const StoreConfig& config, const Parts& parts)
    : config_(config),
      parts_(parts),
      calls_(parts.mesh.dp(), parts.ops) {
  ORTHANT_CHECK(config_.master == DType::kF32 || config_.compute == DType::kBF16,
                "masters of values in {} are {}; only bf16 is their upper half",
                name_of(config_.compute), name_of(config_.master));
  Sharding& sharding = config_.sharding;
  if (parts_.mesh.dp().size() == 1) sharding = {};
  ShardOf shard;
  if (sharding.optimizer) shard = {parts_.mesh.dp().rank(), parts_.mesh.dp().size()};
  for (UnitSpec& spec : units) {
    units_.emplace_back(std::move(spec), shard, num_units());
  }
  if (parts_.host) host_.emplace(num_units(), *parts_.host);
  for (Unit& unit : units_) {
    allocate_values(unit);
    if (config_.purpose == Purpose::kTrain) allocate_training(unit);
  }
  stage();
  for (const Unit& unit : units_) {
    if (config_.purpose == Purpose::kTrain && has_own_value(unit)) add_segments(unit);
  }
  if (host_) host_->make_buffers();
}

ParamStore::Unit* ParamStore::tied(UnitSpec::Tie tie) {
  const auto found = std::find_if(units_.begin(), units_.end(),
                                  [tie](const Unit& u) { return u.spec.tie == tie; });
  return found == units_.end() ? nullptr : &*found;
}

void ParamStore::allocate_values(Unit& unit) {
  const Unit* first = tied(UnitSpec::Tie::kFirst);
  if (unit.spec.tie == UnitSpec::Tie::kSecond && first != nullptr) {
    unit.value_unit = static_cast<int>(first - units_.data());
    unit.value = first->value;
    unit.value_shard = first->value_shard;
  } else {
    const bool sharded = config_.sharding.params;
    const UnitRange shard = unit.places.shard();
    const Shape here = {sharded ? shard.count : unit.places.count()};
    const Tensor values = parts_.params.alloc(here, config_.compute, MemClass::kParameters);
    unit.value = sharded ? Tensor{} : values;
    unit.value_shard = sharded ? values : values.flat(shard.first, shard.count);
  }
  if (unit.value.present()) bind_values(unit, unit.value);
}

void ParamStore::allocate_training(Unit& unit) {
  const UnitRange shard = unit.places.shard();
  const bool sharded = config_.sharding.grads;
  const Shape here = {sharded ? shard.count : unit.places.count()};
  const Tensor grads = parts_.params.alloc(here, config_.grads, MemClass::kGradients);
  unit.grad = sharded ? Tensor{} : grads;
  unit.grad_shard = sharded ? grads : grads.flat(shard.first, shard.count);
  if (unit.grad.present() && config_.grads == DType::kF32) bind_grads(unit, unit.grad);
  if (!has_own_value(unit)) return;
  const int number = unit.value_unit;
  if (host_ && number >= first_offloaded()) {
    const auto& host = host_->add(number, unit.value_shard, unit.grad_shard,
                                  {.master = config_.master, .moments = config_.moments});
    unit.master = host.master;
    unit.m = host.m;
    unit.v = host.v;
    return;
  }
  const auto alloc = [&](DType type) {
    return parts_.params.alloc({shard.count}, type, MemClass::kOptimizer);
  };
  unit.master = config_.compute == DType::kF32 ? unit.value_shard : alloc(config_.master);
  unit.m = alloc(config_.moments);
  unit.v = alloc(config_.moments);
}

// The last units go to the host, as many as the fraction needs: the first are needed first.
int ParamStore::first_offloaded() const {
  std::int64_t total = 0;
  for (const Unit& unit : units_) {
    total += unit.places.count();
  }
  const double wanted = config_.offload_fraction * static_cast<double>(total);
  int first = num_units();
  for (std::int64_t found = 0; first > 0 && static_cast<double>(found) < wanted;) {
    --first;
    found += units_[static_cast<std::size_t>(first)].places.count();
  }
  return first;
}

// The buffers of what is sharded.
void ParamStore::stage() {
  std::vector<StagedUnit> values;
  std::vector<StagedUnit> grads;
  for (const Unit& unit : units_) {
    const bool is_side = unit.spec.is_side;
    const bool holds = is_side || config_.gather == StoreConfig::Gather::kStep;
    const int number = static_cast<int>(grads.size());
    grads.push_back({.holder = number,
                     .count = unit.places.count(),
                     .is_side = is_side,
                     .has_own = is_side,
                     .shard = unit.grad_shard});
    StagedUnit values_of{.holder = unit.value_unit,
                         .count = unit.places.count(),
                         .is_side = is_side,
                         .has_own = holds,
                         .shard = unit.value_shard};
    if (!has_own_value(unit)) values_of = {.holder = unit.value_unit, .shard = {}};
    values.push_back(values_of);
  }
  Communicator& dp = parts_.mesh.dp();
  if (config_.sharding.params) {
    values_.emplace(std::move(values), config_.compute, parts_.staging, dp, calls_);
    if (host_) values_->on_gather([this](int unit) { bring(unit); });
  }
  if (config_.purpose == Purpose::kInfer) return;
  if (config_.grads != DType::kF32) fresh_.emplace(grads, parts_.staging, parts_.ops);
  if (config_.sharding.grads) {
    grads_.emplace(std::move(grads), config_.grads, parts_.staging, dp, calls_);
  }
}

void ParamStore::bind_values(const Unit& unit, const Tensor& whole) {
  for (const auto& [param, range, padded] : unit.places.places()) {
    param->value = whole.flat(range.first, range.count).as(param->local);
  }
}

void ParamStore::bind_grads(const Unit& unit, const Tensor& whole) {
  for (const auto& [param, range, padded] : unit.places.places()) {
    param->grad = whole.flat(range.first, range.count).as(param->local);
  }
}

void ParamStore::expect_uses(std::span<const int> order) {
  if (values_) values_->expect(order);
}

// A gradient that is still to be read for an update is zero when the unit's new weights have come.
void ParamStore::begin_step() {
  if (host_) host_->start();
  for (int unit = 0; unit < num_units(); ++unit) {
    if (!host_ || !host_->is_pending(unit)) clear_grad(at(unit));
  }
}

void ParamStore::clear_grad(const Unit& unit) {
  parts_.ops.run(Zero{.y = unit.grad.present() ? unit.grad : unit.grad_shard});
}

void ParamStore::use(int unit) {
  if (values_) {
    bind_values(at(unit), values_->use(unit));
  } else if (host_) {
    const int own = at(unit).value_unit;
    bring(own);
    const int next = gathers_updates() ? host_->pending_after(own) : -1;
    if (next >= 0) start_bringing(next);
  }
}

void ParamStore::release(int unit) {
  if (values_) values_->release(unit);
}

void ParamStore::open_grads(int unit) {
  if (fresh_) {
    bind_grads(at(unit), fresh_->open(unit));
  } else if (grads_) {
    const Tensor whole = grads_->open(unit);
    parts_.ops.run(Zero{.y = whole});
    bind_grads(at(unit), whole);
  }
}

void ParamStore::close_grads(int unit, Micro micro) {
  if (grads_) {
    if (fresh_) parts_.ops.run(Copy{.y = grads_->open(unit), .x = fresh_->close(unit)});
    return grads_->close(unit);
  }
  if (fresh_) parts_.ops.run(Accumulate{.y = at(unit).grad, .x = fresh_->close(unit)});
  if (micro != Micro::kLast) return;
  const Unit& u = at(unit);
  Communicator& dp = parts_.mesh.dp();
  const Token sum = config_.sharding.optimizer ? dp.start_reduce_scatter(u.grad_shard, u.grad)
                                               : dp.start_all_reduce(u.grad, Reduce::kSum);
  calls_.add({.token = sum, .into = {}, .from = {}});
}

void ParamStore::finish_grads() {
  calls_.wait_all();
  if (grads_) grads_->forget();
  sum_partial_grads();
  sum_tied_grads();
}

void ParamStore::set_host_update(const HostUpdates::Update& update) {
  if (host_) host_->set_update(update);
}

void ParamStore::begin_host_updates(const Tensor& step_state) {
  if (host_) host_->begin(step_state);
}

// The weights of the last step are on the device, and on their way to be whole.
void ParamStore::start_bringing(int unit) {
  Unit& u = at(unit);
  if (!host_->finish(unit)) return;
  clear_grad(u);
  if (!gathers_updates()) return;
  u.whole = parts_.mesh.dp().start_all_gather(u.value, u.value_shard);
  calls_.add({.token = u.whole, .into = {}, .from = {}});
}

// They are whole where they are kept whole.
void ParamStore::bring(int unit) {
  start_bringing(unit);
  calls_.wait_through(std::exchange(at(unit).whole, {}));
}

void ParamStore::settle() {
  for (int unit = 0; host_ && unit < num_units(); ++unit) {
    bring(unit);
  }
  if (host_) host_->wait_for_host();
}

// Parts of one sum, on the ranks that hold the same parameters.
void ParamStore::sum_partial_grads() {
  for (const Unit& unit : units_) {
    for (const UnitPlaces::PartialSum& sum : unit.places.partial_sums()) {
      const UnitRange here = intersection(sum.range, unit.places.shard());
      if (here.count == 0) continue;
      const std::int64_t first = here.first - unit.places.shard().first;
      parts_.mesh.holders(sum.copies)
          .all_reduce(unit.grad_shard.flat(first, here.count), Reduce::kSum);
    }
  }
}

void ParamStore::sum_tied_grads() {
  const Unit* first = tied(UnitSpec::Tie::kFirst);
  const Unit* second = tied(UnitSpec::Tie::kSecond);
  if (first != nullptr && second != nullptr) {
    parts_.ops.run(Accumulate{.y = first->grad_shard, .x = second->grad_shard});
  } else if (first != nullptr || second != nullptr) {
    parts_.mesh.ends().all_reduce((first != nullptr ? first : second)->grad_shard, Reduce::kSum);
  }
}

void ParamStore::publish() {
  if (!config_.sharding.optimizer || config_.sharding.params) return;
  for (const Unit& unit : units_) {
    if (!has_own_value(unit) || is_offloaded(unit.value_unit)) continue;
    parts_.mesh.dp().all_gather(unit.value, unit.value_shard);
  }
}

}  // namespace orthant
