// Each case of each op: the cpu and cuda backends against ref, bits of cuda against cpu and of cpu
// against the number of threads, and what meta records and plans against what others do.
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
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
  for (auto& [name, cases] : by_name) {
    result.push_back({name, std::move(cases)});
  }
  return result;
}

// Empty where the processor cannot run the backend.
std::unique_ptr<OpBed> cpu_bed(int num_threads) {
  try {
    return std::make_unique<OpBed>("cpu", num_threads);
  } catch (const Error& error) {
    if (error.fault() != Fault::kUser) throw;
    return nullptr;
  }
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
    const bool is_rounded = is_bf16 || expected.writes[i].dtype == DType::kBF16;
    expect_close(bed.on_host(actual.writes[i]), expected.writes[i], is_rounded ? kTolBF16 : kTolF32,
                 one.name + ", output " + std::to_string(i));
  }
}

TEST_P(Backends, CpuEqualsRef) {
  for (const OpCase& one : GetParam().cases) {
    const std::unique_ptr<OpBed> cpu = cpu_bed(2);
    if (cpu == nullptr) GTEST_SKIP() << "the cpu backend does not run on this processor";
    expect_equals_ref(one, *cpu);
  }
}

TEST_P(Backends, CudaEqualsRef) {
  if (gpus().empty()) GTEST_SKIP() << "no GPU is here";
  OpBed cuda("cuda");
  for (const OpCase& one : GetParam().cases) {
    cuda.reset();
    expect_equals_ref(one, cuda);
  }
}

// Ops without reductions, or with one order of additions on every backend.
bool has_fixed_bits(const std::string& name) {
  const std::array fixed = {
      "add_",   "accumulate_",       "copy_",   "zero_",      "count_non_finite_", "dropout_",
      "gelu_",  "swiglu_",           "rotary_", "embedding_", "squared_norm_",     "clip_factor",
      "adamw_", "cross_entropy_bwd_"};
  return std::any_of(fixed.begin(), fixed.end(),
                     [&](const char* start) { return name.starts_with(start); });
}

TEST_P(Backends, CudaHasTheBitsOfCpu) {
  if (gpus().empty()) GTEST_SKIP() << "no GPU is here";
  if (!has_fixed_bits(GetParam().name)) GTEST_SKIP() << "its sums have an order of their own";
  OpBed cuda("cuda");
  for (const OpCase& one : GetParam().cases) {
    const std::unique_ptr<OpBed> cpu = cpu_bed(1);
    if (cpu == nullptr) GTEST_SKIP() << "the cpu backend does not run on this processor";
    cuda.reset();
    const OpRun expected = one.prepare(*cpu);
    const OpRun actual = one.prepare(cuda);
    expected.run();
    actual.run();
    for (std::size_t i = 0; i < expected.writes.size(); ++i) {
      if (expected.writes[i].absent()) continue;
      const Tensor here = cuda.on_host(actual.writes[i]);
      EXPECT_EQ(0, std::memcmp(here.data, expected.writes[i].data,
                               static_cast<std::size_t>(here.bytes())))
          << one.name << ": output " << i << " differs\n"
          << repro_line();
    }
  }
}

TEST_P(Backends, ThreadsChangeNoBit) {
  for (const OpCase& one : GetParam().cases) {
    std::vector<std::unique_ptr<OpBed>> beds;
    std::vector<OpRun> runs;
    for (const int num_threads : {1, 2, 3}) {
      beds.push_back(cpu_bed(num_threads));
      if (beds.back() == nullptr) GTEST_SKIP() << "the cpu backend does not run on this processor";
      runs.push_back(one.prepare(*beds.back()));
      runs.back().run();
      for (std::size_t i = 0; i < runs.back().writes.size(); ++i) {
        const Tensor& first = runs.front().writes[i];
        const Tensor& other = runs.back().writes[i];
        if (first.absent()) continue;
        EXPECT_EQ(0, std::memcmp(first.data, other.data, static_cast<std::size_t>(first.bytes())))
            << one.name << ": output " << i << " differs between 1 and " << num_threads
            << " threads\n"
            << repro_line();
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
  OpBed cuda("cuda");
  OpBed meta("meta", 1, Target::kCuda);
  for (const OpCase& one : GetParam().cases) {
    cuda.reset();
    meta.reset();
    one.prepare(cuda).run();
    one.prepare(meta).run();
    EXPECT_EQ(cuda.work().peak(), meta.work().peak()) << one.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Backends, ::testing::ValuesIn(groups()),
                         [](const ::testing::TestParamInfo<Group>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace orthant
