#include "ops/cuda/cudnn_graph.h"

#include <array>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "mem/cuda_check.h"

namespace orthant::cuda {
namespace {

constexpr std::int64_t kAlignment = 16;  // of every tensor, in bytes

// The first that the heuristics name, the fastest by far wherever it was measured.
std::optional<Descriptor> first_engine(const Descriptor& graph, const Descriptor& gpu) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode)
      .set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, gpu)
      .finish();
  Descriptor engine(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  std::int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
              "cudnnBackendGetAttribute");
  if (count == 0) return std::nullopt;
  return engine;
}

}  // namespace

void check_cudnn(cudnnStatus_t status, const char* asked) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 1024> why{};
  cudnnGetLastErrorString(why.data(), why.size());
  fail_run("cudnn: {}: {}: {}", asked, cudnnGetErrorString(status), why.data());
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check_cudnn(cudnnBackendCreateDescriptor(type, &raw_), "cudnnBackendCreateDescriptor");
}

Descriptor::~Descriptor() {
  if (raw_ != nullptr) cudnnBackendDestroyDescriptor(raw_);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            std::int64_t count, const void* values) {
  check_cudnn(cudnnBackendSetAttribute(raw_, name, type, count, values),
              "cudnnBackendSetAttribute");
  return *this;
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& other) {
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.raw_);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, std::int64_t value) {
  return set(name, CUDNN_TYPE_INT64, 1, &value);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, bool value) {
  return set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, const Dims& values) {
  return set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
}

Descriptor& Descriptor::finish() {
  check_cudnn(cudnnBackendFinalize(raw_), "cudnnBackendFinalize");
  return *this;
}

Node GraphBuilder::add(std::int64_t uid, const Dims& dims, const Dims& strides,
                       cudnnDataType_t type, Kind kind) {
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, uid)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
      .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, kind == Kind::kTemporary)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, kind == Kind::kScalar)
      .finish();
  tensors_.push_back({std::move(tensor), dims, strides});
  return {static_cast<int>(tensors_.size()) - 1};
}

Node GraphBuilder::external(std::int64_t uid, const Dims& dims, const Dims& strides,
                            cudnnDataType_t type) {
  return add(uid, dims, strides, type, Kind::kExternal);
}

Node GraphBuilder::scalar(std::int64_t uid) {
  return add(uid, {1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, Kind::kScalar);
}

Node GraphBuilder::temporary(const Dims& dims, const Dims& strides, cudnnDataType_t type) {
  return add(next_temporary_++, dims, strides, type, Kind::kTemporary);
}

const Descriptor& GraphBuilder::at(Node node) const {
  return tensors_.at(static_cast<std::size_t>(node.index)).descriptor;
}

void GraphBuilder::push(Descriptor operation, Descriptor part) {
  operation.finish();
  operations_.push_back(std::move(operation));
  parts_.push_back(std::move(part));
}

Node GraphBuilder::pointwise(const Pointwise& how, Node x, Node b, Node t, Node y) {
  Descriptor part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  part.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &how.mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, how.math);
  if (how.axis >= 0) part.set(CUDNN_ATTR_POINTWISE_AXIS, std::int64_t{how.axis});
  part.finish();
  if (!y.present()) {
    const Entry& like = tensors_.at(static_cast<std::size_t>(x.index));
    const Dims dims = like.dims;
    const Dims strides = like.strides;
    y = temporary(dims, strides, how.result);
  }
  Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, part)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(x))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(y));
  if (b.present()) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, at(b));
  if (t.present()) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, at(t));
  push(std::move(operation), std::move(part));
  return y;
}

Node GraphBuilder::matmul(Node a, Node b, Node c) {
  Descriptor part(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  part.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finish();
  Descriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a))
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b))
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(c))
      .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, part);
  push(std::move(operation), std::move(part));
  return c;
}

Node GraphBuilder::reduce(cudnnReduceTensorOp_t op, Node x, Node y) {
  Descriptor part(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  part.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op)
      .finish();
  Descriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(x))
      .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(y))
      .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, part);
  push(std::move(operation), std::move(part));
  return y;
}

Node GraphBuilder::reshape(Node x, Node y) {
  Descriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(x))
      .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(y));
  push(std::move(operation), {});
  return y;
}

Node GraphBuilder::bernoulli(Node seed, Node offset, double probability, const Dims& dims,
                             const Dims& strides) {
  Descriptor part(CUDNN_BACKEND_RNG_DESCRIPTOR);
  const cudnnRngDistribution_t distribution = CUDNN_RNG_DISTRIBUTION_BERNOULLI;
  part.set(CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_TYPE_RNG_DISTRIBUTION, 1, &distribution)
      .set(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, CUDNN_TYPE_DOUBLE, 1, &probability)
      .finish();
  const Node y = temporary(dims, strides, CUDNN_DATA_FLOAT);
  Descriptor operation(CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RNG_YDESC, at(y))
      .set(CUDNN_ATTR_OPERATION_RNG_SEED, at(seed))
      .set(CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, at(offset))
      .set(CUDNN_ATTR_OPERATION_RNG_DESC, part);
  push(std::move(operation), std::move(part));
  return y;
}

Descriptor GraphBuilder::finish() const {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Descriptor& operation : operations_) {
    raw.push_back(operation.raw());
  }
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph
      .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
           static_cast<std::int64_t>(raw.size()), raw.data())
      .finish();
  return graph;
}

Descriptor this_gpu() {
  int index = 0;
  ORTHANT_CUDA(cudaGetDevice(&index));
  const std::int32_t id = index;
  Descriptor gpu(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  gpu.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &id).finish();
  return gpu;
}

Descriptor described_gpu(const char* json) {
  Descriptor gpu(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  gpu.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
          static_cast<std::int64_t>(std::strlen(json)), json)
      .finish();
  return gpu;
}

bool has_engine(const Descriptor& graph, const Descriptor& gpu) {
  return first_engine(graph, gpu).has_value();
}

Descriptor best_plan(const Descriptor& graph, const Descriptor& gpu) {
  const std::optional<Descriptor> engine = first_engine(graph, gpu);
  ORTHANT_CHECK(engine.has_value(), "cudnn {} has no engine for this graph", cudnnGetVersion());
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *engine)
      .set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, gpu)
      .finish();
  return plan;
}

std::int64_t plan_workspace_bytes(const Descriptor& plan) {
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(plan.raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, &count, &bytes),
              "cudnnBackendGetAttribute");
  return bytes;
}

}  // namespace orthant::cuda
