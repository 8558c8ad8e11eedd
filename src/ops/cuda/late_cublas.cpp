// cuBLASLt's functions that products.cpp calls.
#include <string>

#include <cublasLt.h>

#include "mem/cuda_late_library.h"

namespace {

std::string library() {
  return "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
}

}  // namespace

// How many parameters they have is cuBLASLt's choice. NOLINTBEGIN(readability-function-size)
extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  ORTHANT_LATE(library(), cublasLtCreate, handle);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  ORTHANT_LATE(library(), cublasLtDestroy, handle);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  ORTHANT_LATE(library(), cublasLtMatrixLayoutCreate, layout, type, rows, columns, stride);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  ORTHANT_LATE(library(), cublasLtMatrixLayoutDestroy, layout);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  ORTHANT_LATE(library(), cublasLtMatmulDescCreate, operation, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  ORTHANT_LATE(library(), cublasLtMatmulDescDestroy, operation);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t bytes) {
  ORTHANT_LATE(library(), cublasLtMatmulDescSetAttribute, operation, name, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  ORTHANT_LATE(library(), cublasLtMatmulPreferenceCreate, preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  ORTHANT_LATE(library(), cublasLtMatmulPreferenceDestroy, preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* value, size_t bytes) {
  ORTHANT_LATE(library(), cublasLtMatmulPreferenceSetAttribute, preference, name, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t name,
                                                    void* value, size_t bytes, size_t* written) {
  ORTHANT_LATE(library(), cublasLtMatmulAlgoConfigGetAttribute, algorithm, name, value, bytes,
               written);
}

size_t cublasLtGetVersion() {
  ORTHANT_LATE(library(), cublasLtGetVersion);
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  ORTHANT_LATE(library(), cublasLtGetStatusName, status);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  ORTHANT_LATE(library(), cublasLtMatmulAlgoGetHeuristic, handle, operation, a, b, c, d, preference,
               wanted, results, found);
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  ORTHANT_LATE(library(), cublasLtMatmulAlgoCheck, handle, operation, a, b, c, d, algorithm,
               result);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  ORTHANT_LATE(library(), cublasLtMatmul, handle, operation, alpha, a, a_layout, b, b_layout, beta,
               c, c_layout, d, d_layout, algorithm, workspace, workspace_bytes, stream);
}

}  // extern "C"
// NOLINTEND(readability-function-size)
