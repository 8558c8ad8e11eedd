// What all ranks together have of each parameter: sums of squares that are the same in every
// layout, and whether those that hold the same elements hold the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "params/param.h"
#include "train/rank.h"

namespace orthant {

// All ranks make it and call it together, between steps; all get the same answers.
class TensorSurvey {
 public:
  // `params`: canonical and of the whole model; they outlive this.
  TensorSurvey(Rank& rank, const std::vector<ParamSpec>& params);

  enum class What : std::uint8_t { kWeight, kGradient };
  // Of each parameter, exactly, rounded once; infinite where an element is not finite.
  std::vector<double> square_sums(What what);

  // What does not agree, a sentence each; `weights` are the sums of squares of weights.
  std::vector<std::string> find_strays();
  // Parts of tp that hold the same elements in their order, though they are parts of one tensor.
  std::vector<std::string> find_repeats(const std::vector<double>& weights);

 private:
  std::size_t place_of(const std::string& name) const { return places_.at(name); }
  void hash_values();
  std::int64_t hash(std::size_t slot, int tp) const {
    return hashes_[slot * static_cast<std::size_t>(tp_) + static_cast<std::size_t>(tp)];
  }
  int copies_of(std::size_t place) const;
  std::string name_of(std::size_t slot) const;
  void add_stray_ranks(std::vector<std::string>& strays) const;
  void add_stray_copies(std::vector<std::string>& strays) const;
  void add_stray_table(std::vector<std::string>& strays) const;

  Rank& rank_;
  const std::vector<ParamSpec>& params_;
  int tp_;
  std::unordered_map<std::string, std::size_t> places_;
  // Of the values by slot, which is the parameter's place, and tp rank; behind all parameters comes
  // the head's own copy of a tied table, 0 where it has none.
  std::vector<std::int64_t> hashes_;
  std::vector<std::int64_t> stray_slots_;  // by rank: 1 + the first that is stray there, or 0
};

}  // namespace orthant
