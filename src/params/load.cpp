// Loading: values, master weights and moments, streamed run by run straight into their final place.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "params/param_store.h"

namespace orthant {
namespace {

constexpr std::int64_t kChunk = 1 << 15;  // elements read at once

void put(Device& device, const Tensor& to, std::span<const float> values) {
  if (to.dtype == DType::kF32) {
    device.to_device(to, std::as_bytes(values));
    return;
  }
  ORTHANT_CHECK(to.dtype == DType::kBF16, "parameters of type {} cannot be loaded",
                name_of(to.dtype));
  std::vector<BFloat16> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(),
                 [](float value) { return BFloat16(value); });
  device.to_device(to, std::as_bytes(std::span(rounded)));
}

}  // namespace

void ParamStore::load(const ParamSource& source) {
  for (const Unit& unit : units_) {
    if (unit.shares_value) continue;
    for (std::size_t i = 0; i < unit.spec.params.size(); ++i) {
      const Param& param = *unit.spec.params[i];
      const Piece piece{param.spec.name, param.spec.global, param.box, 0, param.box.extent.count()};
      for (const Run& run : runs_of(piece)) {
        load_run(unit, param, unit.firsts[i], run, source);
      }
    }
  }
}

void ParamStore::load_run(const Unit& unit, const Param& param, std::int64_t param_first,
                          const Run& run, const ParamSource& source) {
  std::vector<float> buffer(static_cast<std::size_t>(std::min(kChunk, run.count)));
  for (std::int64_t done = 0; done < run.count; done += kChunk) {
    const std::int64_t count = std::min(kChunk, run.count - done);
    const std::span<float> values(buffer.data(), static_cast<std::size_t>(count));
    const std::int64_t at = param_first + run.local + done;  // in the unit
    source.read(param.spec, StateKind::kWeight, run.global + done, values);
    put(parts_.device, unit.value.flat(at, count), values);
    if (purpose_ == Purpose::kInfer) continue;
    // The part of it that lies in this rank's shard.
    const std::int64_t begin = std::max(at, unit.shard_first);
    const std::int64_t end = std::min(at + count, unit.shard_first + unit.shard_count);
    if (begin >= end) continue;
    const std::int64_t shard_at = begin - unit.shard_first;
    const std::span<float> mine =
        values.subspan(static_cast<std::size_t>(begin - at), static_cast<std::size_t>(end - begin));
    put(parts_.device, unit.master.flat(shard_at, end - begin), mine);
    for (const StateKind state : {StateKind::kExpAvg, StateKind::kExpAvgSq}) {
      source.read(param.spec, state, run.global + done + (begin - at), mine);
      const Tensor& moment = state == StateKind::kExpAvg ? unit.m : unit.v;
      put(parts_.device, moment.flat(shard_at, end - begin), mine);
    }
  }
}

std::string ParamStore::first_non_finite_grad() const {
  std::vector<float> host;
  for (const Unit& unit : units_) {
    for (const Param* param : unit.spec.params) {
      host.resize(static_cast<std::size_t>(param->grad.count()));
      parts_.device.to_host(std::as_writable_bytes(std::span(host)), param->grad);
      const bool finite =
          std::all_of(host.begin(), host.end(), [](float g) { return g - g == 0.0f; });
      if (!finite) return param->spec.name;
    }
  }
  return {};
}

}  // namespace orthant
