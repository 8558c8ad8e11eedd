// Graphs of cuDNN 9 through its backend interface. cuDNN finds a fused kernel by the order and kind
// of the operations, so that a graph is written as the kernel expects it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <cudnn.h>

namespace orthant::cuda {

using Dims = std::vector<std::int64_t>;

// Throws with cuDNN's own message.
void check_cudnn(cudnnStatus_t status, const char* asked);

// Owns one descriptor of the backend interface.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();

  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  std::int64_t count, const void* values);
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& other);
  Descriptor& set(cudnnBackendAttributeName_t name, std::int64_t value);
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  Descriptor& set(cudnnBackendAttributeName_t name, bool value);
  Descriptor& set(cudnnBackendAttributeName_t name, const Dims& values);
  Descriptor& finish();  // no attribute may be set after it
  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

// A tensor of a graph, by its place in the builder; the default one is absent.
struct Node {
  int index = -1;
  bool present() const { return index >= 0; }
};

// Collects tensors and operations in the order of the calls.
class GraphBuilder {
 public:
  Node external(std::int64_t uid, const Dims& dims, const Dims& strides, cudnnDataType_t type);
  Node scalar(std::int64_t uid);  // f32, by value
  Node temporary(const Dims& dims, const Dims& strides, cudnnDataType_t type);

  // How a pointwise result is stored and computed; `axis` is that of CUDNN_POINTWISE_GEN_INDEX.
  struct Pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t result = CUDNN_DATA_FLOAT;
    cudnnDataType_t math = CUDNN_DATA_FLOAT;
    int axis = -1;
  };
  // y = mode(x, b, t); a temporary like x where y is absent.
  Node pointwise(const Pointwise& how, Node x, Node b = {}, Node t = {}, Node y = {});
  Node matmul(Node a, Node b, Node c);
  Node reduce(cudnnReduceTensorOp_t op, Node x, Node y);
  Node reshape(Node x, Node y);
  // 1 with this probability, else 0: a function of the i64 values at the two addresses, and of
  // where an element lies among those of dims.
  Node bernoulli(Node seed, Node offset, double probability, const Dims& dims, const Dims& strides);
  Descriptor finish() const;

 private:
  struct Entry {
    Descriptor descriptor;
    Dims dims;
    Dims strides;
  };
  enum class Kind : std::uint8_t { kExternal, kTemporary, kScalar };
  Node add(std::int64_t uid, const Dims& dims, const Dims& strides, cudnnDataType_t type,
           Kind kind);
  const Descriptor& at(Node node) const;
  void push(Descriptor operation, Descriptor part);

  std::vector<Entry> tensors_;
  std::vector<Descriptor> operations_;
  std::vector<Descriptor> parts_;  // what operations refer to
  std::int64_t next_temporary_ = 1'000'000;
};

// The GPU that plans are made for.
Descriptor this_gpu();
// The same without a GPU, from its properties as cuDNN writes them: for checks where none is.
Descriptor described_gpu(const char* json);

// The best engine that cuDNN's heuristics know for a graph, as a plan.
Descriptor best_plan(const Descriptor& graph, const Descriptor& gpu);
// Whether they know one: otherwise the graph cannot run.
bool has_engine(const Descriptor& graph, const Descriptor& gpu);
std::int64_t plan_workspace_bytes(const Descriptor& plan);

}  // namespace orthant::cuda
