// Loading: values, master weights and moments, streamed run by run straight into their final place.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "ops/split_master.h"
#include "params/param_store.h"
#include "params/state_reader.h"

namespace orthant {
namespace {

constexpr std::int64_t kChunk = 1 << 15;  // elements read at once

template <class T>
void put_rounded(Device& device, const Tensor& to, std::span<const float> values) {
  std::vector<T> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(),
                 [](float value) { return T(value); });
  device.to_device(to, std::as_bytes(std::span(rounded)));
}

void put(Device& device, const Tensor& to, std::span<const float> values) {
  switch (to.dtype) {
    case DType::kF32: return device.to_device(to, std::as_bytes(values));
    case DType::kBF16: return put_rounded<BFloat16>(device, to, values);
    case DType::kF16: return put_rounded<Half>(device, to, values);
    default: break;
  }
  ORTHANT_CHECK(false, "parameters of type {} cannot be loaded", name_of(to.dtype));
}

}  // namespace

// Only what lies here is read: the shard where values are sharded, else the whole.
void ParamStore::load(const ParamSource& source) {
  if (host_) host_->drop();
  for (const Unit& unit : units_) {
    if (!has_own_value(unit)) continue;
    const UnitRange here = unit.value.present() ? unit.places.whole() : unit.places.shard();
    for (const UnitPlaces::Place& place : unit.places.places()) {
      const Param& param = *place.param;
      const UnitRange part = intersection({place.range.first, param.box.extent.count()}, here);
      const Piece piece{param.spec.name, param.spec.global, param.box,
                        part.first - place.range.first, part.count};
      for (const Run& run : runs_of(piece)) {
        load_run(unit, param, part.first + run.local, run, source);
      }
    }
  }
}

// `first`: where the run lies in the unit.
void ParamStore::load_run(const Unit& unit, const Param& param, std::int64_t first, const Run& run,
                          const ParamSource& source) {
  const UnitRange shard = unit.places.shard();
  std::vector<float> buffer(static_cast<std::size_t>(std::min(kChunk, run.count)));
  for (std::int64_t done = 0; done < run.count; done += kChunk) {
    const UnitRange chunk = {first + done, std::min(kChunk, run.count - done)};
    const std::span<float> values(buffer.data(), static_cast<std::size_t>(chunk.count));
    source.read(param.spec, StateKind::kWeight, run.global + done, values);
    if (unit.value.present()) put(parts_.device, unit.value.flat(chunk.first, chunk.count), values);
    // The part of it that lies in this rank's shard.
    const UnitRange part = intersection(chunk, shard);
    if (part.count == 0) continue;
    const std::int64_t at = part.first - shard.first;
    const std::int64_t skipped = part.first - chunk.first;
    const std::span<float> mine =
        values.subspan(static_cast<std::size_t>(skipped), static_cast<std::size_t>(part.count));
    if (unit.value.absent()) put(parts_.device, unit.value_shard.flat(at, part.count), mine);
    if (config_.purpose == Purpose::kInfer) continue;
    put_master(unit, at, mine);
    for (const StateKind state : {StateKind::kExpAvg, StateKind::kExpAvgSq}) {
      source.read(param.spec, state, run.global + done + skipped, mine);
      const Tensor& moment = state == StateKind::kExpAvg ? unit.m : unit.v;
      put(home_of(unit), moment.flat(at, part.count), mine);
    }
  }
}

// `at`: where they lie in the shard.
void ParamStore::put_master(const Unit& unit, std::int64_t at, std::span<const float> values) {
  const Tensor to = unit.master.flat(at, static_cast<std::int64_t>(values.size()));
  if (to.dtype == DType::kF32) return put(home_of(unit), to, values);
  std::vector<std::int16_t> remainders(values.size());
  std::transform(values.begin(), values.end(), remainders.begin(),
                 [](float value) { return master_remainder(value); });
  home_of(unit).to_device(to, std::as_bytes(std::span(remainders)));
}

std::string ParamStore::first_non_finite_grad() const {
  std::vector<float> host;
  for (const Unit& unit : units_) {
    const UnitRange shard = unit.places.shard();
    for (const UnitPlaces::Place& place : unit.places.places()) {
      const UnitRange here = intersection(place.range, shard);
      host.resize(static_cast<std::size_t>(here.count));
      read_back(parts_.device, host, unit.grad_shard.flat(here.first - shard.first, here.count));
      const bool finite =
          std::all_of(host.begin(), host.end(), [](float g) { return g - g == 0.0f; });
      if (!finite) return place.param->spec.name;
    }
  }
  return {};
}

}  // namespace orthant
