#include <cmath>
#include <limits>
#include <vector>

#include "ops/dropout.h"
#include "ops/ref/doubles.h"
#include "ops/ref/ref_ops.h"

namespace orthant {
namespace {

// Where the elements of a head lie in a row of qkv.
struct Rows {
  AttentionShape n;
  std::int64_t width() const { return (n.H + 2 * n.G) * n.D; }
  std::int64_t group(std::int64_t h) const { return h / (n.H / n.G); }
  std::int64_t q(std::int64_t t, std::int64_t h) const { return t * width() + h * n.D; }
  std::int64_t k(std::int64_t t, std::int64_t h) const {
    return t * width() + (n.H + group(h)) * n.D;
  }
  std::int64_t v(std::int64_t t, std::int64_t h) const { return k(t, h) + n.G * n.D; }
};

// The first key that query i of sequence b sees.
template <class Op>
std::int64_t first_key(const Op& a, std::int64_t b, std::int64_t i) {
  return a.positions.absent()
             ? 0
             : i - a.positions.template ptr<const std::int32_t>()[b * a.shape.S + i];
}

double dot(const Doubles& x, std::int64_t x0, const Doubles& y, std::int64_t y0, std::int64_t D) {
  double sum = 0;
  for (std::int64_t d = 0; d < D; ++d) {
    sum += x[x0 + d] * y[y0 + d];
  }
  return sum;
}

// What the probability of (b, h, query, key) is multiplied by: 0, or 1 / (1 - dropout).
class Keep {
 public:
  Keep(const AttentionShape& n, const Tensor& sample_ids, const Tensor& step_state) : n_(n) {
    if (n.dropout == 0) return;
    sample_ids_ = sample_ids.ptr<const std::int64_t>();
    const StepState& state = step_state_of(step_state);
    seed_ = state.seed;
    stream_ = dropout_stream(n.site, state.step);
  }
  double operator()(std::int64_t b, std::int64_t h, std::int64_t query, std::int64_t key) const {
    if (sample_ids_ == nullptr) return 1;
    const std::int64_t head = sample_ids_[b] * n_.num_all_heads + n_.first_head + h;
    const std::int64_t element = (head * n_.S + query) * n_.S + key;
    const bool keeps = dropout_keeps(seed_, stream_, static_cast<std::uint64_t>(element),
                                     dropout_threshold(n_.dropout));
    return keeps ? 1 / (1 - n_.dropout) : 0;
  }

 private:
  AttentionShape n_;
  const std::int64_t* sample_ids_ = nullptr;
  std::uint64_t seed_ = 0;
  std::uint64_t stream_ = 0;
};

// Turns scores into probabilities; the result is the log of the sum of exponentials.
double softmax(std::vector<double>& scores) {
  double max = -std::numeric_limits<double>::infinity();
  for (const double score : scores) {
    max = std::fmax(max, score);
  }
  double sum = 0;
  for (const double score : scores) {
    sum += std::exp(score - max);
  }
  const double lse = max + std::log(sum);
  for (double& score : scores) {
    score = std::exp(score - lse);
  }
  return lse;
}

}  // namespace

void RefOps::exec(const AttentionFwd& a, const Tensor& /*workspace*/) {
  const AttentionShape& n = a.shape;
  const Rows rows{n};
  const Keep keep(n, a.sample_ids, a.step_state);
  const Doubles qkv(a.qkv);
  const Doubles slopes(a.slopes);
  Doubles o(a.o.count());
  Doubles lse(a.lse.count());
  for (std::int64_t bh = 0; bh < n.B * n.H; ++bh) {
    const std::int64_t b = bh / n.H;
    const std::int64_t h = bh % n.H;
    const double slope = slopes.empty() ? 0 : slopes[h];
    for (std::int64_t i = 0; i < n.S; ++i) {
      const std::int64_t ti = b * n.S + i;
      const std::int64_t first = first_key(a, b, i);
      std::vector<double> p;
      for (std::int64_t j = first; j <= i; ++j) {
        p.push_back(n.scale * dot(qkv, rows.q(ti, h), qkv, rows.k(b * n.S + j, h), n.D) +
                    slope * static_cast<double>(j - i));
      }
      lse[bh * n.S + i] = softmax(p);
      for (std::int64_t j = first; j <= i; ++j) {
        const double weight = p[static_cast<std::size_t>(j - first)] * keep(b, h, i, j);
        for (std::int64_t d = 0; d < n.D; ++d) {
          o[(ti * n.H + h) * n.D + d] += weight * qkv[rows.v(b * n.S + j, h) + d];
        }
      }
    }
  }
  o.store(a.o);
  lse.store(a.lse);
}

void RefOps::exec(const AttentionBwd& a, const Tensor& /*workspace*/) {
  const AttentionShape& n = a.shape;
  const Rows rows{n};
  const Keep keep(n, a.sample_ids, a.step_state);
  const Doubles qkv(a.qkv);
  const Doubles slopes(a.slopes);
  const Doubles d_o(a.do_);
  const Doubles o(a.o);
  const Doubles lse(a.lse);
  Doubles dqkv(a.dqkv.count());
  for (std::int64_t bh = 0; bh < n.B * n.H; ++bh) {
    const std::int64_t b = bh / n.H;
    const std::int64_t h = bh % n.H;
    const double slope = slopes.empty() ? 0 : slopes[h];
    for (std::int64_t i = 0; i < n.S; ++i) {
      const std::int64_t ti = b * n.S + i;
      const std::int64_t q = rows.q(ti, h);
      const std::int64_t o_row = (ti * n.H + h) * n.D;
      // The sum over keys of p * dp.
      const double delta = dot(d_o, o_row, o, o_row, n.D);
      for (std::int64_t j = first_key(a, b, i); j <= i; ++j) {
        const std::int64_t k = rows.k(b * n.S + j, h);
        const std::int64_t v = rows.v(b * n.S + j, h);
        const double p = std::exp(n.scale * dot(qkv, q, qkv, k, n.D) +
                                  slope * static_cast<double>(j - i) - lse[bh * n.S + i]);
        const double kept = keep(b, h, i, j);
        const double ds = n.scale * p * (kept * dot(d_o, o_row, qkv, v, n.D) - delta);
        for (std::int64_t d = 0; d < n.D; ++d) {
          dqkv[q + d] += ds * qkv[k + d];
          dqkv[k + d] += ds * qkv[q + d];
          dqkv[v + d] += kept * p * d_o[o_row + d];
        }
      }
    }
  }
  dqkv.store(a.dqkv);
}

void RefOps::exec(const AttentionCached& a, const Tensor& /*workspace*/) {
  const AttentionShape& n = a.shape;
  const Rows rows{n};
  const std::int64_t M = a.k_cache.shape[1];
  const Doubles qkv(a.qkv);
  const Doubles slopes(a.slopes);
  Doubles k(a.k_cache);
  Doubles v(a.v_cache);
  Doubles o(a.o.count());
  const auto cached = [&](std::int64_t b, std::int64_t position, std::int64_t g) {
    return ((b * M + position) * n.G + g) * n.D;
  };
  for (std::int64_t t = 0; t < n.B * n.S; ++t) {
    for (std::int64_t gd = 0; gd < n.G * n.D; ++gd) {
      const std::int64_t to = cached(t / n.S, a.start + t % n.S, 0) + gd;
      k[to] = qkv[rows.k(t, 0) + gd];
      v[to] = qkv[rows.v(t, 0) + gd];
    }
  }
  for (std::int64_t t = 0; t < n.B * n.S; ++t) {
    const std::int64_t b = t / n.S;
    const std::int64_t position = a.start + t % n.S;
    for (std::int64_t h = 0; h < n.H; ++h) {
      const double slope = slopes.empty() ? 0 : slopes[h];
      std::vector<double> p;
      for (std::int64_t j = 0; j <= position; ++j) {
        p.push_back(n.scale * dot(qkv, rows.q(t, h), k, cached(b, j, rows.group(h)), n.D) +
                    slope * static_cast<double>(j - position));
      }
      softmax(p);
      for (std::int64_t j = 0; j <= position; ++j) {
        for (std::int64_t d = 0; d < n.D; ++d) {
          o[(t * n.H + h) * n.D + d] +=
              p[static_cast<std::size_t>(j)] * v[cached(b, j, rows.group(h)) + d];
        }
      }
    }
  }
  o.store(a.o);
  k.store(a.k_cache);
  v.store(a.v_cache);
}

}  // namespace orthant
