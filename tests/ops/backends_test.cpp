// Each case of each op: the cpu backend at each level of this processor and the cuda backend
// against ref, bits of cuda against cpu and of cpu against levels and the number of threads, and
// what meta records and plans against what others do.
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ops/processor.h"
#include "tests/ops/cases.h"
#include "tests/support/close.h"

namespace orthant {
namespace {

constexpr double kTolF32 = 1e-5;
constexpr double kTolBF16 = 1e-2;

// The cases of one op in one type.
struct Group {
  std::string name;  // "linear_fwd_bf16"
  OpCases cases;
};

std::vector<Group> groups() {
  std::map<std::string, OpCases> by_name;
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const std::string mark = "_" + std::string(name_of(type)) + "_";
    for (OpCase& one : op_cases(type)) {
      const std::size_t length = one.name.find(mark) + mark.size() - 1;
      by_name[one.name.substr(0, length)].push_back(std::move(one));
    }
  }
  std::vector<Group> result;
  result.reserve(by_name.size());
  for (auto& [name, cases] : by_name) {
    result.push_back({name, std::move(cases)});
  }
  return result;
}

// The cpu backend at each level of this processor; none where it does not run.
std::vector<std::string> cpu_kinds() {
  std::vector<std::string> kinds;
  for (const CpuLevel level : processor_features().levels) {
    kinds.emplace_back(ops_kind(level));
  }
  return kinds;
}

class Backends : public ::testing::TestWithParam<Group> {};

// Of what a case writes, with the outputs in memory that the test can read.
void expect_equals_ref(const OpCase& one, OpBed& bed) {
  OpBed ref("ref");
  const OpRun expected = one.prepare(ref);
  const OpRun actual = one.prepare(bed);
  expected.run();
  actual.run();
  const bool is_bf16 = one.name.find("_bf16_") != std::string::npos;
  for (std::size_t i = 0; i < expected.writes.size(); ++i) {
    if (expected.writes[i].absent()) continue;
    if (expected.writes[i].dtype == DType::kI16) {
      // Where a last bit decides how the value is rounded the remainder is another.
      const std::vector<double> masters =
          joined_masters(expected.writes[i], expected.writes.back());
      expect_close(joined_masters(bed.on_host(actual.writes[i]), bed.on_host(actual.writes.back())),
                   masters, expected.writes[i].shape, is_bf16 ? kTolBF16 : kTolF32,
                   one.name + ", masters");
      continue;
    }
    const bool is_rounded = is_bf16 || expected.writes[i].dtype == DType::kBF16;
    expect_close(bed.on_host(actual.writes[i]), expected.writes[i], is_rounded ? kTolBF16 : kTolF32,
                 one.name + ", output " + std::to_string(i));
  }
}

TEST_P(Backends, CpuEqualsRef) {
  if (cpu_kinds().empty()) GTEST_SKIP() << "the cpu backend does not run on this processor";
  for (const std::string& kind : cpu_kinds()) {
    SCOPED_TRACE(kind);
    for (const OpCase& one : GetParam().cases) {
      OpBed cpu(kind, 2);
      expect_equals_ref(one, cpu);
    }
  }
}

// Deterministic mode has other algorithms for some.
std::vector<Target> cuda_targets(const std::string& name) {
  const bool has_two = name.starts_with("attention_") || name.starts_with("linear_");
  if (!has_two) return {Target::kCuda};
  return {Target::kCuda, Target::kCudaDeterministic};
}

TEST_P(Backends, CudaEqualsRef) {
  if (gpus().empty()) GTEST_SKIP() << "no GPU is here";
  for (const Target target : cuda_targets(GetParam().name)) {
    OpBed cuda("cuda", 1, target);
    for (const OpCase& one : GetParam().cases) {
      // cuDNN has masks of its own, see cuda_dropout_test.cpp.
      const bool has_other_masks = target == Target::kCuda && one.name.starts_with("attention_") &&
                                   one.name.find("_dropout") != one.name.npos;
      if (has_other_masks) continue;
      cuda.reset();
      expect_equals_ref(one, cuda);
    }
  }
}

// Ops without reductions, or with one order of additions on every backend. With 16 bits a GPU has
// an exp of its own.
bool has_fixed_bits(const std::string& name) {
  const std::array of_f32 = {"gelu_", "swiglu_", "cross_entropy_bwd_"};
  const std::array fixed = {
      "add_",     "accumulate_", "copy_",      "zero_",         "count_non_finite_",
      "dropout_", "rotary_",     "embedding_", "squared_norm_", "clip_factor",
      "adamw_"};
  const auto starts = [&](const char* start) {
    return name.starts_with(start);
  };
  return std::any_of(fixed.begin(), fixed.end(), starts) ||
         (name.ends_with("_f32") && std::any_of(of_f32.begin(), of_f32.end(), starts));
}

// Of what a case writes on both.
void expect_same_bits(const OpCase& one, OpBed& first, OpBed& second, const std::string& between) {
  const OpRun expected = one.prepare(first);
  const OpRun actual = one.prepare(second);
  expected.run();
  actual.run();
  for (std::size_t i = 0; i < expected.writes.size(); ++i) {
    if (expected.writes[i].absent()) continue;
    const Tensor there = first.on_host(expected.writes[i]);
    const Tensor here = second.on_host(actual.writes[i]);
    EXPECT_EQ(0, std::memcmp(here.data, there.data, static_cast<std::size_t>(here.bytes())))
        << one.name << ": output " << i << " differs between " << between << "\n"
        << repro_line();
  }
}

TEST_P(Backends, CudaHasTheBitsOfCpu) {
  if (gpus().empty()) GTEST_SKIP() << "no GPU is here";
  if (!has_fixed_bits(GetParam().name)) GTEST_SKIP() << "its sums have an order of their own";
  if (cpu_kinds().empty()) GTEST_SKIP() << "the cpu backend does not run on this processor";
  OpBed cuda("cuda");
  for (const OpCase& one : GetParam().cases) {
    OpBed cpu("cpu");
    cuda.reset();
    expect_same_bits(one, cpu, cuda, "cpu and cuda");
  }
}

TEST_P(Backends, EveryLevelOfProcessorHasTheSameBits) {
  if (!has_fixed_bits(GetParam().name)) GTEST_SKIP() << "its sums have an order of their own";
  const std::vector<std::string> kinds = cpu_kinds();
  if (kinds.size() < 2) GTEST_SKIP() << "this processor has one level";
  for (const OpCase& one : GetParam().cases) {
    for (std::size_t i = 1; i < kinds.size(); ++i) {
      OpBed lowest(kinds[0]);
      OpBed other(kinds[i]);
      expect_same_bits(one, lowest, other, kinds[0] + " and " + kinds[i]);
    }
  }
}

TEST_P(Backends, ThreadsChangeNoBit) {
  if (cpu_kinds().empty()) GTEST_SKIP() << "the cpu backend does not run on this processor";
  for (const std::string& kind : cpu_kinds()) {
    for (const OpCase& one : GetParam().cases) {
      for (const int num_threads : {2, 3}) {
        OpBed single(kind, 1);
        OpBed several(kind, num_threads);
        expect_same_bits(one, single, several,
                         "1 and " + std::to_string(num_threads) + " threads of " + kind);
      }
    }
  }
}

TEST_P(Backends, MetaRecordsWhatRefRecords) {
  for (const OpCase& one : GetParam().cases) {
    OpBed ref("ref");
    OpBed meta("meta");
    one.prepare(ref).run();
    one.prepare(meta).run();
    const std::span<const Entry> expected = ref.ledger().entries();
    const std::span<const Entry> actual = meta.ledger().entries();
    ASSERT_EQ(actual.size(), expected.size()) << one.name;
    ASSERT_FALSE(expected.empty()) << one.name;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(same(actual[i], expected[i])) << one.name << ": " << expected[i].what;
      EXPECT_GT(expected[i].cost.bytes, 0) << one.name;
    }
    EXPECT_EQ(meta.work().peak(), ref.work().peak()) << one.name;
  }
}

TEST_P(Backends, CudaTakesWhatMetaPlans) {
  if (gpus().empty()) GTEST_SKIP() << "no GPU is here";
  for (const Target target : cuda_targets(GetParam().name)) {
    OpBed cuda("cuda", 1, target);
    OpBed meta("meta", 1, target);
    for (const OpCase& one : GetParam().cases) {
      cuda.reset();
      meta.reset();
      one.prepare(cuda).run();
      one.prepare(meta).run();
      EXPECT_EQ(cuda.work().peak(), meta.work().peak()) << one.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Backends, ::testing::ValuesIn(groups()),
                         [](const ::testing::TestParamInfo<Group>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace orthant
