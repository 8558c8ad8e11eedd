#include "params/unit.h"

#include <algorithm>

#include "base/check.h"
#include "ops/update.h"

namespace orthant {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

using Group = std::vector<Param*>;  // the first, and those that follow it

std::vector<Group> groups_of(const std::vector<Param*>& params) {
  std::vector<Group> groups;
  for (Param* param : params) {
    ORTHANT_CHECK(!groups.empty() || !param->spec.follows, "{} follows no parameter of its unit",
                  param->spec.name);
    if (!param->spec.follows) groups.emplace_back();
    groups.back().push_back(param);
  }
  return groups;
}

bool is_partial(const Group& group) {
  return group.front()->is_partial;
}

}  // namespace

UnitRange intersection(const UnitRange& a, const UnitRange& b) {
  const std::int64_t first = std::max(a.first, b.first);
  return {first, std::max<std::int64_t>(0, std::min(a.end(), b.end()) - first)};
}

UnitPlaces::UnitPlaces(const std::vector<Param*>& params, ShardOf shard) {
  std::vector<Group> groups = groups_of(params);
  std::stable_partition(groups.begin(), groups.end(),
                        [](const Group& group) { return !is_partial(group); });
  for (const Group& group : groups) {
    add_group(group);
  }
  add_partial_sums();
  count_ = round_up(count_, kNormBlock * shard.count);
  if (!places_.empty()) places_.back().padded.count = count_ - places_.back().padded.first;
  const std::int64_t share = count_ / shard.count;
  shard_ = {share * shard.rank, share};
}

void UnitPlaces::add_group(const Group& group) {
  for (Param* param : group) {
    const UnitRange range = {count_, param->local.count()};
    places_.push_back({param, range, range});
    count_ += range.count;
  }
  count_ = round_up(count_, kNormBlock);
  places_.back().padded.count = count_ - places_.back().padded.first;
}

void UnitPlaces::add_partial_sums() {
  for (const Place& place : places_) {
    if (!place.param->is_partial) continue;
    const int copies = place.param->copies;
    const bool joins = !partial_sums_.empty() && partial_sums_.back().copies == copies &&
                       partial_sums_.back().range.end() == place.range.first;
    if (joins) {
      partial_sums_.back().range.count += place.padded.count;
    } else {
      partial_sums_.push_back({place.padded, copies});
    }
  }
}

}  // namespace orthant
