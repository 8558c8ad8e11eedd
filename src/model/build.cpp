#include "model/build.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "layers/block.h"
#include "model/canonical.h"

namespace orthant {
namespace {

NormKind norm_kind(const ModelConfig& config) {
  return config.norm == "rmsnorm" ? NormKind::kRmsNorm : NormKind::kLayerNorm;
}

BlockConfig block_config(const ModelConfig& config) {
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
          .dropout = config.dropout};
}

}  // namespace

int kv_copies(const ModelConfig& config, const LayoutConfig& layout) {
  return static_cast<int>(std::max<std::int64_t>(1, layout.tp / config.kv_heads));
}

std::vector<std::int64_t> blocks_per_part(const ModelConfig& config, const TextOrInts& stages,
                                          int num_parts, std::int64_t S) {
  if (!stages.is_text()) return stages.ints;
  ModelConfig head = config;
  head.layers = 0;
  const double head_flops = sequence_flops(head, S);
  const double block_flops =
      (sequence_flops(config, S) - head_flops) / static_cast<double>(config.layers);
  // Blocks cost the same, so each goes to the part that is then the fastest, the first of several:
  // an even share where only blocks count.
  std::vector<std::int64_t> counts(static_cast<std::size_t>(num_parts), 0);
  std::vector<double> loads(counts.size(), 0.0);  // in blocks
  if (stages.text == "balanced") loads.back() = head_flops / block_flops;
  for (std::int64_t block = 0; block < config.layers; ++block) {
    const auto part = std::min_element(loads.begin(), loads.end()) - loads.begin();
    ++counts[static_cast<std::size_t>(part)];
    loads[static_cast<std::size_t>(part)] += 1;
  }
  return counts;
}

ChunkRange chunk_range(const std::vector<std::int64_t>& blocks_per_part, int part) {
  const auto own = blocks_per_part.begin() + part;
  return {.first_block = std::accumulate(blocks_per_part.begin(), own, std::int64_t{0}),
          .num_blocks = *own,
          .has_embedding = own == blocks_per_part.begin(),
          .has_head = own + 1 == blocks_per_part.end()};
}

Chunk::Chunk(const ModelConfig& config, const ChunkRange& range, const Mesh& mesh) : range_(range) {
  if (range.has_embedding) add_embedding(config, mesh);
  for (std::int64_t block = range.first_block; block < range.first_block + range.num_blocks;
       ++block) {
    add_block(config, block, mesh);
  }
  if (range.has_head) add_head(config, mesh);
}

void Chunk::add_embedding(const ModelConfig& config, const Mesh& mesh) {
  auto layer = std::make_unique<Embedding>(num_layers(), "embed", embedding_params(config),
                                           config.dropout, config.norm_eps, mesh);
  add(std::move(layer), config.tie_embeddings ? UnitSpec::Tie::kFirst : UnitSpec::Tie::kNone);
}

void Chunk::add_block(const ModelConfig& config, std::int64_t block, const Mesh& mesh) {
  auto layer = std::make_unique<Block>(num_layers(), fmt::format("h.{}", block),
                                       block_config(config), block_params(config, block),
                                       static_cast<int>(block - range_.first_block), mesh);
  add(std::move(layer), UnitSpec::Tie::kNone);
}

void Chunk::add_head(const ModelConfig& config, const Mesh& mesh) {
  const std::vector<ParamSpec> specs = final_params(config);
  const ParamSpec table = config.tie_embeddings ? embedding_params(config).front() : specs.back();
  auto layer = std::make_unique<LmHead>(num_layers(), "head", specs, table, norm_kind(config),
                                        config.norm_eps, mesh);
  head_ = layer.get();
  add(std::move(layer), config.tie_embeddings ? UnitSpec::Tie::kSecond : UnitSpec::Tie::kNone);
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
