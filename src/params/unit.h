// Unit: parameters that are gathered, reduced and sharded together, as one flat run of elements.
// Here is where each of them lies in it; everything is arithmetic, nothing is memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "params/param.h"

namespace orthant {

struct UnitSpec {
  std::string name;
  std::vector<Param*> params;
  // Tied embeddings. kFirst: the embedding's use, where the table is saved, counted and updated.
  // kSecond: the head's use, with a gradient of its own; on one rank it shares the value of kFirst,
  // on two both ends keep and update a copy.
  enum class Tie : std::uint8_t { kNone, kFirst, kSecond } tie = Tie::kNone;
  bool is_side = false;  // used together with a larger unit, by the same layer
};

// Which of dp's ranks a shard belongs to.
struct ShardOf {
  int rank = 0;
  int count = 1;  // 1: nothing is sharded
};

// Elements first .. first+count-1 of a unit.
struct UnitRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t end() const { return first + count; }
};
UnitRange intersection(const UnitRange& a, const UnitRange& b);  // count 0: none

// Matrices that follow each other lie without a gap; all else starts at multiples of kNormBlock, so
// that neither sharding nor the neighbours change which squares are added in one block of the norm.
// Parameters whose copies' gradients are parts of a sum come last, so that they are added at once.
class UnitPlaces {
 public:
  struct Place {
    Param* param;
    UnitRange range;   // its elements, padding of a vocabulary included
    UnitRange padded;  // to where the next one begins
  };
  // Neighbours that the same ranks hold, and whose gradients those ranks add.
  struct PartialSum {
    UnitRange range;
    int copies;
  };

  UnitPlaces(const std::vector<Param*>& params, ShardOf shard);

  const std::vector<Place>& places() const { return places_; }  // ascending
  const std::vector<PartialSum>& partial_sums() const { return partial_sums_; }
  std::int64_t count() const { return count_; }  // elements, padded: every shard has as many
  UnitRange whole() const { return {0, count_}; }
  UnitRange shard() const { return shard_; }

 private:
  void add_group(const std::vector<Param*>& group);
  void add_partial_sums();

  std::vector<Place> places_;
  std::vector<PartialSum> partial_sums_;
  std::int64_t count_ = 0;
  UnitRange shard_;
};

}  // namespace orthant
