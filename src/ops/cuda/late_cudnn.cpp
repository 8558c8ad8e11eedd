// cuDNN's functions that cudnn_graph.cpp and attention.cpp call.
#include <cudnn.h>

#include "mem/cuda_late_library.h"

extern "C" {

size_t cudnnGetVersion() {
  ORTHANT_LATE("libcudnn.so.9", cudnnGetVersion);
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  ORTHANT_LATE("libcudnn.so.9", cudnnGetErrorString, status);
}

void cudnnGetLastErrorString(char* message, size_t size) {
  ORTHANT_LATE("libcudnn.so.9", cudnnGetLastErrorString, message, size);
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  ORTHANT_LATE("libcudnn.so.9", cudnnCreate, handle);
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  ORTHANT_LATE("libcudnn.so.9", cudnnDestroy, handle);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  ORTHANT_LATE("libcudnn.so.9", cudnnSetStream, handle, stream);
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  ORTHANT_LATE("libcudnn.so.9", cudnnBackendCreateDescriptor, type, descriptor);
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  ORTHANT_LATE("libcudnn.so.9", cudnnBackendDestroyDescriptor, descriptor);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  ORTHANT_LATE("libcudnn.so.9", cudnnBackendFinalize, descriptor);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* values) {
  ORTHANT_LATE("libcudnn.so.9", cudnnBackendSetAttribute, descriptor, name, type, count, values);
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted,
                                       int64_t* count, void* values) {
  ORTHANT_LATE("libcudnn.so.9", cudnnBackendGetAttribute, descriptor, name, type, wanted, count,
               values);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  ORTHANT_LATE("libcudnn.so.9", cudnnBackendExecute, handle, plan, pack);
}

}  // extern "C"
