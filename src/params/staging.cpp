#include "params/staging.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace orthant {

void StartedCalls::wait_first() {
  const Call call = calls_.front();
  calls_.erase(calls_.begin());
  group_.wait(call.token);
  if (call.into.present()) ops_.run(Accumulate{.y = call.into, .x = call.from});
}

void StartedCalls::wait_through(Token token) {
  while (!calls_.empty() && calls_.front().token.id <= token.id) {
    wait_first();
  }
}

void StartedCalls::wait_all() {
  while (!calls_.empty()) {
    wait_first();
  }
}

StagingBuffers::StagingBuffers(std::span<const StagedUnit> units, int num_shared, DType dtype,
                               Arena& arena) {
  std::int64_t largest = 0;
  int num_sharing = 0;
  for (const StagedUnit& unit : units) {
    if (unit.has_own || unit.count == 0) continue;
    largest = std::max(largest, unit.count);
    ++num_sharing;
  }
  const auto add = [&](std::int64_t count) {
    Buffer buffer;
    buffer.memory = arena.alloc({count}, dtype, MemClass::kStaging);
    buffers_.push_back(buffer);
  };
  num_shared_ = std::min(num_shared, num_sharing);
  for (int i = 0; i < num_shared_; ++i) {
    add(largest);
  }
  for (const StagedUnit& unit : units) {
    own_.push_back(unit.has_own ? static_cast<int>(buffers_.size()) : -1);
    if (unit.has_own) add(unit.count);
  }
}

StagingBuffers::Buffer* StagingBuffers::find(int unit) {
  const auto found = std::find_if(buffers_.begin(), buffers_.end(),
                                  [unit](const Buffer& buffer) { return buffer.unit == unit; });
  return found == buffers_.end() ? nullptr : &*found;
}

StagingBuffers::Buffer& StagingBuffers::take(int unit) {
  int at = own_.at(static_cast<std::size_t>(unit));
  for (int tries = 0; at < 0 && tries < num_shared_; ++tries) {
    const int shared = std::exchange(next_shared_, (next_shared_ + 1) % num_shared_);
    if (!buffers_[static_cast<std::size_t>(shared)].in_use) at = shared;
  }
  ORTHANT_CHECK(at >= 0, "no staging buffer is free for unit {}", unit);
  if (Buffer* before = find(unit)) before->unit = -1;
  Buffer& buffer = buffers_[static_cast<std::size_t>(at)];
  buffer.unit = unit;
  return buffer;
}

void StagingBuffers::forget() {
  for (Buffer& buffer : buffers_) {
    ORTHANT_CHECK(!buffer.in_use, "unit {} is still in use", buffer.unit);
    buffer.unit = -1;
    buffer.last = {};
  }
}

GatheredValues::GatheredValues(std::vector<StagedUnit> units, DType dtype, Arena& staging,
                               Communicator& dp, StartedCalls& calls)
    : units_(std::move(units)),
      dp_(dp),
      calls_(calls),
      buffers_(units_, kShared, dtype, staging) {}

void GatheredValues::expect(std::span<const int> order) {
  ORTHANT_CHECK(next_ == order_.size(), "{} uses of units were announced, {} came", order_.size(),
                next_);
  buffers_.forget();
  order_ = order;
  next_ = 0;
}

// The buffer that has the unit's values, or will have them when its call is done.
StagingBuffers::Buffer& GatheredValues::gathered(int unit) {
  if (StagingBuffers::Buffer* known = buffers_.find(unit)) return *known;
  const StagedUnit& staged = units_[static_cast<std::size_t>(unit)];
  StagingBuffers::Buffer& buffer = buffers_.take(unit);
  if (on_gather_) on_gather_(unit);
  buffer.last = dp_.start_all_gather(buffer.memory.flat(0, staged.count), staged.shard);
  calls_.add({.token = buffer.last, .into = {}, .from = {}});
  return buffer;
}

Tensor GatheredValues::use(int unit) {
  ORTHANT_CHECK(next_ < order_.size() && order_[next_] == unit,
                "unit {} is used, announced is {} as use {} of {}", unit,
                next_ < order_.size() ? order_[next_] : -1, next_, order_.size());
  ++next_;
  const int holder = holder_of(unit);
  StagingBuffers::Buffer& buffer = gathered(holder);
  calls_.wait_through(std::exchange(buffer.last, {}));
  buffer.in_use = true;
  gather_ahead(holder);
  return buffer.memory.flat(0, units_[static_cast<std::size_t>(holder)].count);
}

// Up to the next large unit that is not this one.
void GatheredValues::gather_ahead(int unit) {
  int ahead = -1;
  for (std::size_t i = next_; i < order_.size(); ++i) {
    const int other = holder_of(order_[i]);
    if (other == unit || other == ahead) continue;
    if (!units_[static_cast<std::size_t>(other)].is_side) {
      if (ahead >= 0) return;
      ahead = other;
    }
    gathered(other);
  }
}

void GatheredValues::release(int unit) {
  StagingBuffers::Buffer* buffer = buffers_.find(holder_of(unit));
  ORTHANT_CHECK(buffer != nullptr && buffer->in_use, "unit {} is released, but not in use", unit);
  buffer->in_use = false;
}

FreshGrads::FreshGrads(std::vector<StagedUnit> units, Arena& staging, Ops& ops)
    : units_(std::move(units)),
      ops_(ops),
      buffers_(units_, 1, DType::kF32, staging) {}

Tensor FreshGrads::open(int unit) {
  const Tensor grad =
      buffers_.take(unit).memory.flat(0, units_[static_cast<std::size_t>(unit)].count);
  ops_.run(Zero{.y = grad});
  return grad;
}

Tensor FreshGrads::close(int unit) {
  const StagingBuffers::Buffer* buffer = buffers_.find(unit);
  ORTHANT_CHECK(buffer != nullptr, "unit {}: its gradients are not open", unit);
  return buffer->memory.flat(0, units_[static_cast<std::size_t>(unit)].count);
}

ScatteredGrads::ScatteredGrads(std::vector<StagedUnit> units, DType dtype, Arena& staging,
                               Communicator& dp, StartedCalls& calls)
    : units_(std::move(units)),
      dp_(dp),
      calls_(calls),
      buffers_(units_, kShared, dtype, staging) {}

Tensor ScatteredGrads::open(int unit) {
  StagingBuffers::Buffer& buffer = buffers_.take(unit);
  calls_.wait_through(std::exchange(buffer.last, {}));
  buffer.in_use = true;
  return buffer.memory.flat(0, units_[static_cast<std::size_t>(unit)].count);
}

void ScatteredGrads::close(int unit) {
  const StagedUnit& staged = units_[static_cast<std::size_t>(unit)];
  StagingBuffers::Buffer* buffer = buffers_.find(unit);
  ORTHANT_CHECK(buffer != nullptr && buffer->in_use, "unit {}: its gradients are not open", unit);
  buffer->in_use = false;
  const std::int64_t count = staged.shard.count();
  const Tensor mine = buffer->memory.flat(count * dp_.rank(), count);
  buffer->last = dp_.start_reduce_scatter(mine, buffer->memory.flat(0, staged.count));
  calls_.add({.token = buffer->last, .into = staged.shard, .from = mine});
}

}  // namespace orthant
