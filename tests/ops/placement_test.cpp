// An element has the same bits wherever it lies: parts of a tensor, cut at any place, give what the
// whole gives. ZeRO cuts shards anywhere, and its stages must agree.
#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <tuple>

#include <gtest/gtest.h>

#include "ops/processor.h"
#include "tests/support/close.h"

namespace orthant {
namespace {

constexpr std::int64_t kCount = 157;
constexpr std::int64_t kCuts[] = {0, 1, 3, 8, 17, 64, 65, 100, 156, kCount};

// Ops of the cpu backend on a whole and on its parts.
class Placement : public ::testing::TestWithParam<std::tuple<CpuLevel, DType>> {
 protected:
  void SetUp() override {
    const std::vector<CpuLevel> levels = processor_features().levels;
    const CpuLevel level = std::get<CpuLevel>(GetParam());
    if (std::find(levels.begin(), levels.end(), level) == levels.end()) {
      GTEST_SKIP() << "this processor lacks what " << ops_kind(level) << " needs";
    }
    bed_.emplace(ops_kind(level), 2);
  }

  static DType type() { return std::get<DType>(GetParam()); }

  // `run` computes elements first .. first+count-1 of `out`.
  void expect_same_bits(const Tensor& out,
                        const std::function<void(std::int64_t, std::int64_t)>& run) {
    run(0, kCount);
    const auto size = static_cast<std::size_t>(out.bytes());
    const std::vector<std::byte> whole(out.data, out.data + size);
    std::memset(out.data, 0xff, size);
    for (std::size_t i = 0; i + 1 < std::size(kCuts); ++i) {
      run(kCuts[i], kCuts[i + 1] - kCuts[i]);
    }
    EXPECT_EQ(0, std::memcmp(out.data, whole.data(), size)) << repro_line();
  }

  // From moments of zero.
  void run_first_adam(const Tensor& master, const Tensor& m, const Tensor& v, const Tensor& value,
                      const Tensor& grad, const Tensor& state) {
    bed().run(Zero{.y = m});
    bed().run(Zero{.y = v});
    bed().run(AdamW{.master = master,
                    .m = m,
                    .v = v,
                    .value = value,
                    .grad = grad,
                    .step_state = state,
                    .beta1 = 0.9,
                    .beta2 = 0.95,
                    .eps = 1e-8,
                    .weight_decay = 0.1});
  }

  OpBed& bed() { return *bed_; }

 private:
  std::optional<OpBed> bed_;
};

Tensor row(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  return tensor.flat(first, count).as({1, count});
}

TEST_P(Placement, Gelu) {
  const Tensor x = bed().normal("x", {kCount}, type(), 3);
  const Tensor dy = bed().normal("dy", {kCount}, type());
  const Tensor y = bed().out({kCount}, type());
  expect_same_bits(y, [&](std::int64_t first, std::int64_t count) {
    bed().run(GeluFwd{.y = row(y, first, count), .x = row(x, first, count)});
  });
  expect_same_bits(y, [&](std::int64_t first, std::int64_t count) {
    bed().run(GeluBwd{
        .dx = row(y, first, count), .dy = row(dy, first, count), .x = row(x, first, count)});
  });
}

TEST_P(Placement, AddAndCopy) {
  const Tensor a = bed().normal("a", {kCount}, type());
  const Tensor b = bed().normal("b", {kCount}, type());
  const Tensor y = bed().out({kCount}, type());
  expect_same_bits(y, [&](std::int64_t first, std::int64_t count) {
    bed().run(Add{.y = y.flat(first, count), .a = a.flat(first, count), .b = b.flat(first, count)});
  });
  const Tensor other = bed().out({kCount}, type() == DType::kF32 ? DType::kBF16 : DType::kF32);
  expect_same_bits(other, [&](std::int64_t first, std::int64_t count) {
    bed().run(Copy{.y = other.flat(first, count), .x = a.flat(first, count)});
  });
}

TEST_P(Placement, Swiglu) {
  // Columns f and F + f of each row belong together; a part is a copy of its columns.
  const Tensor x = bed().normal("gate_up", {2, kCount}, type(), 3);
  const Tensor y = bed().out({kCount}, type());
  expect_same_bits(y, [&](std::int64_t first, std::int64_t count) {
    const Tensor gate_up = bed().zeros({1, 2 * count}, type());
    for (const std::int64_t half : {0, 1}) {
      const Tensor from = x.rows(half, 1).as({kCount}).flat(first, count);
      std::memcpy(gate_up.as({2, count}).rows(half, 1).data, from.data,
                  static_cast<std::size_t>(from.bytes()));
    }
    bed().run(SwigluFwd{.y = row(y, first, count), .gate_up = gate_up});
  });
}

TEST_P(Placement, AdamW) {
  const DType type = Placement::type();
  const Tensor start = bed().normal("master", {kCount}, DType::kF32);
  const Tensor master = bed().out({kCount}, DType::kF32);
  const Tensor m = bed().out({kCount}, DType::kF32);
  const Tensor v = bed().out({kCount}, DType::kF32);
  const Tensor grad = bed().normal("grad", {kCount}, DType::kF32);
  const Tensor value = type == DType::kF32 ? Tensor{} : bed().out({kCount}, type);
  const Tensor state = bed().step_state({.lr = 1e-2, .clip_factor = 0.7, .skip = 0, .updates = 3});
  for (const Tensor& out : {master, m, v, value}) {
    if (out.absent()) continue;
    expect_same_bits(out, [&](std::int64_t first, std::int64_t count) {
      const auto part = [&](const Tensor& tensor) {
        return tensor.absent() ? tensor : tensor.flat(first, count);
      };
      bed().run(Copy{.y = part(master), .x = part(start)});
      run_first_adam(part(master), part(m), part(v), part(value), part(grad), state);
    });
  }
}

TEST_P(Placement, AdamWOfSplitMasters) {
  if (type() != DType::kBF16) GTEST_SKIP() << "masters are split beside values in bf16";
  const Tensor grad = bed().normal("grad", {kCount}, DType::kF32);
  const Tensor first_value = bed().normal("master", {kCount}, DType::kBF16);
  const Tensor first_master = bed().whole("remainder", {kCount}, DType::kI16, -0x8000, 0x7fff);
  const Tensor value = bed().out({kCount}, DType::kBF16);
  const Tensor master = bed().out({kCount}, DType::kI16);
  const Tensor m = bed().out({kCount}, DType::kF32);
  const Tensor v = bed().out({kCount}, DType::kF32);
  const Tensor state = bed().step_state({.lr = 1e-2, .clip_factor = 0.7, .skip = 0, .updates = 3});
  const auto copy = [](const Tensor& to, const Tensor& from) {
    std::memcpy(to.data, from.data, static_cast<std::size_t>(from.bytes()));
  };
  for (const Tensor& out : {master, value}) {
    expect_same_bits(out, [&](std::int64_t first, std::int64_t count) {
      const auto part = [&](const Tensor& tensor) {
        return tensor.flat(first, count);
      };
      copy(part(master), part(first_master));
      copy(part(value), part(first_value));
      run_first_adam(part(master), part(m), part(v), part(value), part(grad), state);
    });
  }
}

// A row of a norm does not depend on the rows beside it: sequence parallelism cuts between rows.
TEST_P(Placement, RowsOfNorm) {
  const std::int64_t C = 33;
  const DType type = Placement::type();
  const Tensor x = bed().normal("x", {kCount, C}, type);
  const Tensor w = bed().normal("w", {C}, type);
  const Tensor b = bed().normal("b", {C}, type);
  const Tensor y = bed().out({kCount, C}, type);
  const Tensor mean = bed().out({kCount}, DType::kF32);
  const Tensor rstd = bed().out({kCount}, DType::kF32);
  expect_same_bits(y, [&](std::int64_t first, std::int64_t count) {
    bed().run(NormFwd{.y = y.rows(first, count),
                      .sum = {},
                      .mean = mean.rows(first, count),
                      .rstd = rstd.rows(first, count),
                      .x = x.rows(first, count),
                      .addend = {},
                      .w = w,
                      .b = b,
                      .kind = NormKind::kLayerNorm,
                      .eps = 1e-5});
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, Placement,
                         ::testing::Combine(::testing::Values(CpuLevel::kAvx2, CpuLevel::kAvx512),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         [](const ::testing::TestParamInfo<std::tuple<CpuLevel, DType>>& info) {
                           std::string name(ops_kind(std::get<CpuLevel>(info.param)));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + "_" + std::string(name_of(std::get<DType>(info.param)));
                         });

}  // namespace
}  // namespace orthant
