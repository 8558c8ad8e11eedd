// NCCL's functions that this folder calls.
#include <nccl.h>

#include "mem/cuda_late_library.h"

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  ORTHANT_LATE("libnccl.so.2", ncclGetVersion, version);
}

const char* ncclGetErrorString(ncclResult_t status) {
  ORTHANT_LATE("libnccl.so.2", ncclGetErrorString, status);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  ORTHANT_LATE("libnccl.so.2", ncclGetUniqueId, id);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  ORTHANT_LATE("libnccl.so.2", ncclCommInitRankConfig, comm, size, id, rank, config);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  ORTHANT_LATE("libnccl.so.2", ncclCommAbort, comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  ORTHANT_LATE("libnccl.so.2", ncclCommGetAsyncError, comm, state);
}

ncclResult_t ncclGroupStart() {
  ORTHANT_LATE("libnccl.so.2", ncclGroupStart);
}

ncclResult_t ncclGroupEnd() {
  ORTHANT_LATE("libnccl.so.2", ncclGroupEnd);
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  ORTHANT_LATE("libnccl.so.2", ncclAllReduce, in, out, count, type, op, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  ORTHANT_LATE("libnccl.so.2", ncclReduceScatter, in, out, count, type, op, comm, stream);
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  ORTHANT_LATE("libnccl.so.2", ncclAllGather, in, out, count, type, comm, stream);
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  ORTHANT_LATE("libnccl.so.2", ncclBroadcast, in, out, count, type, root, comm, stream);
}

ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  ORTHANT_LATE("libnccl.so.2", ncclSend, in, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  ORTHANT_LATE("libnccl.so.2", ncclRecv, out, count, type, peer, comm, stream);
}

}  // extern "C"
