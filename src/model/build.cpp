#include "model/build.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "layers/block.h"
#include "layers/recompute.h"
#include "model/canonical.h"

namespace orthant {
namespace {

NormKind norm_kind(const ModelConfig& config) {
  return config.norm == "rmsnorm" ? NormKind::kRmsNorm : NormKind::kLayerNorm;
}

BlockConfig block_config(const ModelConfig& config, const LayoutConfig& layout) {
  return {.C = config.hidden,
          .H = config.heads,
          .G = config.kv_heads,
          .D = config.head_dim,
          .F = config.ffn,
          .norm = norm_kind(config),
          .norm_eps = config.norm_eps,
          .position = config.position == "rope"    ? Position::kRotary
                      : config.position == "alibi" ? Position::kAlibi
                                                   : Position::kLearned,
          .activation = config.activation == "swiglu" ? Activation::kSwiglu : Activation::kGelu,
          .dropout = config.dropout,
          .rows = rows_of(layout)};
}

// Blocks cost the same, so each goes to the rank that is then the fastest, and there to its fastest
// part, the first of several.
std::vector<std::int64_t> balanced_blocks(const ModelConfig& config, const Placement& placement,
                                          std::int64_t S) {
  ModelConfig head = config;
  head.layers = 0;
  const double head_flops = sequence_flops(head, S);
  const double block_flops =
      (sequence_flops(config, S) - head_flops) / static_cast<double>(config.layers);
  // A lookup's addition and that of its gradient.
  const double embedding_flops = 2.0 * static_cast<double>(config.hidden * S);
  const int num_parts = placement.num_parts();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(num_parts), 0);
  std::vector<double> of_part(counts.size(), 0.0);  // in blocks
  std::vector<double> of_rank(static_cast<std::size_t>(placement.num_ranks()), 0.0);
  const auto add = [&](int part, double load) {
    of_part[static_cast<std::size_t>(part)] += load;
    of_rank[static_cast<std::size_t>(placement.at(part).rank)] += load;
  };
  const auto add_block = [&](int part) {
    ++counts[static_cast<std::size_t>(part)];
    add(part, 1);
  };
  add(0, embedding_flops / block_flops);
  add(num_parts - 1, head_flops / block_flops);
  for (int part = 1; part + 1 < num_parts; ++part) {
    add_block(part);
  }
  for (std::int64_t left = config.layers - std::max(0, num_parts - 2); left > 0; --left) {
    const auto rank =
        static_cast<int>(std::min_element(of_rank.begin(), of_rank.end()) - of_rank.begin());
    int best = placement.part_at(rank, 0);
    for (int chunk = 1; chunk < placement.num_chunks(rank); ++chunk) {
      const int part = placement.part_at(rank, chunk);
      if (of_part[static_cast<std::size_t>(part)] < of_part[static_cast<std::size_t>(best)]) {
        best = part;
      }
    }
    add_block(best);
  }
  return counts;
}

}  // namespace

bool tp_fits(const ModelConfig& config, std::int64_t tp) {
  return config.heads % tp == 0 && config.ffn % tp == 0 &&
         (config.kv_heads % tp == 0 || tp % config.kv_heads == 0);
}

int kv_copies(const ModelConfig& config, const LayoutConfig& layout) {
  return static_cast<int>(std::max<std::int64_t>(1, layout.tp / config.kv_heads));
}

Rows rows_of(const LayoutConfig& layout) {
  return layout.sequence_parallel && layout.tp > 1 ? Rows::kSplit : Rows::kAll;
}

std::vector<std::int64_t> blocks_per_part(const ModelConfig& config, const TextOrInts& stages,
                                          const Placement& placement, std::int64_t S) {
  if (!stages.is_text()) return stages.ints;
  if (stages.text == "balanced") return balanced_blocks(config, placement, S);
  const std::int64_t num_parts = placement.num_parts();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(num_parts), config.layers / num_parts);
  std::for_each_n(counts.begin(), config.layers % num_parts, [](std::int64_t& count) { ++count; });
  return counts;
}

ChunkRange chunk_range(const std::vector<std::int64_t>& blocks_per_part, int part) {
  const auto own = blocks_per_part.begin() + part;
  return {.first_block = std::accumulate(blocks_per_part.begin(), own, std::int64_t{0}),
          .num_blocks = *own,
          .has_embedding = own == blocks_per_part.begin(),
          .has_head = own + 1 == blocks_per_part.end()};
}

Chunk::Chunk(const ModelConfig& config, const LayoutConfig& layout, const ChunkRange& range,
             const Mesh& mesh)
    : range_(range),
      rows_(rows_of(layout)),
      num_leaving_(layout.offload == "stash" ? std::llround(layout.offload_fraction *
                                                            static_cast<double>(range.num_blocks))
                                             : 0) {
  const BlockConfig shape = block_config(config, layout);
  if (range.has_embedding) add_embedding(config, shape, mesh);
  for (std::int64_t i = 0; i < range.num_blocks; ++i) {
    add_block(config, layout, i, mesh);
  }
  if (range.has_head) add_head(config, shape, mesh);
}

void Chunk::add_embedding(const ModelConfig& config, const BlockConfig& shape, const Mesh& mesh) {
  add(std::make_unique<Embedding>(num_layers(), "embed", shape, embedding_params(config), mesh),
      config.tie_embeddings ? UnitSpec::Tie::kFirst : UnitSpec::Tie::kNone);
}

// The first layout.recompute_blocks blocks of the stage, or all, keep less than they need.
void Chunk::add_block(const ModelConfig& config, const LayoutConfig& layout, std::int64_t i,
                      const Mesh& mesh) {
  const std::int64_t block = range_.first_block + i;
  const bool is_among_first =
      layout.recompute_blocks == 0 || range_.blocks_before + i < layout.recompute_blocks;
  const bool recomputes = layout.recompute != "none" && is_among_first;
  const bool wraps = recomputes && layout.recompute == "block";
  BlockConfig shape = block_config(config, layout);
  if (recomputes && layout.recompute == "cheap") shape.again = Again::kCheap;
  if (recomputes && layout.recompute == "attention") shape.again = Again::kAttention;
  std::unique_ptr<Layer> layer =
      std::make_unique<Block>(wraps ? 0 : num_layers(), fmt::format("h.{}", block), shape,
                              block_params(config, block), static_cast<int>(i), mesh);
  if (wraps) {
    const bool splits = layout.split_saved_inputs && layout.tp > 1 && rows_ == Rows::kAll;
    layer = std::make_unique<Recompute>(num_layers(), std::move(layer),
                                        splits ? Rows::kSplit : Rows::kAll);
  }
  add(std::move(layer), UnitSpec::Tie::kNone);
}

void Chunk::add_head(const ModelConfig& config, const BlockConfig& shape, const Mesh& mesh) {
  const std::vector<ParamSpec> specs = final_params(config);
  const ParamSpec table = config.tie_embeddings ? embedding_params(config).front() : specs.back();
  auto layer = std::make_unique<LmHead>(num_layers(), "head", shape, specs, table, mesh);
  head_ = layer.get();
  add(std::move(layer), config.tie_embeddings ? UnitSpec::Tie::kSecond : UnitSpec::Tie::kNone);
}

// The first blocks leave: they wait longest for their backward.
int Chunk::leaving_place(int i) const {
  const int block = range_.has_embedding ? i - 1 : i;
  return block >= 0 && block < num_leaving_ ? block : -1;
}

void Chunk::move_units(std::vector<UnitSpec>& all) {
  const int first = static_cast<int>(all.size());
  for (std::vector<int>& units : units_of_) {
    for (int& unit : units) {
      unit += first;
    }
  }
  std::move(units_.begin(), units_.end(), std::back_inserter(all));
  units_.clear();
}

// One unit a layer; a tied table is a unit of its own on both ends, so that their shards line up.
void Chunk::add(std::unique_ptr<Layer> layer, UnitSpec::Tie tie) {
  std::vector<Param*> params;
  layer->collect(params);
  UnitSpec own{.name = layer->name(), .params = {}, .is_side = tie != UnitSpec::Tie::kNone};
  UnitSpec table{.name = layer->name() + ".table", .params = {}, .tie = tie};
  for (Param* param : params) {
    const bool is_table = tie != UnitSpec::Tie::kNone && param->spec.is_padded;
    (is_table ? table : own).params.push_back(param);
  }
  std::vector<int> used;
  for (UnitSpec* unit : {&table, &own}) {
    if (unit->params.empty()) continue;
    used.push_back(static_cast<int>(units_.size()));
    units_.push_back(std::move(*unit));
  }
  units_of_.push_back(std::move(used));
  layers_.push_back(std::move(layer));
}

}  // namespace orthant
