// cuBLASLt sees a row-major matrix as the transpose of a column-major one: d = a b is computed as
// d^T = b^T a^T.
#include "ops/cuda/products.h"

#include <algorithm>
#include <array>
#include <utility>

#include <cublasLt.h>

#include "base/check.h"
#include "mem/cuda_check.h"
#include "ops/workspace.h"

namespace orthant::cuda {
namespace {

constexpr int kMostAlgorithms = 8;  // the heuristics give no more
constexpr int kRounds = 6;          // of timing them
constexpr float kNever = 1e30F;

void check_blas(cublasStatus_t status, const char* asked) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail_run("cublasLt: {}: {}", asked, cublasLtGetStatusName(status));
}

cudaDataType_t type_of(DType type) {
  switch (type) {
    case DType::kF32: return CUDA_R_32F;
    case DType::kBF16: return CUDA_R_16BF;
    case DType::kF16: return CUDA_R_16F;
    default: break;
  }
  fail_run("cublasLt: matrix products of {} are not made", name_of(type));
}

class Layout {
 public:
  // A row-major [rows,columns].
  explicit Layout(const Tensor& matrix) {
    check_blas(cublasLtMatrixLayoutCreate(
                   &layout_, type_of(matrix.dtype), static_cast<std::uint64_t>(matrix.shape[1]),
                   static_cast<std::uint64_t>(matrix.shape[0]), matrix.shape[1]),
               "cublasLtMatrixLayoutCreate");
  }
  Layout(Layout&& other) noexcept : layout_(std::exchange(other.layout_, nullptr)) {}
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  Layout& operator=(Layout&&) = delete;
  ~Layout() {
    if (layout_ != nullptr) cublasLtMatrixLayoutDestroy(layout_);
  }
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class Operation {
 public:
  explicit Operation(const Product& product) {
    check_blas(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, product.transposes_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, product.transposes_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (product.bias.absent()) return;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set_bias(product.bias);
  }
  Operation(Operation&& other) noexcept : operation_(std::exchange(other.operation_, nullptr)) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  Operation& operator=(Operation&&) = delete;
  ~Operation() {
    if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
  }
  void set_bias(const Tensor& bias) {
    const void* at = bias.data;
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at);
  }
  cublasLtMatmulDesc_t get() const { return operation_; }

 private:
  template <class V>
  void set(cublasLtMatmulDescAttributes_t name, const V& value) {
    check_blas(cublasLtMatmulDescSetAttribute(operation_, name, &value, sizeof(value)),
               "cublasLtMatmulDescSetAttribute");
  }
  cublasLtMatmulDesc_t operation_ = nullptr;
};

// The largest power of two up to `most` that an address is a multiple of.
std::uint32_t alignment_of(const Tensor& tensor, std::uint32_t most) {
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  std::uint32_t alignment = most;
  while (address % alignment != 0) {
    alignment /= 2;
  }
  return alignment;
}

class Preference {
 public:
  Preference(const Product& product, std::uint32_t most) {
    check_blas(cublasLtMatmulPreferenceCreate(&preference_), "cublasLtMatmulPreferenceCreate");
    const auto bytes = static_cast<std::size_t>(kProductBytes);
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, bytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(product.b, most));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(product.a, most));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(product.d, most));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(product.d, most));
  }
  ~Preference() { cublasLtMatmulPreferenceDestroy(preference_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  template <class V>
  void set(cublasLtMatmulPreferenceAttributes_t name, const V& value) {
    check_blas(cublasLtMatmulPreferenceSetAttribute(preference_, name, &value, sizeof(value)),
               "cublasLtMatmulPreferenceSetAttribute");
  }
  cublasLtMatmulPreference_t preference_ = nullptr;
};

bool adds_partial_products(const cublasLtMatmulAlgo_t& algorithm) {
  std::int32_t splits = 1;
  std::size_t written = 0;
  check_blas(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                                  &splits, sizeof(splits), &written),
             "cublasLtMatmulAlgoConfigGetAttribute");
  return splits > 1;
}

class Event {
 public:
  Event() { ORTHANT_CUDA(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Device memory for the results of products that are made to be timed; empty where there is none.
class Scratch {
 public:
  explicit Scratch(std::int64_t bytes) {
    if (cudaMalloc(&data_, static_cast<std::size_t>(bytes)) != cudaSuccess) {
      cudaGetLastError();  // it would be reported again
      data_ = nullptr;
    }
  }
  ~Scratch() { cudaFree(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

}  // namespace

// Everything about one problem but its addresses.
struct Products::Plan {
  Operation operation;
  Layout a;
  Layout b;
  Layout d;
  cublasLtMatmulAlgo_t algorithm{};

  explicit Plan(const Product& product)
      : operation(product),
        a(product.a),
        b(product.b),
        d(product.d) {}
};

struct Products::Library {
  using Key = std::array<std::int64_t, 8>;
  struct Candidate {
    cublasLtMatmulHeuristicResult_t result;
  };

  Library(cudaStream_t queue, bool takes_first_algorithm)
      : stream(queue),
        takes_first(takes_first_algorithm),
        most_alignment(takes_first ? 16 : 256) {
    check_blas(cublasLtCreate(&handle), "cublasLtCreate");
  }
  ~Library() { cublasLtDestroy(handle); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  Key key_of(const Product& p) const {
    const auto alignment = [this](const Tensor& tensor) {
      return alignment_of(tensor, most_alignment);
    };
    return {p.d.shape[0],
            p.d.shape[1],
            p.transposes_a ? p.a.shape[0] : p.a.shape[1],
            static_cast<std::int64_t>(p.a.dtype) * 16 + static_cast<std::int64_t>(p.d.dtype),
            (p.transposes_a ? 1 : 0) + (p.transposes_b ? 2 : 0) + (p.adds ? 4 : 0),
            p.bias.present() ? alignment(p.bias) : 0,
            alignment(p.d),
            std::int64_t{alignment(p.a)} * 512 + alignment(p.b)};
  }

  // d_out receives what is added to d.
  cublasStatus_t multiply(const Plan& plan, const Product& p, const Tensor& workspace,
                          std::byte* d_out) const {
    const float alpha = 1;
    const float beta = p.adds ? 1 : 0;
    return cublasLtMatmul(handle, plan.operation.get(), &alpha, p.b.data, plan.b.get(), p.a.data,
                          plan.a.get(), &beta, p.d.data, plan.d.get(), d_out, plan.d.get(),
                          &plan.algorithm, workspace.data, static_cast<std::size_t>(kProductBytes),
                          stream);
  }

  // Milliseconds of the plan's algorithm; kNever where it cannot run.
  float time(const Plan& plan, const Product& p, const Tensor& workspace, std::byte* d_out) const {
    const Event start;
    const Event end;
    ORTHANT_CUDA(cudaEventRecord(start.get(), stream));
    if (multiply(plan, p, workspace, d_out) != CUBLAS_STATUS_SUCCESS) return kNever;
    ORTHANT_CUDA(cudaEventRecord(end.get(), stream));
    ORTHANT_CUDA(cudaEventSynchronize(end.get()));
    float ms = 0;
    ORTHANT_CUDA(cudaEventElapsedTime(&ms, start.get(), end.get()));
    return ms;
  }

  void choose(Plan& plan, const Product& p, const Tensor& workspace) const {
    std::array<Candidate, kMostAlgorithms> found{};
    int count = 0;
    const Preference preference(p, most_alignment);
    check_blas(cublasLtMatmulAlgoGetHeuristic(
                   handle, plan.operation.get(), plan.b.get(), plan.a.get(), plan.d.get(),
                   plan.d.get(), preference.get(), kMostAlgorithms, &found[0].result, &count),
               "cublasLtMatmulAlgoGetHeuristic");
    ORTHANT_CHECK(count > 0, "cublasLt: no algorithm for {} by {}", p.a.shape.text(),
                  p.b.shape.text());
    plan.algorithm = found[0].result.algo;
    if (count == 1 || takes_first || adds_partial_products(plan.algorithm)) return;
    const Scratch scratch(p.d.bytes());
    if (scratch.data() == nullptr) return;
    std::array<float, kMostAlgorithms> best;
    best.fill(kNever);
    // Round by round, so that all of them meet the same clocks; the first round loads the kernels.
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        plan.algorithm = found[i].result.algo;
        if (adds_partial_products(plan.algorithm)) continue;
        const float ms = time(plan, p, workspace, scratch.data());
        if (round > 0) best[i] = std::min(best[i], ms);
      }
    }
    plan.algorithm =
        found[static_cast<std::size_t>(std::min_element(best.begin(), best.end()) - best.begin())]
            .result.algo;
  }

  Plan& plan_of(const Product& p, const Tensor& workspace) {
    const Key key = key_of(p);
    const auto at = plans.find(key);
    if (at != plans.end()) return at->second;
    Plan plan(p);
    choose(plan, p, workspace);
    return plans.emplace(key, std::move(plan)).first->second;
  }

  cudaStream_t stream;
  bool takes_first;  // of the heuristics' algorithms, for what is promised of every address
  std::uint32_t most_alignment;
  cublasLtHandle_t handle = nullptr;
  std::map<Key, Plan> plans;
};

Products::Products(cudaStream_t stream, bool is_deterministic)
    : library_(std::make_unique<Library>(stream, is_deterministic)) {}
Products::~Products() = default;

void Products::run(const Product& product, const Tensor& workspace) {
  if (product.d.count() == 0) return;
  Plan& plan = library_->plan_of(product, workspace);
  if (product.bias.present()) plan.operation.set_bias(product.bias);
  check_blas(library_->multiply(plan, product, workspace, product.d.data), "cublasLtMatmul");
}

}  // namespace orthant::cuda
