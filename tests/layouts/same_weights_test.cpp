// What a layout may change: nothing at fixed tp, dp and micro-batch; rounding otherwise.
#include <functional>

#include <gtest/gtest.h>

#include "tests/support/small_training.h"

namespace orthant::test {
namespace {

// Every change that must not change a bit, on top of one tp and dp.
void expect_promise_of_bits(const Case& c, int tp, int dp) {
  const Curve base = run(training_of(c, tp, 1, dp, 1));
  const auto varied = [&](int pp, const std::function<void(Training&)>& change) {
    Training training = training_of(c, tp, pp, dp, 1);
    change(training);
    expect_same_bits(base, run(training));
  };
  varied(2, [](Training&) {});
  varied(2, [](Training& t) { t.config.layout.schedule = "gpipe"; });
  varied(4, [](Training& t) { t.config.layout.zero_stage = 0; });
  varied(2, [](Training& t) { t.config.layout.stages = {"", {1, 3}}; });
  varied(3, [](Training& t) { t.config.layout.stages = {"balanced", {}}; });
  varied(2, [](Training& t) { t.config.layout.stages = {"", {4, 0}}; });
  const auto scheduled = [&](int pp, const char* schedule, int virtual_stages) {
    SCOPED_TRACE(fmt::format("{} on {} ranks, {} parts each", schedule, pp, virtual_stages));
    varied(pp, [&](Training& t) {
      t.config.layout.schedule = schedule;
      t.config.layout.virtual_stages = virtual_stages;
    });
  };
  scheduled(1, "interleaved", 3);
  scheduled(2, "interleaved", 2);
  scheduled(2, "zero_bubble", 1);
  scheduled(4, "zero_bubble", 1);
  scheduled(1, "zero_bubble_v", 1);
  scheduled(2, "zero_bubble_v", 2);
  varied(3, [](Training&) {});  // 4 blocks on 3 stages
  varied(1, [](Training& t) { t.num_threads = 2; });
  varied(1, [](Training& t) { t.num_threads = 3; });
  for (const char* recompute : {"cheap", "attention", "block"}) {
    for (const char* schedule : {"1f1b", "zero_bubble"}) {
      SCOPED_TRACE(fmt::format("recompute {} with {}", recompute, schedule));
      varied(2, [&](Training& t) {
        t.config.layout.recompute = recompute;
        t.config.layout.schedule = schedule;
      });
    }
  }
  varied(1, [](Training& t) {
    t.config.layout.recompute = "block";
    t.config.layout.recompute_blocks = 3;
    t.config.layout.split_saved_inputs = true;
  });
}

TEST(SameBits, GptOnOneTpAndDp) {
  expect_promise_of_bits({small("gpt")}, 1, 1);
}
TEST(SameBits, GptWithDropoutOnTp2Dp2) {
  Case c{small("gpt")};
  c.model.dropout = 0.2;
  expect_promise_of_bits(c, 2, 2);
}
TEST(SameBits, BloomOnTp2) {
  expect_promise_of_bits({small("bloom")}, 2, 1);
}
TEST(SameBits, GptWithSplitRowsAndDropoutOnTp2) {
  Case c{small("gpt")};
  c.model.dropout = 0.2;
  c.split_rows = true;
  expect_promise_of_bits(c, 2, 1);
}
TEST(SameBits, DocumentsOnTp2Dp2) {
  Case c{small("llama")};
  c.by_document = true;
  expect_promise_of_bits(c, 2, 2);
}
TEST(SameBits, GptWithDocumentsSplitRowsAndDropoutOnTp2) {
  Case c{small("gpt")};
  c.model.dropout = 0.2;
  c.split_rows = true;
  c.by_document = true;
  expect_promise_of_bits(c, 2, 1);
}
TEST(SameBits, LlamaInBf16OnDp2) {
  Case c{small("llama")};
  c.compute = DType::kBF16;
  expect_promise_of_bits(c, 1, 2);
}

// One micro-batch a step, and fewer than stages; 5 blocks on 4 stages and 509 words on 2 tp ranks.
TEST(SameBits, WithFewerMicroBatchesThanStages) {
  Case c{small("gpt")};
  c.model.layers = 5;
  for (const int micro_batch : {4, 8}) {
    for (const int tp : {1, 2}) {
      const Curve base = run(training_of(c, tp, 1, 1, micro_batch));
      for (const char* schedule :
           {"gpipe", "1f1b", "interleaved", "zero_bubble", "zero_bubble_v"}) {
        SCOPED_TRACE(fmt::format("{}, tp {}, micro-batch {}", schedule, tp, micro_batch));
        const bool is_v = schedule == std::string("zero_bubble_v");
        Training training = training_of(c, tp, is_v ? 2 : 4, 1, micro_batch);
        training.config.layout.schedule = schedule;
        training.config.layout.virtual_stages = is_v ? 2 : 1;
        expect_same_bits(base, run(training));
      }
    }
  }
}

// Layouts that round differently agree with one rank, and that with the formula backend.
void expect_same_curve(const Case& c, const std::vector<std::array<int, 4>>& layouts) {
  Training reference = training_of(c, 1, 1, 1, 1);
  reference.ops = "ref";
  const Curve base = run(reference);
  for (const auto& [tp, pp, dp, micro_batch] : layouts) {
    SCOPED_TRACE(fmt::format("tp {} pp {} dp {} micro-batch {}", tp, pp, dp, micro_batch));
    const Curve curve = run(training_of(c, tp, pp, dp, micro_batch));
    for (std::size_t i = 0; i < base.loss.size(); ++i) {
      EXPECT_NEAR(curve.loss[i], base.loss[i], 1e-5);
      EXPECT_NEAR(curve.norm[i] / base.norm[i], 1, 1e-4);
    }
  }
}

const std::vector<std::array<int, 4>> kLayouts = {{1, 1, 1, 2}, {2, 1, 1, 1}, {1, 2, 2, 2},
                                                  {2, 2, 2, 1}, {4, 2, 1, 4}, {2, 3, 1, 1}};

TEST(SameCurve, Gpt) {
  expect_same_curve({small("gpt")}, kLayouts);
}
TEST(SameCurve, GptWithDropout) {
  Case c{small("gpt")};
  c.model.dropout = 0.3;
  expect_same_curve(c, kLayouts);
}
TEST(SameCurve, Documents) {
  for (const char* family : {"gpt", "bloom", "llama"}) {
    SCOPED_TRACE(family);
    Case c{small(family)};
    c.by_document = true;
    expect_same_curve(c, kLayouts);
  }
}
TEST(SameCurve, BloomWithHeadsThatAreNoPowerOfTwo) {
  Case c{small("bloom")};
  c.model.heads = 12;
  expect_same_curve(c, {{3, 1, 1, 1}, {3, 2, 1, 2}, {6, 1, 1, 2}, {12, 1, 1, 1}});
}
TEST(SameCurve, LlamaWithGroupedHeads) {
  Case c{small("llama")};
  c.model.kv_heads = 2;
  c.seq_length = 37;
  expect_same_curve(c, {{2, 1, 1, 1}, {1, 4, 1, 2}, {2, 2, 2, 2}});
}
TEST(SameCurve, LlamaWithOneKeyValueHead) {
  Case c{small("llama")};
  c.model.kv_heads = 1;
  expect_same_curve(c, {{1, 1, 1, 4}, {1, 2, 1, 1}, {1, 1, 4, 1}, {4, 1, 1, 1}, {2, 2, 2, 1}});
}
TEST(SameCurve, LlamaTiedWithScaledRotary) {
  Case c{small("llama")};
  c.model.tie_embeddings = true;
  c.model.rope_scaling = "llama3";
  c.model.rope_original_positions = 16;
  expect_same_curve(c, kLayouts);
}
TEST(SameCurve, QwenBiases) {
  Case c{small("llama")};
  c.model.qkv_bias = true;
  expect_same_curve(c, kLayouts);
  c.model.kv_heads = 2;
  expect_same_curve(c, {{4, 1, 1, 1}, {4, 1, 2, 2}});
}
TEST(SameCurve, SequenceParallelWithDropout) {
  for (const char* family : {"gpt", "bloom", "llama"}) {
    SCOPED_TRACE(family);
    Case c{small(family)};
    c.model.dropout = 0.3;
    c.split_rows = true;
    expect_same_curve(c, {{2, 1, 1, 1}, {2, 2, 2, 1}, {4, 2, 1, 4}, {2, 3, 1, 1}});
  }
}
TEST(SameCurve, UnevenDepthAndListOfStages) {
  Case c{small("gpt")};
  c.model.layers = 5;
  expect_same_curve(c, {{1, 2, 1, 1}, {1, 3, 1, 2}, {2, 4, 1, 1}, {1, 5, 1, 1}});
  Training listed = training_of(c, 1, 2, 1, 1);
  listed.config.layout.stages = {"", {1, 4}};
  expect_same_bits(run(listed), run(training_of(c, 1, 1, 1, 1)));
}
TEST(SameCurve, VocabularySmallerThanItsPadding) {
  Case c{small("gpt")};
  c.model.vocab = 65;  // the last part of tp 4 is padding alone
  c.model.heads = 8;
  expect_same_curve(c, {{4, 1, 1, 1}, {8, 1, 1, 1}, {4, 2, 1, 2}});
}

}  // namespace
}  // namespace orthant::test
