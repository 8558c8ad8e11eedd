// Matrix products on a GPU whose algorithms are kept: what was timed once is not timed again, and
// has the same bits.
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "mem/arena.h"
#include "mem/device.h"
#include "mem/gpus.h"
#include "mem/in_flight.h"
#include "ops/cuda/products.h"
#include "ops/workspace.h"

namespace orthant::cuda {
namespace {

// [m,k] by [k,n] in bf16, as linear layers ask for: forward with a bias, and a weight's gradient
// that is added up in f32.
struct Size {
  std::int64_t m, n, k;
};
constexpr Size kSizes[] = {{16, 1024, 4096}, {2048, 768, 3072}, {1000, 520, 264}};

class CudaProducts : public testing::Test {
 protected:
  void SetUp() override {
    if (num_gpus() == 0) GTEST_SKIP() << "no GPU is here";
    device_ = make_device("cuda", 0);
    memory_.emplace(*device_, in_flight_, "products", std::int64_t{1} << 28);
  }

  cudaStream_t stream() const { return static_cast<cudaStream_t>(device_->queue()); }

  Tensor normals(const Shape& shape, DType dtype, std::uint64_t stream) {
    const Tensor tensor = memory_->alloc(shape, dtype, MemClass::kWork);
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
    for (std::int64_t i = 0; i < tensor.count(); ++i) {
      const auto value =
          static_cast<float>(normal(20240229, stream, static_cast<std::uint64_t>(i)));
      if (dtype == DType::kF32) {
        reinterpret_cast<float*>(bytes.data())[i] = value;
      } else {
        reinterpret_cast<BFloat16*>(bytes.data())[i] = BFloat16(value);
      }
    }
    device_->to_device(tensor, bytes);
    return tensor;
  }

  // The bits of the products of all sizes, and how many problems were timed for them.
  struct Outcome {
    std::vector<std::vector<std::byte>> bits;
    std::int64_t num_timed = 0;
  };
  Outcome multiply(Algorithms* algorithms, bool is_deterministic = false) {
    Products products(stream(), is_deterministic, algorithms);
    Outcome outcome;
    for (const auto& [m, n, k] : kSizes) {
      const Frame frame(*memory_);
      const Tensor workspace = memory_->alloc({kProductBytes}, DType::kU8, MemClass::kWork);
      const Tensor x = normals({m, k}, DType::kBF16, 1);
      const Tensor w = normals({n, k}, DType::kBF16, 2);
      const Product forward = {.d = normals({m, n}, DType::kBF16, 3),
                               .a = x,
                               .b = w,
                               .bias = normals({n}, DType::kBF16, 4),
                               .transposes_b = true};
      const Product gradient = {.d = normals({n, k}, DType::kF32, 5),
                                .a = normals({m, n}, DType::kBF16, 6),
                                .b = x,
                                .bias = {},
                                .transposes_a = true,
                                .adds = true};
      for (const Product& product : {forward, gradient}) {
        products.run(product, workspace);
        std::vector<std::byte>& bits = outcome.bits.emplace_back();
        bits.resize(static_cast<std::size_t>(product.d.bytes()));
        device_->to_host(bits, product.d);
      }
    }
    outcome.num_timed = products.num_timed();
    return outcome;
  }

  InFlight in_flight_;
  std::unique_ptr<Device> device_;
  std::optional<Arena> memory_;
};

TEST_F(CudaProducts, WhatIsKeptIsNotTimedAgainAndHasTheSameBits) {
  Algorithms first;
  const Outcome timed = multiply(&first);
  ASSERT_GT(timed.num_timed, 0);
  const AlgorithmTable chosen = first.news();
  ASSERT_EQ(chosen.size(), 1U);
  EXPECT_EQ(static_cast<std::int64_t>(chosen.begin()->second.size()), timed.num_timed);
  Algorithms second;
  second.learn(parse_algorithms(algorithms_text(chosen), "algorithms.json"));
  const Outcome kept = multiply(&second);
  EXPECT_EQ(kept.num_timed, 0);
  EXPECT_EQ(kept.bits, timed.bits);
  EXPECT_EQ(second.news(), chosen);
}

TEST_F(CudaProducts, WhatIsOfAnotherLibraryIsTimed) {
  Algorithms first;
  const Outcome timed = multiply(&first);
  AlgorithmTable other;
  for (const auto& [place, products] : first.news()) {
    AlgorithmPlace elsewhere = place;
    ++elsewhere.cublaslt;
    other[elsewhere] = products;
  }
  Algorithms second;
  second.learn(other);
  EXPECT_EQ(multiply(&second).num_timed, timed.num_timed);
  EXPECT_EQ(second.news().size(), 2U);
}

TEST_F(CudaProducts, WhatCannotRunIsTimedAgain) {
  Algorithms first;
  const Outcome timed = multiply(&first);
  AlgorithmTable wrong = first.news();
  for (auto& [place, products] : wrong) {
    for (auto& [problem, chosen] : products) {
      chosen.words.fill(~std::uint64_t{0});
    }
  }
  Algorithms second;
  second.settle(wrong);
  EXPECT_EQ(multiply(&second).num_timed, timed.num_timed);
  ASSERT_EQ(second.news().size(), 1U);
  EXPECT_EQ(second.news().begin()->second.size(), first.news().begin()->second.size());
  EXPECT_TRUE(second.settled().empty());
}

// As when another rank's choice counts: plans that were made before are made anew.
TEST_F(CudaProducts, WhatIsSettledIsTaken) {
  Algorithms algorithms;
  Products products(stream(), false, &algorithms);
  const Product product = {.d = normals({2048, 768}, DType::kBF16, 1),
                           .a = normals({2048, 3072}, DType::kBF16, 2),
                           .b = normals({3072, 768}, DType::kBF16, 3),
                           .bias = {}};
  const Tensor workspace = memory_->alloc({kProductBytes}, DType::kU8, MemClass::kWork);
  products.run(product, workspace);
  ASSERT_EQ(products.num_timed(), 1);
  AlgorithmTable wrong = algorithms.news();
  wrong.begin()->second.begin()->second.words.fill(~std::uint64_t{0});
  algorithms.settle(wrong);
  products.run(product, workspace);
  EXPECT_EQ(products.num_timed(), 2);
  products.run(product, workspace);
  EXPECT_EQ(products.num_timed(), 2);
}

TEST_F(CudaProducts, ThatAreDeterministicKeepNothing) {
  Algorithms algorithms;
  EXPECT_EQ(multiply(&algorithms, true).num_timed, 0);
  EXPECT_TRUE(algorithms.news().empty());
}

// Of [m,n] with k in between.
TEST_F(CudaProducts, HaveGeluInsideUnlessBitsCountOrRowsAreOdd) {
  constexpr std::int64_t kM = 128;
  constexpr std::int64_t kK = 64;
  for (const bool is_deterministic : {false, true}) {
    Products products(stream(), is_deterministic, nullptr);
    for (const std::int64_t n : {256, 257}) {
      const Frame frame(*memory_);
      const Tensor workspace = memory_->alloc({kProductBytes}, DType::kU8, MemClass::kWork);
      Product product = {.d = normals({kM, n}, DType::kBF16, 1),
                         .a = normals({kM, kK}, DType::kBF16, 2),
                         .b = normals({kK, n}, DType::kBF16, 3),
                         .bias = {},
                         .gelu = ProductGelu::kGradient,
                         .gelu_x = normals({kM, n}, DType::kBF16, 4)};
      EXPECT_EQ(products.run_with_gelu(product, workspace), !is_deterministic && n % 8 == 0) << n;
      product.gelu = ProductGelu::kForward;
      EXPECT_EQ(products.run_with_gelu(product, workspace), !is_deterministic && n % 8 == 0) << n;
    }
  }
}

}  // namespace
}  // namespace orthant::cuda
