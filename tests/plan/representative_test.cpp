// One rank of each kind stands for all: on up to 64 ranks every rank's dry run is that of its
// representative, memory and ledger, entry by entry.
#include <gtest/gtest.h>

#include "base/random.h"
#include "base/text.h"
#include "plan/match.h"

namespace orthant {
namespace {

std::string compare(const DryRun& own, const DryRun& other) {
  if (own.step.size() != other.step.size()) {
    return fmt::format("{} entries, not {}", own.step.size(), other.step.size());
  }
  for (std::size_t i = 0; i < own.step.size(); ++i) {
    const Entry& a = own.step[i];
    const Entry& b = other.step[i];
    if (same(a, b)) continue;
    return fmt::format("entry {}: {} at '{}', not {} at '{}'", i, a.what, a.where, b.what, b.where);
  }
  return "";
}

std::string compare(const MemoryPlan& own, const MemoryPlan& other) {
  for (std::size_t i = 0; i < own.arenas.size(); ++i) {
    if (own.arenas[i] == other.arenas[i]) continue;
    return fmt::format("arena {}: {} B, not {} B", own.arenas[i].name, own.arenas[i].bytes,
                       other.arenas[i].bytes);
  }
  return own == other ? "" : "other arenas";
}

// Every rank by itself against the one that stands for it.
void expect_representatives(const RankConfig& config) {
  const DryWorld dry = dry_world(config, 2);
  std::vector<std::optional<DryRun>> first_of(dry.world.kinds.size());
  for (int rank = 0; rank < config.layout.ranks; ++rank) {
    DryRun own = dry_run(config, rank, 2);
    ASSERT_EQ(compare(own.memory, dry.memory.of(rank).whole), "") << "rank " << rank;
    const int kind = dry.world.kind_of[static_cast<std::size_t>(rank)];
    std::optional<DryRun>& first = first_of.at(static_cast<std::size_t>(kind));
    if (!first) {
      first.emplace(std::move(own));
    } else {
      ASSERT_EQ(compare(own, *first), "") << "rank " << rank;
    }
  }
  for (const auto& first : first_of) {
    EXPECT_TRUE(first.has_value()) << "a kind without a rank";
  }
  const MatchResult result = match(dry.world);
  for (const Mismatch& mismatch : result.mismatches) {
    ADD_FAILURE() << mismatch.what;
  }
  EXPECT_EQ(result.deadlock, "");
}

// Draws of a fixed seed.
class Draw {
 public:
  explicit Draw(std::uint64_t number) : stream_(number) {}
  template <class T>
  T of(std::initializer_list<T> values) {
    const std::uint32_t bits = philox(64, stream_, count_++)[0];
    return values.begin()[bits % values.size()];
  }

 private:
  std::uint64_t stream_;
  std::uint64_t count_ = 0;
};

// Heads and the feed-forward divide by tp, blocks suffice for the parts; the rest is free.
RankConfig random_config(std::uint64_t number) {
  Draw draw(number);
  RankConfig config;
  ModelConfig& model = config.model;
  LayoutConfig& layout = config.layout;
  model = preset(draw.of({"tiny-gpt", "tiny-llama", "tiny-bloom"}));
  model.vocab = draw.of({251, 256});
  model.layers = draw.of({8, 9, 11});
  if (model.family == "llama") {
    model.kv_heads = draw.of({1, 2, 4, 8});
    model.qkv_bias = draw.of({false, true});
  }
  model.dropout = draw.of({0.0, 0.1});
  complete(model);
  do {
    layout.tp = draw.of({1, 2, 4, 8});
    layout.pp = draw.of({1, 2, 3, 4});
    layout.ranks = layout.tp * layout.pp * draw.of({1, 2, 3, 5, 8});
  } while (layout.ranks > 64);
  layout.sequence_parallel = draw.of({false, true});
  layout.micro_batch = draw.of({1, 2});
  layout.schedule = draw.of({"gpipe", "1f1b", "interleaved", "zero_bubble", "zero_bubble_v"});
  if (layout.schedule == "interleaved") layout.virtual_stages = draw.of({1, 2});
  if (layout.schedule == "zero_bubble_v") layout.virtual_stages = 2;
  layout.stages = {draw.of({"even", "balanced"}), {}};
  layout.zero_stage = draw.of({0, 1, 2, 3});
  layout.zero_gather = draw.of({"micro", "step"});
  layout.recompute = draw.of({"none", "cheap", "attention", "block"});
  if (layout.recompute != "none") layout.recompute_blocks = draw.of({0, 1});
  if (layout.recompute == "block") layout.split_saved_inputs = draw.of({false, true});
  layout.offload = draw.of({"none", "stash", "optimizer"});
  if (layout.recompute == "block" && layout.offload == "stash") layout.offload = "none";
  layout.offload_fraction = draw.of({0.4, 1.0});
  config.seq_length = 16;
  config.max_micros = draw.of({1, 3, 4});
  config.compute = draw.of({DType::kF32, DType::kBF16});
  if (config.compute == DType::kBF16) config.master = draw.of({DType::kF32, DType::kI16});
  config.moments = draw.of({DType::kF32, DType::kBF16});
  config.grads = draw.of({DType::kF32, DType::kBF16});
  config.target = draw.of({Target::kHost, Target::kCuda});
  return config;
}

std::string text_of(const RankConfig& config) {
  const LayoutConfig& l = config.layout;
  return fmt::format(
      "{}, {} kv heads, tp {} pp {} dp {}, sp {}, {} x{}, zero {} {}, recompute {} {}, offload {} "
      "{}, {} micros of {}",
      config.model.family, config.model.kv_heads, l.tp, l.pp, l.dp(), l.sequence_parallel,
      l.schedule, l.virtual_stages, l.zero_stage, l.zero_gather, l.recompute, l.recompute_blocks,
      l.offload, l.offload_fraction, config.max_micros, l.micro_batch);
}

constexpr std::uint64_t kSlices = 12;
constexpr std::uint64_t kOfASlice = 10;

class Representatives : public testing::TestWithParam<std::uint64_t> {};
TEST_P(Representatives, StandForEveryRank) {
  for (std::uint64_t i = 0; i < kOfASlice; ++i) {
    const RankConfig config = random_config(GetParam() * kOfASlice + i);
    SCOPED_TRACE(text_of(config));
    expect_representatives(config);
  }
}
INSTANTIATE_TEST_SUITE_P(Slice, Representatives, testing::Range(std::uint64_t{0}, kSlices));

// Several tp ranks hold a key-value head; norms of split rows are sums over tp as well.
TEST(RepresentativesOfCopies, StandForEveryRank) {
  for (const int kv_heads : {1, 2, 4}) {
    for (const int zero_stage : {0, 1, 3}) {
      for (const bool splits_rows : {false, true}) {
        RankConfig config;
        config.model = preset("tiny-llama");
        config.model.kv_heads = kv_heads;
        config.layout.tp = 8;
        config.layout.pp = 2;
        config.layout.ranks = 48;
        config.layout.zero_stage = zero_stage;
        config.layout.sequence_parallel = splits_rows;
        config.seq_length = 16;
        config.max_micros = 2;
        SCOPED_TRACE(text_of(config));
        expect_representatives(config);
      }
    }
  }
}

}  // namespace
}  // namespace orthant
