// What of a rank's shards is updated, counted and saved here.
#include <algorithm>

#include "base/check.h"
#include "base/random.h"
#include "params/param_store.h"

namespace orthant {
namespace {

// Of the tp ranks that hold the same part, the first.
bool is_first_holder(const Param& param, const Mesh& mesh) {
  return mesh.coord(Axis::kTp) % param.copies == 0;
}

// An even share of the unit, for what every dp rank has whole.
UnitRange share_of(const UnitPlaces& places, const Communicator& dp) {
  const std::int64_t share = (places.count() + dp.size() - 1) / dp.size();
  return intersection({share * dp.rank(), share}, places.whole());
}

// Of the element at `first` of the unit and those after it. A part is the whole but for one
// dimension: with what lies within it, that makes rows.
ElementPlaces places_in_whole(const UnitPlaces::Place& place, std::int64_t first) {
  const ParamSpec& spec = place.param->spec;
  const std::int64_t at = first - place.range.first;
  if (spec.split_dim < 0) {
    const std::int64_t count = std::max<std::int64_t>(place.padded.count, 1);
    return {.first = at, .row = count, .stride = count, .offset = 0};
  }
  std::int64_t inner = 1;
  for (int dim = spec.split_dim + 1; dim < spec.global.rank(); ++dim) {
    inner *= spec.global[dim];
  }
  const std::int64_t begin = place.param->box.begin[static_cast<std::size_t>(spec.split_dim)];
  return {.first = at,
          .row = place.param->local[spec.split_dim] * inner,
          .stride = spec.global[spec.split_dim] * inner,
          .offset = begin * inner};
}

}  // namespace

Communicator& ParamStore::norm_group() const {
  return config_.sharding.optimizer ? parts_.mesh.world() : parts_.mesh.model();
}

// Places that share their settings and lie side by side are one segment; with moments in bf16 each
// is its own, since their rounding asks which element of which tensor it is.
void ParamStore::add_segments(const Unit& unit) {
  struct Part {
    UnitRange range;
    const UnitPlaces::Place* place;
    bool counted;
  };
  std::vector<Part> parts;
  for (const UnitPlaces::Place& place : unit.places.places()) {
    const Part part{.range = intersection(place.padded, unit.places.shard()),
                    .place = &place,
                    .counted = unit.spec.tie != UnitSpec::Tie::kSecond &&
                               is_first_holder(*place.param, parts_.mesh)};
    if (part.range.count == 0) continue;
    const bool joins = !parts.empty() && config_.moments == DType::kF32 &&
                       parts.back().counted == part.counted &&
                       parts.back().place->param->spec.decays == place.param->spec.decays;
    if (joins) {
      parts.back().range.count = part.range.end() - parts.back().range.first;
    } else {
      parts.push_back(part);
    }
  }
  for (const Part& part : parts) {
    const std::int64_t first = part.range.first - unit.places.shard().first;
    const std::int64_t count = part.range.count;
    const bool is_value = config_.compute == DType::kF32;
    const bool on_host = is_offloaded(unit.value_unit);
    segments_.push_back({.master = unit.master.flat(first, count),
                         .m = unit.m.flat(first, count),
                         .v = unit.v.flat(first, count),
                         .value = is_value ? Tensor{} : unit.value_shard.flat(first, count),
                         .grad = unit.grad_shard.flat(first, count),
                         .decays = part.place->param->spec.decays,
                         .counted = part.counted,
                         .block_start = static_cast<int>(part.range.first % kNormBlock),
                         .places = places_in_whole(*part.place, part.range.first),
                         .stream = stream_of(part.place->param->spec.name),
                         .on_host = on_host});
    if (on_host) host_->add_segment(unit.value_unit, segments_.back(), first);
  }
}

std::vector<ParamStore::Owned> ParamStore::owned() const {
  ORTHANT_CHECK(!host_ || host_->is_settled(), "updates are due; settle() makes them");
  std::vector<Owned> all;
  for (const Unit& unit : units_) {
    if (unit.spec.tie == UnitSpec::Tie::kSecond) continue;
    const UnitRange shard = unit.places.shard();
    const UnitRange mine =
        config_.sharding.optimizer ? shard : share_of(unit.places, parts_.mesh.dp());
    for (const UnitPlaces::Place& place : unit.places.places()) {
      const Param& param = *place.param;
      if (!is_first_holder(param, parts_.mesh)) continue;
      const UnitRange part = intersection({place.range.first, param.box.extent.count()}, mine);
      if (part.count == 0) continue;
      const std::int64_t first = part.first - shard.first;
      all.push_back({.spec = &param.spec,
                     .piece = {param.spec.name, param.spec.global, param.box,
                               part.first - place.range.first, part.count},
                     .master = unit.master.flat(first, part.count),
                     .value = config_.master == DType::kF32
                                  ? Tensor{}
                                  : unit.value_shard.flat(first, part.count),
                     .m = unit.m.flat(first, part.count),
                     .v = unit.v.flat(first, part.count),
                     .grad = unit.grad_shard.flat(first, part.count),
                     .home = &home_of(unit)});
    }
  }
  return all;
}

std::vector<ParamStore::Held> ParamStore::held() const {
  ORTHANT_CHECK(!host_ || host_->is_settled(), "updates are due; settle() makes them");
  std::vector<Held> all;
  for (const Unit& unit : units_) {
    if (!has_own_value(unit)) continue;
    const bool is_whole = unit.value.present();
    const UnitRange here = is_whole ? unit.places.whole() : unit.places.shard();
    const Tensor& values = is_whole ? unit.value : unit.value_shard;
    for (const UnitPlaces::Place& place : unit.places.places()) {
      const UnitRange part = intersection(place.range, here);
      if (part.count == 0) continue;
      all.push_back({.param = place.param,
                     .first = part.first - place.range.first,
                     .value = values.flat(part.first - here.first, part.count),
                     .is_whole = is_whole,
                     .is_second = unit.spec.tie == UnitSpec::Tie::kSecond});
    }
  }
  return all;
}

}  // namespace orthant
