// Each layer's backward against differences of its forward on one rank: both halves at once and one
// after the other, with parts computed again, on two tp ranks, and with rows split over them.
#include <algorithm>
#include <cmath>
#include <mutex>

#include <gtest/gtest.h>

#include "layers/block.h"
#include "layers/embedding.h"
#include "layers/recompute.h"
#include "tests/layers/layer_bed.h"

namespace orthant::test {
namespace {

ParamSpec spec(std::string name, const Shape& global, int split_dim) {
  return {.name = std::move(name), .global = global, .split_dim = split_dim, .init = {}};
}

void add_norm(std::vector<ParamSpec>& specs, const std::string& prefix, NormKind kind) {
  specs.push_back(spec(prefix + ".weight", {C}, -1));
  if (kind == NormKind::kLayerNorm) specs.push_back(spec(prefix + ".bias", {C}, -1));
}

std::vector<ParamSpec> block_specs(const BlockConfig& config) {
  const bool swiglu = config.activation == Activation::kSwiglu;
  std::vector<ParamSpec> specs;
  add_norm(specs, "h.attn.norm", config.norm);
  specs.push_back(spec("h.attn.q.weight", {H, D, C}, 0));
  specs.push_back(spec("h.attn.kv.weight", {2, config.G, D, C}, 1));
  specs.push_back(spec("h.attn.q.bias", {H, D}, 0));
  specs.push_back(spec("h.attn.kv.bias", {2, config.G, D}, 1));
  for (const std::size_t kv : {specs.size() - 3, specs.size() - 1}) {
    specs[kv].follows = true;
    specs[kv].repeats = true;
  }
  specs.push_back(spec("h.attn.proj.weight", {C, H, D}, 1));
  specs.push_back(spec("h.attn.proj.bias", {C}, -1));
  add_norm(specs, "h.mlp.norm", config.norm);
  specs.push_back(swiglu ? spec("h.mlp.gate_up.weight", {2, F, C}, 1)
                         : spec("h.mlp.up.weight", {F, C}, 0));
  specs.push_back(swiglu ? spec("h.mlp.gate_up.bias", {2, F}, 1) : spec("h.mlp.up.bias", {F}, 0));
  specs.push_back(spec("h.mlp.down.weight", {C, F}, 1));
  specs.push_back(spec("h.mlp.down.bias", {C}, -1));
  return specs;
}

ParamSpec table(const std::string& name) {
  ParamSpec rows = spec(name, {V, C}, 0);
  rows.is_padded = true;
  return rows;
}

BlockConfig config_of(NormKind norm, Position position, Activation activation, std::int64_t G,
                      double dropout) {
  return {.C = C,
          .H = H,
          .G = G,
          .D = D,
          .F = F,
          .norm = norm,
          .norm_eps = 1e-5,
          .position = position,
          .activation = activation,
          .dropout = dropout,
          .rows = Rows::kAll};
}

Subject block(const char* name, const BlockConfig& config) {
  const auto make = [](const BlockConfig& c, const Mesh& mesh, const Way& way) {
    std::unique_ptr<Layer> layer = std::make_unique<Block>(0, "h", c, block_specs(c), 0, mesh);
    if (!way.wraps) return layer;
    return std::unique_ptr<Layer>(std::make_unique<Recompute>(
        0, std::move(layer), way.splits_saved ? Rows::kSplit : Rows::kAll));
  };
  return {.name = name, .config = config, .kind = Subject::Kind::kBlock, .make = make};
}

Subject embedding(const char* name, const BlockConfig& config, bool has_positions, bool has_norm) {
  const auto make = [=](const BlockConfig& c, const Mesh& mesh, const Way& /*way*/) {
    std::vector<ParamSpec> specs = {table("embed.tokens.weight")};
    if (has_positions) specs.push_back(spec("embed.positions.weight", {S + 1, C}, -1));
    if (has_norm) add_norm(specs, "embed.norm", NormKind::kLayerNorm);
    return std::make_unique<Embedding>(0, "embed", c, specs, mesh);
  };
  return {.name = name, .config = config, .kind = Subject::Kind::kFirst, .make = make};
}

Subject head(const char* name, const BlockConfig& config) {
  const auto make = [](const BlockConfig& c, const Mesh& mesh, const Way& /*way*/) {
    std::vector<ParamSpec> specs;
    add_norm(specs, "final.norm", c.norm);
    return std::make_unique<LmHead>(0, "head", c, specs, table("head.weight"), mesh);
  };
  return {.name = name, .config = config, .kind = Subject::Kind::kHead, .make = make};
}

// By central differences of the objective in every element of every tensor.
Values differences(const Subject& subject, Values& values) {
  constexpr float kStep = 1.0F / 64;
  ThreadWorld world(1, 60);
  LayerBed bed(world, 0, subject, {});
  bed.forward(values);  // draws them
  Values result;
  for (auto& [name, elements] : values) {
    if (name == "x" && subject.kind == Subject::Kind::kFirst) continue;
    for (float& element : elements) {
      const float before = element;
      element = before + kStep;
      const double above = bed.forward(values);
      element = before - kStep;
      const double below = bed.forward(values);
      element = before;
      result[name].push_back(static_cast<float>((above - below) / (2 * kStep)));
    }
  }
  return result;
}

Values gradients(const Subject& subject, const Way& way, const Values& values) {
  Values grads;
  std::mutex mutex;
  ThreadWorld world(way.tp, 60);
  run_rank_threads(world, [&](int rank) {
    LayerBed bed(world, rank, subject, way);
    Values own = values;
    bed.forward(own);
    Values mine;
    bed.backward(mine);
    const std::lock_guard lock(mutex);
    for (const auto& [name, elements] : mine) {
      std::vector<float>& whole = grads[name];
      whole.resize(elements.size());
      std::transform(elements.begin(), elements.end(), whole.begin(), whole.begin(), std::plus<>());
    }
  });
  return grads;
}

void expect_same(const Values& actual, const Values& expected) {
  for (const auto& [name, wanted] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    const std::vector<float>& found = actual.at(name);
    ASSERT_EQ(found.size(), wanted.size()) << name;
    float largest = 0;
    for (const float value : wanted) {
      largest = std::max(largest, std::fabs(value));
    }
    EXPECT_GT(largest, 0) << name << " has no gradient";
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(found[i], wanted[i], 4e-3 * (largest + 0.05)) << name << " element " << i;
    }
  }
  EXPECT_EQ(actual.size(), expected.size());
}

std::vector<Way> ways_of(const Subject& subject) {
  std::vector<Way> ways;
  const bool is_block = subject.kind == Subject::Kind::kBlock;
  for (const bool in_halves : {false, true}) {
    for (const auto& [tp, splits_rows] : {std::pair{1, false}, {2, false}, {2, true}}) {
      const Way plain{.tp = tp, .splits_rows = splits_rows, .in_halves = in_halves};
      ways.push_back(plain);
      if (!is_block) continue;
      for (const Again again : {Again::kCheap, Again::kAttention}) {
        ways.push_back(plain);
        ways.back().again = again;
      }
      ways.push_back(plain);
      ways.back().wraps = true;
      if (tp == 1 || splits_rows) continue;
      ways.push_back(ways.back());
      ways.back().splits_saved = true;
    }
  }
  return ways;
}

class Gradients : public testing::TestWithParam<Subject> {};

TEST_P(Gradients, AreDifferencesOfTheForward) {
  const Subject& subject = GetParam();
  Values values;
  const Values expected = differences(subject, values);
  for (const Way& way : ways_of(subject)) {
    SCOPED_TRACE(fmt::format("tp {}, rows {}, {}, again {}, {}{}", way.tp,
                             way.splits_rows ? "split" : "whole",
                             way.in_halves ? "in halves" : "at once", static_cast<int>(way.again),
                             way.wraps ? "wrapped" : "plain", way.splits_saved ? ", split" : ""));
    expect_same(gradients(subject, way, values), expected);
  }
}

std::string name_of_subject(const testing::TestParamInfo<Subject>& info) {
  return info.param.name;
}

const BlockConfig kGpt =
    config_of(NormKind::kLayerNorm, Position::kLearned, Activation::kGelu, H, 0.2);
const BlockConfig kBloom =
    config_of(NormKind::kLayerNorm, Position::kAlibi, Activation::kGelu, H, 0);
const BlockConfig kLlama =
    config_of(NormKind::kRmsNorm, Position::kRotary, Activation::kSwiglu, 2, 0);
const BlockConfig kOneHead =
    config_of(NormKind::kRmsNorm, Position::kRotary, Activation::kSwiglu, 1, 0);

INSTANTIATE_TEST_SUITE_P(Of, Gradients,
                         testing::Values(block("BlockOfGpt", kGpt), block("BlockOfBloom", kBloom),
                                         block("BlockOfLlama", kLlama),
                                         block("BlockWithOneKeyValueHead", kOneHead),
                                         embedding("EmbeddingWithPositions", kGpt, true, false),
                                         embedding("EmbeddingWithNorm", kBloom, false, true),
                                         head("HeadWithLayerNorm", kGpt),
                                         head("HeadWithRmsNorm", kLlama)),
                         name_of_subject);

}  // namespace
}  // namespace orthant::test
