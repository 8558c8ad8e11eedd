#include "ops/cuda/products.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <optional>
#include <utility>

#include "mem/cuda_check.h"
#include "mem/gpus.h"
#include "ops/cuda/blas_objects.h"
#include "ops/workspace.h"

namespace orthant::cuda {
namespace {

constexpr int kMostAlgorithms = 8;  // the heuristics give no more
constexpr int kRounds = 6;          // of timing them
constexpr float kNever = 1e30F;

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

// The GPU of this thread.
AlgorithmPlace place_here() {
  int index = 0;
  ORTHANT_CUDA(cudaGetDevice(&index));
  const GpuFacts gpu = gpu_facts().at(static_cast<std::size_t>(index));
  return {.gpu = gpu.name,
          .capability = gpu.capability,
          .multiprocessors = gpu.multiprocessors,
          .cublaslt = static_cast<std::int64_t>(cublasLtGetVersion()),
          .workspace_bytes = kProductBytes};
}

}  // namespace

// Everything about one problem but its addresses.
struct Products::Plan {
  Operation operation;
  Layout a;
  Layout b;
  Layout d;
  cublasLtMatmulAlgo_t algorithm{};
  bool has_algorithm = true;

  explicit Plan(const Product& product)
      : operation(product),
        a(product.a),
        b(product.b),
        d(product.d) {}
};

struct Products::Library {
  struct Candidate {
    cublasLtMatmulHeuristicResult_t result;
  };

  Library(cudaStream_t queue, bool takes_first_algorithm, Algorithms* shared)
      : stream(queue),
        takes_first(takes_first_algorithm),
        most_alignment(takes_first ? 16 : 256),
        algorithms(takes_first ? nullptr : shared) {
    check_blas(cublasLtCreate(&handle), "cublasLtCreate");
    if (algorithms == nullptr) return;
    place = place_here();
    edition = algorithms->edition();
  }
  ~Library() { cublasLtDestroy(handle); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  ProductProblem problem_of(const Product& p) const {
    return {.m = p.d.shape[0],
            .n = p.d.shape[1],
            .k = p.transposes_a ? p.a.shape[0] : p.a.shape[1],
            .type = p.a.dtype,
            .result = p.d.dtype,
            .transposes_a = p.transposes_a,
            .transposes_b = p.transposes_b,
            .adds = p.adds,
            .gelu = p.gelu,
            .bias_alignment = p.bias.present() ? alignment_of(p.bias, most_alignment) : 0,
            .d_alignment = alignment_of(p.d, most_alignment),
            .a_alignment = alignment_of(p.a, most_alignment),
            .b_alignment = alignment_of(p.b, most_alignment)};
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

  // Milliseconds of the fastest, where algorithms were timed.
  std::optional<double> choose(Plan& plan, const ProductProblem& problem, const Product& p,
                               const Tensor& workspace) const {
    std::array<Candidate, kMostAlgorithms> found{};
    int count = 0;
    const Preference preference(problem);
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, plan.operation.get(), plan.b.get(), plan.a.get(), plan.d.get(), plan.d.get(),
        preference.get(), kMostAlgorithms, &found[0].result, &count);
    const bool may_have_none = p.gelu != ProductGelu::kNone;
    if (may_have_none && (status == CUBLAS_STATUS_NOT_SUPPORTED || count == 0)) {
      plan.has_algorithm = false;
      return std::nullopt;
    }
    check_blas(status, "cublasLtMatmulAlgoGetHeuristic");
    ORTHANT_CHECK(count > 0, "cublasLt: no algorithm for {} by {}", p.a.shape.text(),
                  p.b.shape.text());
    plan.algorithm = found[0].result.algo;
    if (count == 1 || takes_first || adds_partial_products(plan.algorithm)) {
      return std::nullopt;
    }
    const Scratch scratch(p.d.bytes());
    if (scratch.data() == nullptr) return std::nullopt;
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
    const auto fastest = std::min_element(best.begin(), best.end());
    plan.algorithm = found[static_cast<std::size_t>(fastest - best.begin())].result.algo;
    if (*fastest >= kNever && may_have_none) {
      plan.has_algorithm = false;
      return std::nullopt;
    }
    return *fastest;
  }

  // Takes what has been chosen before, where that can run here.
  bool takes_chosen(Plan& plan, const ProductProblem& problem) const {
    const auto chosen = algorithms->find(place, problem);
    if (!chosen) return false;
    const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(chosen->words);
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status =
        cublasLtMatmulAlgoCheck(handle, plan.operation.get(), plan.b.get(), plan.a.get(),
                                plan.d.get(), plan.d.get(), &algorithm, &result);
    if (status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kProductBytes &&
        !adds_partial_products(algorithm)) {
      plan.algorithm = algorithm;
      return true;
    }
    algorithms->refuse(place, problem, *chosen);
    return false;
  }

  void decide(Plan& plan, const ProductProblem& problem, const Product& p,
              const Tensor& workspace) {
    if (algorithms != nullptr && takes_chosen(plan, problem)) return;
    const std::optional<double> ms = choose(plan, problem, p, workspace);
    if (!ms) return;
    ++num_timed;
    if (algorithms == nullptr || *ms >= kNever) return;
    const ChosenAlgorithm own{
        .words = std::bit_cast<decltype(ChosenAlgorithm::words)>(plan.algorithm), .ms = *ms};
    algorithms->choose(place, problem, own);
    takes_chosen(plan, problem);  // another rank may have been first
  }

  Plan& plan_of(const Product& p, const Tensor& workspace) {
    if (algorithms != nullptr && edition != algorithms->edition()) {
      edition = algorithms->edition();
      plans.clear();
    }
    const ProductProblem problem = problem_of(p);
    const auto at = plans.find(problem);
    if (at != plans.end()) return at->second;
    Plan plan(p);
    decide(plan, problem, p, workspace);
    return plans.emplace(problem, std::move(plan)).first->second;
  }

  void run(Plan& plan, const Product& product, const Tensor& workspace) const {
    plan.operation.set_addresses(product);
    check_blas(multiply(plan, product, workspace, product.d.data), "cublasLtMatmul");
  }

  cudaStream_t stream;
  bool takes_first;  // of the heuristics' algorithms, for what is promised of every address
  int most_alignment;
  Algorithms* algorithms;  // null: this process alone remembers
  AlgorithmPlace place;
  int edition = 0;  // of the algorithms that the plans have
  std::int64_t num_timed = 0;
  cublasLtHandle_t handle = nullptr;
  std::map<ProductProblem, Plan> plans;
};

Products::Products(cudaStream_t stream, bool is_deterministic, Algorithms* algorithms)
    : library_(std::make_unique<Library>(stream, is_deterministic, algorithms)) {}
Products::~Products() = default;

std::int64_t Products::num_timed() const {
  return library_->num_timed;
}

void Products::run(const Product& product, const Tensor& workspace) {
  if (product.d.count() == 0) return;
  library_->run(library_->plan_of(product, workspace), product, workspace);
}

bool Products::run_with_gelu(const Product& product, const Tensor& workspace) {
  constexpr std::int64_t kElements = 8;  // rows of gelu_x begin at multiples of so many
  const bool has_type = product.d.dtype == DType::kBF16 || product.d.dtype == DType::kF16;
  const bool is_aligned =
      product.d.shape[1] % kElements == 0 && alignment_of(product.gelu_x, 16) == 16;
  if (library_->takes_first || !has_type || !is_aligned) return false;
  if (product.d.count() == 0) return true;
  Plan& plan = library_->plan_of(product, workspace);
  if (plan.has_algorithm) library_->run(plan, product, workspace);
  return plan.has_algorithm;
}

}  // namespace orthant::cuda
