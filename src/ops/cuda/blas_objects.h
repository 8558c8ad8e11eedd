// Owners of what cuBLASLt asks to be described, in row-major terms: a row-major matrix is the
// transpose of its column-major one, so that d = a b is computed as d^T = b^T a^T.
#pragma once

#include <cstdint>
#include <utility>

#include <cublasLt.h>

#include "base/check.h"
#include "ops/cuda/products.h"
#include "ops/workspace.h"

namespace orthant::cuda {

inline void check_blas(cublasStatus_t status, const char* asked) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail_run("cublasLt: {}: {}", asked, cublasLtGetStatusName(status));
}

inline cudaDataType_t type_of(DType type) {
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

inline cublasLtEpilogue_t epilogue_of(const Product& product) {
  const bool has_bias = product.bias.present();
  switch (product.gelu) {
    case ProductGelu::kNone: break;
    case ProductGelu::kForward:
      return has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case ProductGelu::kGradient: return CUBLASLT_EPILOGUE_DGELU;
  }
  return has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

class Operation {
 public:
  explicit Operation(const Product& product) {
    check_blas(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, product.transposes_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, product.transposes_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(product));
    if (product.gelu != ProductGelu::kNone) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product.gelu_x.shape[1]);
    }
    set_addresses(product);
  }
  Operation(Operation&& other) noexcept : operation_(std::exchange(other.operation_, nullptr)) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  Operation& operator=(Operation&&) = delete;
  ~Operation() {
    if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
  }
  // Of what stands beside the matrices.
  void set_addresses(const Product& product) {
    if (product.bias.present()) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias.data);
    if (product.gelu_x.present()) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, product.gelu_x.data);
    }
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
inline int alignment_of(const Tensor& tensor, int most) {
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  int alignment = most;
  while (address % alignment != 0) {
    alignment /= 2;
  }
  return alignment;
}

class Preference {
 public:
  explicit Preference(const ProductProblem& problem) {
    check_blas(cublasLtMatmulPreferenceCreate(&preference_), "cublasLtMatmulPreferenceCreate");
    const auto bytes = static_cast<std::size_t>(kProductBytes);
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, bytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        static_cast<std::uint32_t>(problem.b_alignment));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        static_cast<std::uint32_t>(problem.a_alignment));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        static_cast<std::uint32_t>(problem.d_alignment));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        static_cast<std::uint32_t>(problem.d_alignment));
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

}  // namespace orthant::cuda
