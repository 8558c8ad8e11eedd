#include "ops/cuda/attention_graph.h"

namespace orthant::cuda {
namespace {

constexpr auto kF32 = CUDNN_DATA_FLOAT;
constexpr auto kI32 = CUDNN_DATA_INT32;
constexpr auto kI64 = CUDNN_DATA_INT64;
constexpr auto kBool = CUDNN_DATA_BOOLEAN;

class Builder {
 public:
  explicit Builder(const AttentionProblem& problem)
      : n_(problem),
        type_(problem.type == DType::kBF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF) {
    const auto [B, S, H, G, D] = std::array{n_.B, n_.S, n_.H, n_.G, n_.D};
    const std::int64_t heads = H + 2 * G;  // of a row of qkv
    qkv_ = {S * heads * D, D, heads * D, 1};
    keys_ = {S * heads * D, D, 1, heads * D};  // transposed
    copied_keys_ = {S * G * D, D, 1, G * D};
    copied_rows_ = {S * G * D, D, G * D, 1};
    out_ = {S * H * D, D, H * D, 1};
    products_ = {H * S * D, S * D, H * D, 1};
    full_ = {H * S * D, S * D, D, 1};
    scores_ = {B, H, S, S};
    by_row_ = {H * S * S, S * S, S, 1};
    by_column_ = {H * S * S, S * S, 1, S};
    rows_ = {B, H, S, 1};
    row_strides_ = {H * S, S, 1, 1};
    q_dims_ = {B, H, S, D};
    kv_dims_ = {B, G, S, D};
    key_dims_ = {B, G, D, S};
  }

  AttentionGraph forward() {
    const Node minus_infinity = scalar(AttentionTensor::kNegativeInfinity);
    const Node scale = scalar(AttentionTensor::kScale);
    const Node q = given(AttentionTensor::kQ, q_dims_, qkv_, type_);
    const Node k = given(AttentionTensor::kK, key_dims_, keys_, type_);
    const Node v = given(AttentionTensor::kV, kv_dims_, qkv_, type_);
    Node s = g_.matmul(q, k, g_.temporary(scores_, by_row_, kF32));
    s = masked(positioned(s, scale), minus_infinity);
    const Node max = reduced(CUDNN_REDUCE_TENSOR_MAX, s);
    const Node e = g_.pointwise({CUDNN_POINTWISE_EXP}, g_.pointwise({CUDNN_POINTWISE_SUB}, s, max));
    const Node sum = reduced(CUDNN_REDUCE_TENSOR_ADD, e);
    const Node log = g_.pointwise({CUDNN_POINTWISE_LOG}, sum);
    g_.pointwise({CUDNN_POINTWISE_ADD}, max, log, {},
                 given(AttentionTensor::kLse, rows_, row_strides_, kF32));
    const bool drops = n_.dropout > 0;
    Node p = g_.pointwise({CUDNN_POINTWISE_DIV, drops ? kF32 : type_}, e, sum);
    if (drops) p = times(times(p, mask()), scalar(AttentionTensor::kKeptInverse), type_);
    g_.matmul(p, v, given(AttentionTensor::kO, q_dims_, out_, type_));
    return {g_.finish(), std::move(tensors_)};
  }

  AttentionGraph backward() {
    const Node minus_infinity = scalar(AttentionTensor::kNegativeInfinity);
    const Node scale = scalar(AttentionTensor::kScale);
    const Node q = given(AttentionTensor::kQ, q_dims_, qkv_, type_);
    const bool has_copy = n_.is_deterministic;
    const Node k = given(AttentionTensor::kK, key_dims_, has_copy ? copied_keys_ : keys_, type_);
    const Node v = given(AttentionTensor::kV, key_dims_, keys_, type_);
    const Node o = given(AttentionTensor::kO, q_dims_, out_, type_);
    const Node d_o = given(AttentionTensor::kDO, q_dims_, out_, type_);
    const Node lse = given(AttentionTensor::kLse, rows_, row_strides_, kF32);
    const bool drops = n_.dropout > 0;
    const Node keep = scalar(AttentionTensor::kKept);
    const Node keep_inverse = drops ? scalar(AttentionTensor::kKeptInverse) : Node{};
    const Node mask = drops ? this->mask() : Node{};

    const Node products =
        g_.pointwise({CUDNN_POINTWISE_MUL}, d_o, o, {}, g_.temporary(q_dims_, products_, kF32));
    const Node row_sum =
        g_.pointwise({CUDNN_POINTWISE_MUL}, reduced(CUDNN_REDUCE_TENSOR_ADD, products), keep, {},
                     given(AttentionTensor::kRowSum, rows_, row_strides_, kF32));
    // p = exp(scores - lse), dv = (p mask / kept)^T do
    Node s = g_.matmul(q, k, g_.temporary(scores_, by_row_, kF32));
    s = g_.pointwise({CUDNN_POINTWISE_SUB}, positioned(s, scale), lse);
    const Node p = g_.pointwise({CUDNN_POINTWISE_EXP}, masked(s, minus_infinity));
    key_gradient(drops ? times(times(p, mask), keep_inverse) : p, d_o, AttentionTensor::kDV);
    // ds = p (mask do v^T - row_sum) / kept scale, where row_sum is times kept; dk = ds^T q
    Node ds = g_.matmul(d_o, v, g_.temporary(scores_, by_row_, kF32));
    if (drops) ds = times(ds, mask);
    ds = times(g_.pointwise({CUDNN_POINTWISE_SUB}, ds, row_sum), p);
    if (drops) ds = times(ds, keep_inverse);
    ds = times(ds, scale);
    key_gradient(ds, q, AttentionTensor::kDK);
    // dq = ds k, added up in f32
    const Node rows_of_k =
        g_.reshape(k, g_.temporary(kv_dims_, has_copy ? copied_rows_ : qkv_, type_));
    const Node dq = given(AttentionTensor::kDQ, q_dims_, qkv_, type_);
    if (has_copy) {
      g_.matmul(ds, rows_of_k, dq);
    } else {
      const Node sum = given(AttentionTensor::kDQSum, q_dims_, full_, kF32);
      g_.matmul(ds, rows_of_k, sum);
      g_.pointwise({CUDNN_POINTWISE_IDENTITY}, sum, {}, {}, dq);
    }
    return {g_.finish(), std::move(tensors_)};
  }

 private:
  Node given(AttentionTensor tensor, const Dims& dims, const Dims& strides, cudnnDataType_t type) {
    tensors_.push_back(tensor);
    return g_.external(static_cast<std::int64_t>(tensor), dims, strides, type);
  }
  Node scalar(AttentionTensor tensor) {
    tensors_.push_back(tensor);
    return g_.scalar(static_cast<std::int64_t>(tensor));
  }
  Node times(Node a, Node b, cudnnDataType_t result = kF32) {
    return g_.pointwise({CUDNN_POINTWISE_MUL, result}, a, b);
  }
  // 1 where dropout keeps a probability.
  Node mask() {
    const Node seed = given(AttentionTensor::kSeed, {1, 1, 1, 1}, {1, 1, 1, 1}, kI64);
    const Node offset = given(AttentionTensor::kOffset, {1, 1, 1, 1}, {1, 1, 1, 1}, kI64);
    return g_.bernoulli(seed, offset, 1 - n_.dropout, scores_, by_row_);
  }
  Node reduced(cudnnReduceTensorOp_t op, Node x) {
    return g_.reduce(op, x, g_.temporary(rows_, row_strides_, kF32));
  }
  Node index(Node s, int axis, cudnnDataType_t math) {
    return g_.pointwise({CUDNN_POINTWISE_GEN_INDEX, kI32, math, axis}, s);
  }
  // scores * scale + slope * (key - query)
  Node positioned(Node s, Node scale) {
    s = times(s, scale);
    if (!n_.has_slopes) return s;
    const Node row = index(s, 2, kI32);
    const Node column = index(s, 3, kI32);
    const Node distance = g_.pointwise({CUDNN_POINTWISE_SUB, kI32, kI32}, column, row);
    const Node slope = given(AttentionTensor::kSlopes, {1, n_.H, 1, 1}, {n_.H, 1, 1, 1}, kF32);
    return g_.pointwise({CUDNN_POINTWISE_ADD}, s,
                        g_.pointwise({CUDNN_POINTWISE_MUL}, distance, slope));
  }
  Node causal(Node s, Node minus_infinity) {
    const Node row = index(s, 2, kF32);
    const Node column = index(s, 3, kF32);
    const Node keeps = g_.pointwise({CUDNN_POINTWISE_CMP_GE, kBool, kBool}, row, column);
    return g_.pointwise({CUDNN_POINTWISE_BINARY_SELECT}, s, minus_infinity, keeps);
  }
  // Keys of earlier documents too; each choice has its own indices, as cuDNN expects.
  Node masked(Node s, Node minus_infinity) {
    s = causal(s, minus_infinity);
    if (!n_.has_positions) return s;
    const Node row = index(s, 2, kI32);
    const Node column = index(s, 3, kI32);
    const Node position =
        given(AttentionTensor::kPositions, {n_.B, 1, n_.S, 1}, {n_.S, n_.S, 1, 1}, kI32);
    const Node first = g_.pointwise({CUDNN_POINTWISE_SUB, kI32, kI32}, row, position);
    const Node keeps = g_.pointwise({CUDNN_POINTWISE_CMP_GE, kBool, kBool}, column, first);
    return g_.pointwise({CUDNN_POINTWISE_BINARY_SELECT}, s, minus_infinity, keeps);
  }
  // weights^T rows; with grouped heads the sum over a group's query heads.
  void key_gradient(Node weights, Node rows, AttentionTensor tensor) {
    Node narrow = g_.temporary(scores_, by_column_, type_);
    narrow = g_.reshape(weights, narrow);
    const Node gradient = given(tensor, kv_dims_, qkv_, type_);
    if (n_.H == n_.G) {
      g_.matmul(narrow, rows, gradient);
      return;
    }
    const Node of_all_heads = g_.matmul(narrow, rows, g_.temporary(q_dims_, full_, type_));
    g_.reduce(CUDNN_REDUCE_TENSOR_ADD, of_all_heads, gradient);
  }

  AttentionProblem n_;
  cudnnDataType_t type_;
  Dims qkv_, keys_, copied_keys_, copied_rows_, out_, products_, full_;
  Dims scores_, by_row_, by_column_;
  Dims rows_, row_strides_;
  Dims q_dims_, kv_dims_, key_dims_;
  GraphBuilder g_;
  std::vector<AttentionTensor> tensors_;
};

}  // namespace

AttentionGraph attention_graph(const AttentionProblem& problem) {
  Builder builder(problem);
  return problem.is_backward ? builder.backward() : builder.forward();
}

}  // namespace orthant::cuda
