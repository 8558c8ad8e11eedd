// Every implementation of the cpu backend's matrix products that this processor can run, whichever
// it prefers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/onednn_products.h"
#include "ops/processor.h"

namespace orthant {
namespace {

using cpu::Into;
using cpu::Matrix;
using cpu::Product;
using cpu::Products;

using MakeProducts = std::unique_ptr<Products> (*)(int num_threads);
template <cpu::GemmForm (*form)()>
std::unique_ptr<Products> own(int num_threads) {
  return std::make_unique<cpu::Gemm>(form(), num_threads);
}
std::unique_ptr<Products> onednn(int num_threads) {
  return std::make_unique<cpu::OneDnnProducts>(num_threads);
}

struct Kind {
  const char* name;
  CpuLevel level;  // that it needs
  bool multiplies_f32;
  MakeProducts make;
};

struct Case {
  std::int64_t M, N, K;
  bool a_transposed, b_transposed;
  DType in, out;
  bool has_bias;
  Into into;
};

std::string name_of_case(const Case& c) {
  return std::to_string(c.M) + "x" + std::to_string(c.N) + "x" + std::to_string(c.K) +
         (c.a_transposed ? " ta " : " ") + (c.b_transposed ? "tb " : "") +
         std::string(name_of(c.in)) + " to " + std::string(name_of(c.out)) +
         (c.has_bias ? " bias" : "") + (c.into == Into::kAdd ? " add" : "");
}

// What linear layers ask for, at odd sizes and around the tiles: forward, input and weight.
std::vector<Case> cases(const Kind& kind) {
  struct Size {
    std::int64_t M, N, K;
  };
  std::vector<Case> all;
  for (const auto& [M, N, K] : {Size{1, 1, 1}, Size{7, 5, 13}, Size{33, 17, 31}, Size{65, 67, 130},
                                Size{64, 256, 64}, Size{257, 260, 33}, Size{40, 270, 1030}}) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      if (type == DType::kF32 && !kind.multiplies_f32) continue;
      all.push_back({M, N, K, false, true, type, type, true, Into::kSet});
      all.push_back({M, N, K, false, true, type, type, false, Into::kSet});
      all.push_back({M, N, K, false, false, type, type, false, Into::kSet});
      all.push_back({M, N, K, true, false, type, DType::kF32, false, Into::kAdd});
    }
  }
  return all;
}

// A matrix in memory whose rows have some elements more than the product uses.
struct Values {
  Values(std::int64_t rows, std::int64_t columns, DType type, std::uint64_t stream)
      : dtype(type),
        stride(columns + 3),
        bytes(static_cast<std::size_t>(rows * stride * size_of(type))) {
    for (std::int64_t i = 0; i < rows * stride; ++i) {
      set(i, static_cast<float>(normal(20240229, stream, static_cast<std::uint64_t>(i))));
    }
  }
  void set(std::int64_t at, float value) {
    if (dtype == DType::kF32) {
      reinterpret_cast<float*>(bytes.data())[at] = value;
    } else {
      reinterpret_cast<BFloat16*>(bytes.data())[at] = BFloat16(value);
    }
  }
  double get(std::int64_t row, std::int64_t column) const {
    const std::int64_t at = row * stride + column;
    if (dtype == DType::kF32) return reinterpret_cast<const float*>(bytes.data())[at];
    return static_cast<float>(reinterpret_cast<const BFloat16*>(bytes.data())[at]);
  }

  DType dtype;
  std::int64_t stride;
  std::vector<std::byte> bytes;
};

struct Operands {
  explicit Operands(const Case& c)
      : a(c.a_transposed ? c.K : c.M, c.a_transposed ? c.M : c.K, c.in, 1),
        b(c.b_transposed ? c.N : c.K, c.b_transposed ? c.K : c.N, c.in, 2),
        bias(1, c.N, c.in, 3),
        c(c.M, c.N, c.out, 4) {}
  Product product(const Case& of) {
    return {.M = of.M,
            .N = of.N,
            .K = of.K,
            .a = {a.bytes.data(), of.in, a.stride, of.a_transposed},
            .b = {b.bytes.data(), of.in, b.stride, of.b_transposed},
            .c = c.bytes.data(),
            .c_type = of.out,
            .c_stride = c.stride,
            .bias = of.has_bias ? bias.bytes.data() : nullptr,
            .into = of.into};
  }
  Values a, b, bias, c;
};

void expect_right(const Case& c, const Operands& before, const Operands& after) {
  for (std::int64_t i = 0; i < c.M; ++i) {
    for (std::int64_t j = 0; j < c.N; ++j) {
      double sum = c.into == Into::kAdd ? before.c.get(i, j) : 0;
      if (c.has_bias) sum += before.bias.get(0, j);
      for (std::int64_t k = 0; k < c.K; ++k) {
        sum += (c.a_transposed ? before.a.get(k, i) : before.a.get(i, k)) *
               (c.b_transposed ? before.b.get(j, k) : before.b.get(k, j));
      }
      const double tolerance = c.out == DType::kBF16 ? 0x1p-8 * std::abs(sum) : 0;
      ASSERT_NEAR(after.c.get(i, j), sum, tolerance + 2e-6 * std::sqrt(c.K) + 1e-6 * std::abs(sum))
          << name_of_case(c) << " at " << i << ", " << j;
    }
  }
  for (std::int64_t i = 0; i < c.M; ++i) {
    for (std::int64_t j = c.N; j < after.c.stride; ++j) {
      ASSERT_EQ(after.c.get(i, j), before.c.get(i, j)) << name_of_case(c) << ": written outside";
    }
  }
}

class ProductsTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    const std::vector<CpuLevel> levels = processor_features().levels;
    if (std::find(levels.begin(), levels.end(), GetParam().level) == levels.end()) {
      GTEST_SKIP() << "this processor lacks what " << ops_kind(GetParam().level) << " needs";
    }
  }
};

TEST_P(ProductsTest, EqualSumsInDouble) {
  const std::unique_ptr<Products> products = GetParam().make(2);
  for (const Case& c : cases(GetParam())) {
    const Operands before(c);
    Operands after(c);
    products->run(after.product(c));
    expect_right(c, before, after);
  }
}

TEST_P(ProductsTest, ThreadsAndRepeatsChangeNoBit) {
  for (const Case& c : cases(GetParam())) {
    Operands first(c);
    GetParam().make(1)->run(first.product(c));
    for (const int num_threads : {2, 3}) {
      const std::unique_ptr<Products> products = GetParam().make(num_threads);
      for (int repeat = 0; repeat < 2; ++repeat) {
        Operands other(c);
        products->run(other.product(c));
        EXPECT_EQ(0, std::memcmp(first.c.bytes.data(), other.c.bytes.data(), first.c.bytes.size()))
            << name_of_case(c) << ", " << num_threads << " threads, run " << repeat;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ops, ProductsTest,
    ::testing::Values(Kind{"own_avx2", CpuLevel::kAvx2, true, own<cpu::avx2::gemm_form>},
                      Kind{"own_avx512", CpuLevel::kAvx512, true, own<cpu::avx512::gemm_form>},
                      Kind{"own_amx", CpuLevel::kAmx, false, own<cpu::amx::gemm_form>},
                      Kind{"onednn", CpuLevel::kAvx2, true, onednn}),
    [](const ::testing::TestParamInfo<Kind>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace orthant
