// From a config to layers: which blocks a stage holds, the layers of a chunk, and the units of
// parameters they make. The one place that composes layers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dist/layout.h"
#include "layers/embedding.h"
#include "layers/lm_head.h"
#include "model/model_config.h"
#include "params/param_store.h"
#include "pipeline/placement.h"

namespace orthant {

// The number of blocks of each part of the model. "even": the first parts hold one more where the
// depth does not divide. "balanced": the slowest rank is as fast as can be, all its parts together,
// by the FLOPs of a sequence of S tokens, those of embedding and head among them; the first and the
// last part may have no block.
std::vector<std::int64_t> blocks_per_part(const ModelConfig& config, const TextOrInts& stages,
                                          const Placement& placement, std::int64_t S);

// The rows of a micro-batch that a rank has outside the matrix products.
Rows rows_of(const LayoutConfig& layout);

// Every tp rank has whole query heads and its part of ffn; key-value heads are split, or each is
// held by several ranks.
bool tp_fits(const ModelConfig& config, std::int64_t tp);

// The tp ranks that hold one key-value head.
int kv_copies(const ModelConfig& config, const LayoutConfig& layout);

// A contiguous part of the model.
struct ChunkRange {
  std::int64_t first_block;
  std::int64_t num_blocks;
  bool has_embedding;              // the first part
  bool has_head;                   // the last part
  std::int64_t blocks_before = 0;  // of this stage, in its earlier parts
};
ChunkRange chunk_range(const std::vector<std::int64_t>& blocks_per_part, int part);

// The layers of one chunk in forward order, and the units each needs.
class Chunk {
 public:
  Chunk(const ModelConfig& config, const LayoutConfig& layout, const ChunkRange& range,
        const Mesh& mesh);

  int num_layers() const { return static_cast<int>(layers_.size()); }
  const Layer& layer(int i) const { return *layers_[static_cast<std::size_t>(i)]; }
  const std::vector<int>& units_of(int i) const { return units_of_[static_cast<std::size_t>(i)]; }
  const LmHead* head() const { return head_; }  // null but in the last part
  const ChunkRange& range() const { return range_; }
  Rows rows() const { return rows_; }
  // Place of layer i in the whole model: the embedding is 0, block b is b + 1, the head comes last.
  std::int64_t place_of(int i) const {
    return range_.first_block + (range_.has_embedding ? i : i + 1);
  }

  // Which of the layers that leave for the host between forward and backward; -1: it stays.
  int leaving_place(int i) const;
  int num_leaving() const { return static_cast<int>(num_leaving_); }

  // Adds this chunk's units to those of a ParamStore; units_of counts in that list from then on.
  void move_units(std::vector<UnitSpec>& all);

 private:
  void add_embedding(const ModelConfig& config, const BlockConfig& shape, const Mesh& mesh);
  void add_block(const ModelConfig& config, const LayoutConfig& layout, std::int64_t i,
                 const Mesh& mesh);
  void add_head(const ModelConfig& config, const BlockConfig& shape, const Mesh& mesh);
  void add(std::unique_ptr<Layer> layer, UnitSpec::Tie tie);

  ChunkRange range_;
  Rows rows_;
  std::int64_t num_leaving_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<std::vector<int>> units_of_;
  std::vector<UnitSpec> units_;
  LmHead* head_ = nullptr;
};

// Memory for the tables that no training changes, filled: rotary frequencies, ALiBi slopes.
Constants make_constants(const ModelConfig& config, const Mesh& mesh, Device& device, Arena& arena);

}  // namespace orthant
