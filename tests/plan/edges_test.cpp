// Overlap that cannot race: a step's starts and waits are edges between the lanes of its ledger,
// and each is needed. A wait that is left out is found by what it protected; half a call, or a call
// of one rank alone, is named by the plan.
#include <map>

#include <gtest/gtest.h>

#include "base/check.h"
#include "plan/match.h"

namespace orthant {
namespace {

// The n-th wait of a rank, which is left out: its call owns its memory for ever.
class Cut {
 public:
  explicit Cut(int number) : number_(number) {}
  void pass(InFlight& in_flight, const Tensor& read, const Tensor& written, std::string_view what) {
    if (seen_++ != number_) return;
    what_ = what;
    in_flight.own_read(kForEver, read, what);
    in_flight.own_written(kForEver, written, what);
  }
  int seen() const { return seen_; }
  std::string_view what() const { return what_; }

 private:
  static constexpr Token kForEver = {std::int64_t{1} << 60};
  int number_;
  int seen_ = 0;
  std::string_view what_;
};

// Groups without peers, as in a dry run.
class CutCommunicator final : public Communicator {
 public:
  CutCommunicator(std::string name, std::vector<int> members, int rank, int lane,
                  const CommParts& parts, Cut& cut)
      : Communicator(std::move(name), std::move(members), rank, lane, parts),
        cut_(cut) {}

  std::unique_ptr<Communicator> subgroup(std::string name, std::vector<int> members,
                                         int lane) override {
    const int position = position_of(members);
    return std::make_unique<CutCommunicator>(std::move(name), std::move(members), position, lane,
                                             parts(), cut_);
  }

 private:
  void do_start(const Call& /*call*/, Token /*token*/) override {}
  void do_wait(const Call& call, Token /*token*/) override {
    const Tensor read = reads_in(call.kind) ? call.in : Tensor{};
    const Tensor written = writes_out(call.kind) ? call.out : Tensor{};
    cut_.pass(parts().in_flight, read, written, name_of(call.kind));
  }
  Cut& cut_;
};

// Copies to and from the host.
class CutDevice final : public Device {
 public:
  explicit CutDevice(Cut& cut) : cut_(cut) {}
  void of(InFlight& in_flight) { in_flight_ = &in_flight; }

  std::byte* reserve(std::int64_t bytes) override { return meta_->reserve(bytes); }
  void release(std::byte* data, std::int64_t bytes) noexcept override {
    meta_->release(data, bytes);
  }
  void to_device(const Tensor& /*to*/, std::span<const std::byte> /*from*/) override {}
  void to_host(std::span<std::byte> /*to*/, const Tensor& /*from*/) override {}
  std::int64_t start_copy(Lane /*lane*/, const Tensor& to, const Tensor& from) override {
    copies_[++last_] = {from, to};
    return last_;
  }
  std::int64_t start_work(Lane /*lane*/, LaneWork& /*work*/) override { return ++last_; }
  void order(Lane later, Lane /*lane*/, std::int64_t number) override {
    const auto copy = copies_.find(number);
    if (later != Lane::kCompute || copy == copies_.end()) return;
    cut_.pass(*in_flight_, copy->second.first, copy->second.second, "copy");
  }
  void drain() noexcept override {}

 private:
  Cut& cut_;
  InFlight* in_flight_ = nullptr;
  std::unique_ptr<Device> meta_ = make_meta_device();
  std::map<std::int64_t, std::pair<Tensor, Tensor>> copies_;
  std::int64_t last_ = 0;
};

// Two steps; what a step leaves open, the next one may touch. Returns the waits of the first.
int run_two_steps(const RankConfig& config, int number, Cut& cut) {
  CutDevice device(cut);
  std::vector<int> world(static_cast<std::size_t>(config.layout.ranks));
  for (std::size_t i = 0; i < world.size(); ++i) {
    world[i] = static_cast<int>(i);
  }
  Rank rank(config,
            {.device = device,
             .ops = "meta",
             .join_world =
                 [&](const CommParts& parts) {
                   device.of(parts.in_flight);
                   return std::make_unique<CutCommunicator>("world", world, number, 0, parts, cut);
                 }},
            std::nullopt);
  rank.step(1, 0.0, {}, config.max_micros);
  const int waits = cut.seen();
  rank.step(2, 0.0, {}, config.max_micros);
  return waits;
}

struct Layout {
  const char* name;
  const char* preset;
  int tp, pp, dp;
  void (*change)(LayoutConfig& layout);
};

const Layout kLayouts[] = {
    {"Zero1", "tiny-gpt", 2, 2, 2,
     [](LayoutConfig&) {
     }},
    {"GroupedHeadsOnSplitRows", "tiny-llama", 8, 2, 2,
     [](LayoutConfig& l) {
       l.sequence_parallel = true;
       l.schedule = "zero_bubble";
       l.zero_stage = 2;
       l.recompute = "cheap";
     }},
    {"Zero3Interleaved", "tiny-bloom", 1, 2, 3,
     [](LayoutConfig& l) {
       l.schedule = "interleaved";
       l.virtual_stages = 2;
       l.zero_stage = 3;
     }},
    {"StashOffload", "tiny-llama", 2, 2, 1,
     [](LayoutConfig& l) {
       l.schedule = "zero_bubble_v";
       l.virtual_stages = 2;
       l.offload = "stash";
     }},
    {"OptimizerOffload", "tiny-gpt", 1, 1, 4,
     [](LayoutConfig& l) {
       l.zero_stage = 3;
       l.zero_gather = "step";
       l.offload = "optimizer";
       l.offload_fraction = 0.7;
     }},
    {"SplitSavedInputs", "tiny-gpt", 4, 1, 2,
     [](LayoutConfig& l) {
       l.recompute = "block";
       l.split_saved_inputs = true;
       l.offload = "optimizer";
     }},
};

RankConfig config_of(const Layout& layout) {
  RankConfig config;
  config.model = preset(layout.preset);
  config.layout.tp = layout.tp;
  config.layout.pp = layout.pp;
  config.layout.ranks = layout.tp * layout.pp * layout.dp;
  layout.change(config.layout);
  config.seq_length = 16;
  config.max_micros = 3;
  return config;
}

class Edges : public testing::TestWithParam<Layout> {
 protected:
  RankConfig config_ = config_of(GetParam());
};

TEST_P(Edges, EveryWaitThatIsLeftOutIsFound) {
  for (const int rank : {0, config_.layout.ranks - 1}) {
    Cut none(-1);
    const int waits = run_two_steps(config_, rank, none);
    ASSERT_GT(waits, 10);
    for (int number = 0; number < waits; ++number) {
      Cut cut(number);
      try {
        run_two_steps(config_, rank, cut);
        FAIL() << "nothing missed wait " << number << " of " << waits << ", of a " << cut.what();
      } catch (const Error& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find(cut.what()), std::string::npos) << text;
        EXPECT_NE(text.find("still owns; wait for that call first"), std::string::npos) << text;
      }
    }
  }
}

TEST_P(Edges, EveryHalfOfACallThatIsLeftOutIsNamed) {
  const DryRun run = dry_run(config_, 0, 0);
  for (std::size_t i = 0; i < run.step.size(); ++i) {
    const Entry& entry = run.step[i];
    if (entry.starts.done() && entry.waits_for.done()) continue;
    std::vector<Entry> rest = run.step;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
    ProgramTables tables;
    try {
      make_program(rest, tables);
      FAIL() << "nobody misses entry " << i << ", " << entry.what;
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(entry.what), std::string::npos) << text;
      EXPECT_NE(text.find(entry.starts.done() ? "is never waited for" : "was not started"),
                std::string::npos)
          << text;
    }
  }
}

TEST_P(Edges, EveryCallOfOneRankThatIsLeftOutIsNamed) {
  const int edited = config_.layout.ranks - 1;
  DryWorld dry = dry_world(config_, 0);
  World& world = dry.world;
  const DryRun run = dry_run(config_, edited, 0);
  world.kind_of.back() = static_cast<int>(world.kinds.size());
  world.kinds.emplace_back();
  for (const Entry& entry : run.step) {
    if (entry.starts.done() || entry.lane < Lane::kFirstComm) continue;
    std::vector<Entry> rest = run.step;
    std::erase_if(rest, [&entry](const Entry& other) {
      return other.starts == entry.starts || other.waits_for == entry.starts;
    });
    world.kinds.back() = make_program(rest, world.tables);
    const MatchResult result = match(world);
    ASSERT_FALSE(result.mismatches.empty()) << entry.what << " at " << entry.where;
    const Mismatch& first = result.mismatches.front();
    EXPECT_EQ(first.rank, edited) << first.what;
    EXPECT_NE(first.what.find(fmt::format("rank {} lacks", edited)), std::string::npos)
        << first.what;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Edges, testing::ValuesIn(kLayouts),
                         [](const testing::TestParamInfo<Layout>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace orthant
