// Algorithms: by which of its library's algorithms a GPU multiplies a problem fastest, as timed
// before. docs/formats.md has the text in which they are kept between runs.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "mem/dtype.h"

namespace orthant {

// Where a choice holds: elsewhere the same words may mean another algorithm, or none.
struct AlgorithmPlace {
  std::string gpu;     // its name
  int capability = 0;  // 90: 9.0
  int multiprocessors = 0;
  std::int64_t cublaslt = 0;         // version
  std::int64_t workspace_bytes = 0;  // that an algorithm may take

  auto key() const { return std::tie(gpu, capability, multiprocessors, cublaslt, workspace_bytes); }
  friend bool operator==(const AlgorithmPlace&, const AlgorithmPlace&) = default;
  friend bool operator<(const AlgorithmPlace& a, const AlgorithmPlace& b) {
    return a.key() < b.key();
  }
};

// What a product does with GELU, in its tanh form: d is GELU of the sums, or a gradient is taken
// through one.
enum class ProductGelu : std::uint8_t { kNone, kForward, kGradient };

// All of a product d [m,n] (=, +=) a [m,k] b [k,n] + bias but its addresses.
struct ProductProblem {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType type = DType::kF32;    // of a and b
  DType result = DType::kF32;  // of d and the bias
  bool transposes_a = false;
  bool transposes_b = false;
  bool adds = false;
  ProductGelu gelu = ProductGelu::kNone;
  int bias_alignment = 0;  // bytes; 0: without a bias
  int d_alignment = 1;
  int a_alignment = 1;
  int b_alignment = 1;

  auto key() const {
    return std::tie(m, n, k, type, result, transposes_a, transposes_b, adds, gelu, bias_alignment,
                    d_alignment, a_alignment, b_alignment);
  }
  friend bool operator==(const ProductProblem&, const ProductProblem&) = default;
  friend bool operator<(const ProductProblem& a, const ProductProblem& b) {
    return a.key() < b.key();
  }
};

struct ChosenAlgorithm {
  std::array<std::uint64_t, 8> words{};  // cublasLtMatmulAlgo_t
  double ms = 0;                         // of the fastest run

  friend bool operator==(const ChosenAlgorithm&, const ChosenAlgorithm&) = default;
};

using AlgorithmTable = std::map<AlgorithmPlace, std::map<ProductProblem, ChosenAlgorithm>>;

std::string algorithms_text(const AlgorithmTable& table);

// Throws a user error, which begins with `path`, unless all of the text is sound.
AlgorithmTable parse_algorithms(const std::string& text, const std::string& path);

// What the ranks of a process know, which may be threads. A choice is news until it is settled:
// then all ranks of the run have it.
class Algorithms {
 public:
  std::optional<ChosenAlgorithm> find(const AlgorithmPlace& place,
                                      const ProductProblem& problem) const;
  // Of several that choose for one problem the first counts: what it has chosen is returned.
  ChosenAlgorithm choose(const AlgorithmPlace& place, const ProductProblem& problem,
                         const ChosenAlgorithm& chosen);
  // Forgets what was found and cannot run here.
  void refuse(const AlgorithmPlace& place, const ProductProblem& problem,
              const ChosenAlgorithm& found);

  AlgorithmTable news() const;
  // What is not known by now becomes news, as if it had been chosen.
  void learn(const AlgorithmTable& table);
  // These replace what this process has chosen for the same problems.
  void settle(const AlgorithmTable& table);
  AlgorithmTable settled() const;
  // Grows when a choice was replaced: who has taken any looks for them again.
  int edition() const { return edition_; }

 private:
  mutable std::mutex mutex_;
  AlgorithmTable settled_;
  AlgorithmTable news_;
  std::atomic<int> edition_ = 0;
};

}  // namespace orthant
