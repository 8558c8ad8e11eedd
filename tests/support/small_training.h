// Small models of each family, trained for a few steps on a stream of random tokens.
#pragma once

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/support/fixture.h"

namespace orthant::test {

inline constexpr std::int64_t kBatch = 8;

inline std::vector<std::int32_t> random_stream(std::int64_t vocab) {
  std::vector<std::int32_t> tokens;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    tokens.push_back(
        static_cast<std::int32_t>(philox(17, 1, i)[0] % static_cast<std::uint64_t>(vocab)));
  }
  return tokens;
}

struct Case {
  ModelConfig model;
  std::int64_t seq_length = 16;
  DType compute = DType::kF32;
  bool split_rows = false;   // sequence parallelism
  bool by_document = false;  // some sequences have one document, some several, some a part of one
};

// Documents of 1, 5, 30, 2, 11 and 90 tokens, again and again.
inline bool begins_small_document(std::int64_t token) {
  const std::int64_t at = token % 139;
  return at == 0 || at == 1 || at == 6 || at == 36 || at == 38 || at == 49;
}

inline ModelConfig small(const std::string& family) {
  ModelConfig model = family_defaults(family);
  model.layers = 4;
  model.hidden = 48;
  model.heads = 4;
  model.vocab = 509;
  model.max_positions = 64;
  if (family == "llama") model.ffn = 96;
  return model;
}

inline Training training_of(const Case& c, int tp, int pp, int dp, std::int64_t micro_batch) {
  Training training;
  training.config.model = c.model;
  complete(training.config.model);
  training.config.layout.ranks = tp * pp * dp;
  training.config.layout.tp = tp;
  training.config.layout.pp = pp;
  training.config.layout.micro_batch = micro_batch;
  training.config.layout.sequence_parallel = c.split_rows;
  training.config.seq_length = c.seq_length;
  training.config.compute = c.compute;
  training.config.by_document = c.by_document;
  if (c.by_document) training.begins_document = begins_small_document;
  training.config.max_micros = static_cast<int>(kBatch / (micro_batch * dp));
  training.global_batch = kBatch;
  training.steps = 4;
  return training;
}

inline Curve run(const Training& training) {
  const InitSource source(5);
  Curve curve = train(training, source, random_stream(training.config.model.vocab));
  EXPECT_EQ(curve.memory_fault, "");
  EXPECT_EQ(curve.ledger_fault, "");
  return curve;
}

inline void expect_same_bits(const Curve& a, const Curve& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.norm, b.norm);
  EXPECT_EQ(a.weights, b.weights);
}

}  // namespace orthant::test
