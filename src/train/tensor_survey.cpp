#include "train/tensor_survey.h"

#include <algorithm>
#include <bit>
#include <span>

#include <fmt/format.h>

#include "ops/exact_sum.h"
#include "params/state_reader.h"

namespace orthant {
namespace {

constexpr std::int64_t kChunk = 1 << 16;             // elements copied to the host at once
constexpr std::int64_t kHashMask = (1LL << 48) - 1;  // sums of as many as there are ranks fit

// Calls visit(first, read(first, number)) for one run of `count` elements after another.
template <class Read, class Visit>
void for_runs(Rank& rank, std::int64_t count, const Read& read, const Visit& visit) {
  for (std::int64_t first = 0; first < count; first += kChunk) {
    visit(first, read(first, std::min(kChunk, count - first)));
    rank.mesh().world().sign_of_life(0);
  }
}

// Of a value and where it lies (the mixer of Steele et al., "Fast splittable pseudorandom number
// generators", OOPSLA 2014): sums of them are the same in every order and grouping.
std::int64_t hash_of(std::int64_t place, float value) {
  std::uint64_t word = std::bit_cast<std::uint32_t>(value);
  word ^= static_cast<std::uint64_t>(place + 1) * 0x9e3779b97f4a7c15ull;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
  return static_cast<std::int64_t>(word ^ (word >> 31)) & kHashMask;
}

std::string and_others(std::int64_t others, const char* what) {
  return others == 0 ? "" : fmt::format(", and {} more {}", others, what);
}

}  // namespace

TensorSurvey::TensorSurvey(Rank& rank, const std::vector<ParamSpec>& params)
    : rank_(rank),
      params_(params),
      tp_(rank.mesh().size(Axis::kTp)) {
  for (const ParamSpec& param : params) {
    places_.emplace(param.name, places_.size());
  }
  rank_.store().settle();
  hash_values();
}

std::vector<double> TensorSurvey::square_sums(What what) {
  constexpr auto kLimbs = static_cast<std::size_t>(kNormLimbs);
  std::vector<std::int64_t> limbs(params_.size() * kLimbs);
  const auto limbs_of = [&limbs](std::size_t place) {
    return NormLimbs(limbs.data() + place * kLimbs, kLimbs);
  };
  StateReader reader(rank_.device(), kChunk);
  for (const ParamStore::Owned& owned : rank_.store().owned()) {
    const NormLimbs sum = limbs_of(place_of(owned.piece.name));
    const auto read = [&](std::int64_t first, std::int64_t count) {
      if (what == What::kWeight) return reader.weights(owned, first, count);
      return reader.values(rank_.device(), owned.grad.flat(first, count));
    };
    for_runs(rank_, owned.piece.count, read,
             [sum](std::int64_t /*first*/, std::span<const float> values) {
               add_squares(sum, values);
               carry_over(sum);
             });
  }
  rank_.sum_over_ranks(limbs);
  std::vector<double> sums;
  sums.reserve(params_.size());
  for (std::size_t place = 0; place < params_.size(); ++place) {
    sums.push_back(exact_value(limbs_of(place)));
  }
  return sums;
}

// The first of dp says what the others should have; with ZeRO 3 each says its share.
void TensorSurvey::hash_values() {
  const Mesh& mesh = rank_.mesh();
  const std::size_t num_slots = params_.size() + 1;
  const auto column = static_cast<std::size_t>(mesh.coord(Axis::kTp));
  std::vector<std::int64_t> own(num_slots, -1);  // of what is here whole
  hashes_.assign(num_slots * static_cast<std::size_t>(tp_), 0);
  StateReader reader(rank_.device(), kChunk);
  for (const ParamStore::Held& held : rank_.store().held()) {
    const std::size_t slot = held.is_second ? params_.size() : place_of(held.param->spec.name);
    std::int64_t sum = 0;
    const auto read = [&](std::int64_t first, std::int64_t count) {
      return reader.values(rank_.device(), held.value.flat(first, count));
    };
    for_runs(rank_, held.value.count(), read,
             [&sum, &held](std::int64_t first, std::span<const float> values) {
               for (const float value : values) {
                 sum = (sum + hash_of(held.first + first++, value)) & kHashMask;
               }
             });
    if (held.is_whole) own[slot] = sum;
    if (held.is_whole && mesh.coord(Axis::kDp) != 0) continue;
    hashes_[slot * static_cast<std::size_t>(tp_) + column] = sum;
  }
  rank_.sum_over_ranks(hashes_);
  for (std::int64_t& hash : hashes_) {
    hash &= kHashMask;
  }
  stray_slots_.assign(static_cast<std::size_t>(mesh.world().size()), 0);
  for (std::size_t slot = 0; slot < num_slots; ++slot) {
    if (own[slot] < 0 || own[slot] == hash(slot, mesh.coord(Axis::kTp))) continue;
    stray_slots_[static_cast<std::size_t>(mesh.rank())] = static_cast<std::int64_t>(slot) + 1;
    break;
  }
  rank_.sum_over_ranks(stray_slots_);
}

int TensorSurvey::copies_of(std::size_t place) const {
  return make_param(params_[place], 0, tp_).copies;
}

std::string TensorSurvey::name_of(std::size_t slot) const {
  return slot < params_.size() ? params_[slot].name : params_.front().name + " of the head";
}

std::vector<std::string> TensorSurvey::find_strays() {
  std::vector<std::string> strays;
  add_stray_ranks(strays);
  add_stray_copies(strays);
  add_stray_table(strays);
  return strays;
}

// Replicas over dp.
void TensorSurvey::add_stray_ranks(std::vector<std::string>& strays) const {
  const auto found = std::find_if(stray_slots_.begin(), stray_slots_.end(),
                                  [](std::int64_t slot) { return slot > 0; });
  if (found == stray_slots_.end()) return;
  const auto others =
      std::count_if(found + 1, stray_slots_.end(), [](std::int64_t slot) { return slot > 0; });
  const int stray = static_cast<int>(found - stray_slots_.begin());
  auto coords = rank_.mesh().shape().coords_of(stray);
  coords[static_cast<std::size_t>(Axis::kDp)] = 0;
  strays.push_back(
      fmt::format("replicas are not the same: rank {} has other bits of {} than rank {}{}", stray,
                  name_of(static_cast<std::size_t>(*found) - 1),
                  rank_.mesh().shape().rank_of(coords), and_others(others, "ranks differ")));
}

// What several ranks of tp hold.
void TensorSurvey::add_stray_copies(std::vector<std::string>& strays) const {
  std::int64_t others = -1;
  std::string first;
  for (std::size_t place = 0; place < params_.size(); ++place) {
    const int copies = copies_of(place);
    for (int tp = 0; tp < tp_; ++tp) {
      const int holder = tp / copies * copies;
      if (hash(place, tp) == hash(place, holder)) continue;
      if (++others > 0) continue;
      first = fmt::format("tp rank {} has other bits of {} than tp rank {}", tp, name_of(place),
                          holder);
    }
  }
  if (others < 0) return;
  strays.push_back("replicas are not the same: " + first + and_others(others, "of their kind"));
}

// Both ends of a pipeline.
void TensorSurvey::add_stray_table(std::vector<std::string>& strays) const {
  const std::size_t second = params_.size();
  for (int tp = 0; tp < tp_; ++tp) {
    if (hash(second, tp) == 0 || hash(second, tp) == hash(0, tp)) continue;
    strays.push_back(fmt::format(
        "the tied table {} has other bits on the last stage than on the first (tp rank {})",
        params_.front().name, tp));
    return;
  }
}

std::vector<std::string> TensorSurvey::find_repeats(const std::vector<double>& weights) {
  std::int64_t others = -1;
  std::string first;
  for (std::size_t place = 0; place < params_.size(); ++place) {
    const bool varies = params_[place].init.kind == Init::Kind::kNormal && weights[place] > 0;
    const int copies = copies_of(place);
    if (!varies || copies == tp_) continue;
    for (int tp = copies; tp < tp_; tp += copies) {
      const int before = tp - copies;
      if (hash(place, tp) != hash(place, before)) continue;
      if (++others == 0) {
        first = fmt::format("tp ranks {} and {} have the same numbers as their parts of {}", before,
                            tp, name_of(place));
      }
    }
  }
  if (others < 0) return {};
  return {first + and_others(others, "parts repeat") + "; a seed that tp ranks share would do so"};
}

}  // namespace orthant
