// The contract's promises over combinations of every option of a layout on up to 8 thread ranks, of
// the processor and, where one is, sharing a GPU: losses and norms, the bits that an option may not
// change, plan and ledger to the byte.
#include <map>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/matrix/combination.h"

namespace orthant::test {
namespace {

constexpr int kSteps = 3;
constexpr std::size_t kSlices = 40;

// What a model starts from, is trained on, and must come to.
struct Subject {
  ModelConfig model;
  std::unique_ptr<ParamSource> source;
  std::vector<std::int32_t> tokens;
  std::int64_t seq_length;
  bool by_document = false;
  std::vector<double> loss, norm;  // of one rank's float64 or, for odd models, formula backend
};

// Of those that change the numbers.
struct Numerics {
  int micro_batch = 1;
  bool splits_rows = false;
  bool takes_turns = false;
  DType compute = DType::kF32;
  DType master = DType::kF32;
};

Training training_of(const Subject& subject, const Mesh3& mesh, const Numerics& numerics,
                     const std::string& ops) {
  const Case c{.model = subject.model,
               .seq_length = subject.seq_length,
               .compute = numerics.compute,
               .split_rows = numerics.splits_rows,
               .by_document = subject.by_document};
  Training training = training_of(c, mesh.tp, mesh.pp, mesh.dp, numerics.micro_batch);
  training.config.master = numerics.master;
  if (numerics.takes_turns) training.config.layout.tp_overlap = "halves";
  training.steps = kSteps;
  training.ops = ops;
  training.config.target = target_of(ops, true);
  return training;
}

Subject odd_model(const std::string& family) {
  Subject subject;
  subject.model = small(family);
  subject.model.heads = 8;
  subject.model.layers = 5;
  if (family == "gpt") subject.model.dropout = 0.1;
  if (family == "llama") subject.model.kv_heads = 2;
  complete(subject.model);
  subject.source = std::make_unique<InitSource>(5);
  subject.tokens = random_stream(subject.model.vocab);
  subject.seq_length = 16;
  subject.by_document = true;
  const Training reference = training_of(subject, {1, 1, 1}, {}, "ref");
  const Curve curve = train(reference, *subject.source, subject.tokens);
  subject.loss = curve.loss;
  subject.norm = curve.norm;
  return subject;
}

Subject fixture_model(const std::string& name) {
  const Fixture fixture(name);
  Subject subject;
  subject.model = fixture.model;
  subject.source = std::make_unique<HfSource>(fixture.model, fixture.folder);
  subject.tokens = fixture.tokens;
  subject.seq_length = 32;
  for (std::size_t i = 0; i < kSteps; ++i) {
    subject.loss.push_back(fixture.expected["loss"][i]);
    subject.norm.push_back(fixture.expected["grad_norm"][i]);
  }
  return subject;
}

const Subject& subject_of(const std::string& name) {
  static std::map<std::string, Subject> subjects;
  const auto found = subjects.find(name);
  if (found != subjects.end()) return found->second;
  return subjects
      .emplace(name, name.starts_with("odd ") ? odd_model(name.substr(4)) : fixture_model(name))
      .first->second;
}

std::vector<std::int64_t> uneven(std::int64_t blocks, std::int64_t parts) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(parts), 1);
  counts.back() += blocks - parts;
  return counts;
}

Numerics numerics_of(const Combination& c) {
  const PrecisionChoice& types = value_of(kPrecision, c, kTypes);
  return {.micro_batch = value_of(kMicroBatches, c, kMicro),
          .splits_rows = c[kRows] == 1,
          .takes_turns = takes_turns(c),
          .compute = types.compute,
          .master = types.master};
}

Training training_of(const Combination& c, const Subject& subject, const std::string& ops) {
  const Mesh3& mesh = value_of(kMeshes, c, kMesh);
  Training training = training_of(subject, mesh, numerics_of(c), ops);
  LayoutConfig& layout = training.config.layout;
  layout.schedule = value_of(kSchedules, c, kSchedule).name;
  layout.virtual_stages = value_of(kSchedules, c, kSchedule).virtual_stages;
  layout.zero_stage = value_of(kZero, c, kZeroStage).first;
  layout.zero_gather = value_of(kZero, c, kZeroStage).second;
  layout.recompute = value_of(kRecompute, c, kRecomputed).what;
  layout.recompute_blocks = value_of(kRecompute, c, kRecomputed).blocks;
  layout.split_saved_inputs = value_of(kRecompute, c, kRecomputed).splits_inputs;
  layout.offload = value_of(kOffload, c, kOffloaded).what;
  layout.offload_fraction = value_of(kOffload, c, kOffloaded).fraction;
  const std::string stages = value_of(kStages, c, kDepth);
  layout.stages = {stages, {}};
  if (stages == "list") {
    layout.stages = {"", uneven(blocks_of(c), std::int64_t{layout.pp} * layout.virtual_stages)};
  }
  return training;
}

// The plain run whose bits those of a combination must be: one stage, nothing recomputed or
// offloaded, the lower ZeRO stage of its group.
struct Plain {
  std::string model;
  int tp, dp, zero_stage;
  Numerics numerics;
  friend bool operator<(const Plain& a, const Plain& b) {
    const auto fields = [](const Plain& p) {
      return std::tie(p.model, p.tp, p.dp, p.zero_stage, p.numerics.micro_batch,
                      p.numerics.splits_rows, p.numerics.takes_turns, p.numerics.compute,
                      p.numerics.master);
    };
    return fields(a) < fields(b);
  }
};

Plain plain_of(const Combination& c) {
  const Mesh3& mesh = value_of(kMeshes, c, kMesh);
  Numerics numerics = numerics_of(c);
  numerics.splits_rows = numerics.splits_rows && mesh.tp > 1;
  const bool adds_per_micro = value_of(kZero, c, kZeroStage).first >= 2 && mesh.dp > 1 &&
                              numerics.micro_batch * mesh.dp < kBatch;
  return {.model = value_of(kModels, c, kModel),
          .tp = mesh.tp,
          .dp = mesh.dp,
          .zero_stage = adds_per_micro ? 2 : 0,
          .numerics = numerics};
}

Curve run_plain(const Plain& plain, const Subject& subject, const std::string& ops) {
  Training training = training_of(subject, {plain.tp, 1, plain.dp}, plain.numerics, ops);
  training.config.layout.zero_stage = plain.zero_stage;
  return train(training, *subject.source, subject.tokens);
}

void check(const Combination& c, const std::string& ops, std::map<Plain, Curve>& plains) {
  const Subject& subject = subject_of(value_of(kModels, c, kModel));
  const Plain plain = plain_of(c);
  if (!plains.contains(plain)) plains.emplace(plain, run_plain(plain, subject, ops));
  const Curve curve = train(training_of(c, subject, ops), *subject.source, subject.tokens);
  EXPECT_EQ(curve.memory_fault, "");
  EXPECT_EQ(curve.ledger_fault, "");
  const PrecisionChoice& types = value_of(kPrecision, c, kTypes);
  for (std::size_t i = 0; i < kSteps; ++i) {
    EXPECT_NEAR(curve.loss.at(i), subject.loss[i], types.loss_error) << "step " << i + 1;
    EXPECT_NEAR(curve.norm.at(i) / subject.norm[i], 1, types.norm_error) << "step " << i + 1;
  }
  const Curve& base = plains.at(plain);
  EXPECT_EQ(curve.loss, base.loss) << "bits of the losses";
  EXPECT_EQ(curve.norm, base.norm) << "bits of the norms";
  EXPECT_TRUE(curve.weights == base.weights) << "bits of the weights";
}

void check_slice(const std::vector<Combination>& all, std::size_t slice,
                 const std::string& ops = "cpu") {
  if (!has_fixture("gpt2-tiny")) GTEST_SKIP() << "no fixtures at " << fixture_folder("gpt2-tiny");
  std::map<Plain, Curve> plains;
  for (std::size_t i = all.size() * slice / kSlices; i < all.size() * (slice + 1) / kSlices; ++i) {
    SCOPED_TRACE(text_of(all[i]));
    try {
      check(all[i], ops, plains);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

class Matrix : public testing::TestWithParam<std::size_t> {};
TEST_P(Matrix, OfThreeHundred) {
  check_slice(sample(300), GetParam());
}
INSTANTIATE_TEST_SUITE_P(Slice, Matrix, testing::Range(std::size_t{0}, kSlices));

class CudaMatrix : public testing::TestWithParam<std::size_t> {};
TEST_P(CudaMatrix, OfThreeHundred) {
  if (gpus().empty()) GTEST_SKIP() << "no GPU is here";
  check_slice(sample(300), GetParam(), "cuda");
}
INSTANTIATE_TEST_SUITE_P(Slice, CudaMatrix, testing::Range(std::size_t{0}, kSlices));

// scripts/matrix.sh runs these.
class BigMatrix : public testing::TestWithParam<std::size_t> {};
TEST_P(BigMatrix, DISABLED_OfThreeThousand) {
  check_slice(sample(3000), GetParam());
}
INSTANTIATE_TEST_SUITE_P(Slice, BigMatrix, testing::Range(std::size_t{0}, kSlices));

TEST(Sample, HasEveryPairThatCanMeet) {
  std::set<Pair> seen;
  const std::vector<Combination> all = sample(300);
  for (const Combination& c : all) {
    const std::vector<Pair> pairs = pairs_of(c);
    seen.insert(pairs.begin(), pairs.end());
  }
  std::uint64_t counter = 1 << 24;  // others than the sample was drawn from
  for (int i = 0; i < 2000; ++i) {
    for (const Pair& pair : pairs_of(random_combination(counter))) {
      EXPECT_TRUE(seen.contains(pair)) << "option " << pair[0] << " with " << pair[2];
    }
  }
  EXPECT_EQ(all.size(), 300U);
}

}  // namespace
}  // namespace orthant::test
