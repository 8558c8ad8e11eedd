#include "ops/cuda/attention.h"

#include <limits>
#include <map>
#include <vector>

#include "base/check.h"
#include "mem/cuda_check.h"
#include "ops/cuda/attention_graph.h"
#include "ops/cuda/attention_seed.h"
#include "ops/cuda/cudnn_graph.h"

namespace orthant::cuda {
namespace {

std::int64_t rounded_up(std::int64_t bytes) {
  constexpr std::int64_t kAlign = 256;
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

// The pointers of one call by AttentionTensor.
class Pointers {
 public:
  void set(AttentionTensor tensor, const void* at) {
    // The interface takes pointers to what it only reads without saying so.
    at_[static_cast<std::size_t>(tensor)] = const_cast<void*>(at);
  }
  void* get(AttentionTensor tensor) const { return at_[static_cast<std::size_t>(tensor)]; }

  // Of a row's first query, key and value head.
  void set_heads(const AttentionShape& n, const Tensor& qkv,
                 const std::array<AttentionTensor, 3>& tensors) {
    const std::int64_t head = n.D * size_of(qkv.dtype);
    set(tensors[0], qkv.data);
    set(tensors[1], qkv.data + n.H * head);
    set(tensors[2], qkv.data + (n.H + n.G) * head);
  }

 private:
  std::array<void*, static_cast<std::size_t>(AttentionTensor::kKeptInverse) + 1> at_{};
};

template <class Op>
AttentionProblem forward_problem(const Op& a) {
  const AttentionShape& n = a.shape;
  return {.B = n.B,
          .S = n.S,
          .H = n.H,
          .G = n.G,
          .D = n.D,
          .type = a.qkv.dtype,
          .has_slopes = a.slopes.present(),
          .has_positions = a.positions.present(),
          .dropout = n.dropout,
          .is_backward = false,
          .is_deterministic = false};
}

// Out of rows of all heads into rows of their own.
void copy_keys(cudaStream_t stream, const AttentionShape& n, const Tensor& qkv, std::byte* keys) {
  const auto head = static_cast<std::size_t>(n.D * size_of(qkv.dtype));
  const std::size_t width = static_cast<std::size_t>(n.G) * head;
  const std::size_t row = static_cast<std::size_t>(n.H + 2 * n.G) * head;
  const std::byte* from = qkv.data + static_cast<std::size_t>(n.H) * head;
  ORTHANT_CUDA(cudaMemcpy2DAsync(keys, width, from, row, width, static_cast<std::size_t>(n.B * n.S),
                                 cudaMemcpyDeviceToDevice, stream));
}

// At the beginning of a workspace, where there is dropout.
template <class Op>
void give_seed(cudaStream_t stream, const Op& a, const Tensor& workspace, Pointers& pointers) {
  if (a.shape.dropout == 0) return;
  auto* const seed = workspace.ptr<AttentionSeed>();
  write_attention_seed(stream, a.shape, a.sample_ids, a.step_state, seed);
  pointers.set(AttentionTensor::kSeed, &seed->seed);
  pointers.set(AttentionTensor::kOffset, &seed->offset);
}

}  // namespace

struct FusedAttention::Library {
  struct Plan {
    std::vector<AttentionTensor> tensors;
    Descriptor plan;
    std::int64_t bytes = 0;  // cuDNN's own workspace
  };

  explicit Library(cudaStream_t stream) {
    check_cudnn(cudnnCreate(&handle), "cudnnCreate");
    check_cudnn(cudnnSetStream(handle, stream), "cudnnSetStream");
    gpu = this_gpu();
  }
  ~Library() { cudnnDestroy(handle); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const Plan& plan_of(const AttentionProblem& problem) {
    const auto at = plans.find(problem);
    if (at != plans.end()) return at->second;
    AttentionGraph graph = attention_graph(problem);
    Plan plan{.tensors = std::move(graph.tensors), .plan = best_plan(graph.graph, gpu), .bytes = 0};
    plan.bytes = plan_workspace_bytes(plan.plan);
    return plans.emplace(problem, std::move(plan)).first->second;
  }

  void run(const Plan& plan, Pointers& pointers, const AttentionShape& n, void* workspace) const {
    const auto scale = static_cast<float>(n.scale);
    const float minus_infinity = -std::numeric_limits<float>::infinity();
    const auto kept = static_cast<float>(1 - n.dropout);
    const auto kept_inverse = static_cast<float>(1 / (1 - n.dropout));
    pointers.set(AttentionTensor::kScale, &scale);
    pointers.set(AttentionTensor::kNegativeInfinity, &minus_infinity);
    pointers.set(AttentionTensor::kKept, &kept);
    pointers.set(AttentionTensor::kKeptInverse, &kept_inverse);
    Dims names;
    std::vector<void*> addresses;
    for (const AttentionTensor tensor : plan.tensors) {
      names.push_back(static_cast<std::int64_t>(tensor));
      addresses.push_back(pointers.get(tensor));
    }
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, names)
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             static_cast<std::int64_t>(addresses.size()), addresses.data())
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)
        .finish();
    check_cudnn(cudnnBackendExecute(handle, plan.plan.raw(), pack.raw()), "cudnnBackendExecute");
  }

  cudnnHandle_t handle = nullptr;
  Descriptor gpu;
  std::map<AttentionProblem, Plan> plans;
};

FusedAttention::FusedAttention(cudaStream_t stream, Target target)
    : stream_(stream),
      target_(target) {}
FusedAttention::~FusedAttention() = default;

FusedAttention::Library& FusedAttention::library() {
  if (library_ == nullptr) library_ = std::make_unique<Library>(stream_);
  return *library_;
}

void FusedAttention::forward(const AttentionFwd& a, const Tensor& workspace) {
  const AttentionShape& n = a.shape;
  const Library::Plan& plan = library().plan_of(forward_problem(a));
  ORTHANT_CHECK(kSeedBytes + plan.bytes <= workspace.bytes(),
                "attention_fwd: cudnn asks for a workspace of {} bytes, {} are planned; please "
                "report",
                plan.bytes, workspace.bytes() - kSeedBytes);
  Pointers pointers;
  give_seed(stream_, a, workspace, pointers);
  pointers.set_heads(n, a.qkv, {AttentionTensor::kQ, AttentionTensor::kK, AttentionTensor::kV});
  pointers.set(AttentionTensor::kO, a.o.data);
  pointers.set(AttentionTensor::kLse, a.lse.data);
  pointers.set(AttentionTensor::kSlopes, a.slopes.data);
  pointers.set(AttentionTensor::kPositions, a.positions.data);
  library().run(plan, pointers, n, workspace.data + kSeedBytes);
}

// The seed, the row sums, the sum of dq or the keys, then what cuDNN wants for itself.
void FusedAttention::backward(const AttentionBwd& a, const Tensor& workspace) {
  const AttentionShape& n = a.shape;
  AttentionProblem problem = forward_problem(a);
  problem.is_backward = true;
  problem.is_deterministic = target_ == Target::kCudaDeterministic;
  const Library::Plan& plan = library().plan_of(problem);
  const std::int64_t row_bytes = n.B * n.H * n.S * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t key_bytes = n.B * n.S * n.G * n.D * size_of(a.qkv.dtype);
  const std::int64_t second = kSeedBytes + rounded_up(row_bytes);
  const std::int64_t own =
      second + rounded_up(problem.is_deterministic ? key_bytes : row_bytes * n.D);
  ORTHANT_CHECK(own + plan.bytes <= workspace.bytes(),
                "attention_bwd: cudnn asks for a workspace of {} bytes, {} are planned; please "
                "report",
                plan.bytes, workspace.bytes() - own);
  Pointers pointers;
  pointers.set_heads(n, a.qkv, {AttentionTensor::kQ, AttentionTensor::kK, AttentionTensor::kV});
  pointers.set_heads(n, a.dqkv, {AttentionTensor::kDQ, AttentionTensor::kDK, AttentionTensor::kDV});
  pointers.set(AttentionTensor::kO, a.o.data);
  pointers.set(AttentionTensor::kDO, a.do_.data);
  pointers.set(AttentionTensor::kLse, a.lse.data);
  pointers.set(AttentionTensor::kSlopes, a.slopes.data);
  pointers.set(AttentionTensor::kPositions, a.positions.data);
  pointers.set(AttentionTensor::kRowSum, workspace.data + kSeedBytes);
  if (problem.is_deterministic) {
    copy_keys(stream_, n, a.qkv, workspace.data + second);
    pointers.set(AttentionTensor::kK, workspace.data + second);
  } else {
    pointers.set(AttentionTensor::kDQSum, workspace.data + second);
  }
  give_seed(stream_, a, workspace, pointers);
  library().run(plan, pointers, n, workspace.data + own);
}

}  // namespace orthant::cuda
