// Without a GPU: cuDNN knows an engine for every attention that is_fused() promises.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/cuda/attention_graph.h"
#include "ops/workspace.h"

namespace orthant::cuda {
namespace {

// An H200, as cuDNN describes a GPU.
constexpr const char* kGpu = R"({"deviceName":"NVIDIA H200","deviceVer":900,"driverVer":13000,
"multiProcessorCount":132,"warpSize":32,"maxGridSize":[2147483647,65535,65535],
"maxBlockSize":[1024,1024,64],"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"maxCtasPerSM":32,
"regsPerBlock":65536,"maxRegistersPerSM":65536,"maxSharedMemoryPerBlock":49152,
"maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,
"totalGlobalMem":150754820096,"l2CacheSize":62914560,"smClockRateKHz":1980000,
"memClockRateKHz":3201000,"pciDeviceId":0,"cudaDeviceId":0,"isTccDriver":0,
"supportCoopLaunch":1})";

// cuDNN's heuristics want libcuda: the driver's, or the toolkit's stub under the same name.
bool has_driver_library() {
  return dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != nullptr ||
         dlopen(ORTHANT_CUDA_STUB, RTLD_NOW | RTLD_GLOBAL) != nullptr;
}

class Cudnn : public testing::TestWithParam<std::int64_t> {};

TEST_P(Cudnn, HasAnEngineForEveryAttention) {
  if (!has_driver_library()) GTEST_SKIP() << "no libcuda, not even " << ORTHANT_CUDA_STUB;
  const Descriptor gpu = described_gpu(kGpu);
  const std::int64_t D = GetParam();
  for (const std::int64_t G : {16, 4, 1}) {
    for (const std::int64_t S : {2, 1000}) {
      for (int kind = 0; kind < 8; ++kind) {
        const bool has_slopes = kind % 2 == 1;
        AttentionProblem problem{.B = 2,
                                 .S = S,
                                 .H = 16,
                                 .G = G,
                                 .D = D,
                                 .type = has_slopes ? DType::kF16 : DType::kBF16,
                                 .has_slopes = has_slopes,
                                 .has_positions = kind / 2 % 2 == 1,
                                 .dropout = kind / 4 == 1 ? 0.1 : 0,
                                 .is_backward = false,
                                 .is_deterministic = false};
        SCOPED_TRACE(fmt::format("S {}, slopes {}, documents {}, dropout {}", S, has_slopes,
                                 problem.has_positions, problem.dropout));
        EXPECT_TRUE(has_engine(attention_graph(problem).graph, gpu)) << "forward";
        problem.is_backward = true;
        EXPECT_TRUE(has_engine(attention_graph(problem).graph, gpu)) << "backward";
        problem.is_deterministic = true;
        EXPECT_TRUE(has_engine(attention_graph(problem).graph, gpu)) << "deterministic";
      }
    }
  }
}

// The test above could fail: a width that is_fused() refuses has none.
TEST(CudnnRefuses, OddHeadWidths) {
  if (!has_driver_library()) GTEST_SKIP() << "no libcuda, not even " << ORTHANT_CUDA_STUB;
  const AttentionProblem problem{.B = 2,
                                 .S = 128,
                                 .H = 4,
                                 .G = 4,
                                 .D = 100,
                                 .type = DType::kBF16,
                                 .has_slopes = false,
                                 .has_positions = false,
                                 .dropout = 0,
                                 .is_backward = true,
                                 .is_deterministic = false};
  EXPECT_FALSE(has_engine(attention_graph(problem).graph, described_gpu(kGpu)));
}

INSTANTIATE_TEST_SUITE_P(HeadWidths, Cudnn, testing::Values(8, 16, 64, 80, 96, 128, 256),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace orthant::cuda
