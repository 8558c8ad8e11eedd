// Dropout of attention where cuDNN computes it: its masks are read off, and what is computed with
// them is compared with formulas in double.
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/ops/attention_cases.h"
#include "tests/support/close.h"

namespace orthant {
namespace {

// No more queries than elements of a head: values that are rows of the identity then show the mask.
const AttentionSize kSizes[] = {{2, 64, 4, 4, 64, false, 0.1},
                                {1, 128, 4, 2, 128, false, 0.5},
                                {2, 101, 3, 3, 128, true, 0.3},
                                {1, 250, 4, 1, 256, false, 0.2},
                                {2, 128, 2, 2, 128, false, 0.25, {33, 64, 1}}};

class CudaDropout : public testing::TestWithParam<AttentionSize> {
 protected:
  void SetUp() override {
    if (gpus().empty()) GTEST_SKIP() << "no GPU is here";
  }
};

std::size_t index_of(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// Calls f(b, head, query, first key that it sees).
template <class F>
void for_each_row(const AttentionSize& n, F&& f) {
  const std::vector<std::int64_t> positions =
      n.documents.empty() ? std::vector<std::int64_t>{} : document_positions(n);
  for (std::int64_t b = 0; b < n.B; ++b) {
    for (std::int64_t h = 0; h < n.H; ++h) {
      for (std::int64_t i = 0; i < n.S; ++i) {
        f(b, h, i, positions.empty() ? 0 : i - positions[index_of(b * n.S + i)]);
      }
    }
  }
}

// What `fwd` keeps, [B,H,S,S]: the elements of its output for values that are rows of the identity.
// Keys that a query does not see count as dropped.
std::vector<double> mask_of(OpBed& bed, const AttentionSize& n, AttentionFwd fwd) {
  const std::int64_t width = (n.H + 2 * n.G) * n.D;
  std::vector<double> qkv = values_of(bed.on_host(fwd.qkv));
  for (std::int64_t t = 0; t < n.B * n.S; ++t) {
    for (std::int64_t i = 0; i < n.G * n.D; ++i) {
      qkv[index_of(t * width + (n.H + n.G) * n.D + i)] = i % n.D == t % n.S ? 1 : 0;
    }
  }
  fwd.qkv = bed.floats(fwd.qkv.shape, fwd.qkv.dtype, qkv);
  fwd.o = bed.out(fwd.o.shape, fwd.o.dtype);
  bed.run(fwd);
  const std::vector<double> o = values_of(bed.on_host(fwd.o));
  std::vector<double> mask(index_of(n.B * n.H * n.S * n.S));
  for_each_row(n, [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t /*first*/) {
    for (std::int64_t j = 0; j < n.S; ++j) {
      const bool keeps = o[index_of(((b * n.S + i) * n.H + h) * n.D + j)] > 0;
      mask[index_of(((b * n.H + h) * n.S + i) * n.S + j)] = keeps ? 1 : 0;
    }
  });
  return mask;
}

// Outputs and gradients of masked attention, by the formulas.
struct Expected {
  std::vector<double> o, dqkv;
};

Expected expected_of(const AttentionSize& n, const std::vector<double>& qkv,
                     const std::vector<double>& d_o, const std::vector<double>& mask) {
  const std::int64_t width = (n.H + 2 * n.G) * n.D;
  const double scale = 1 / std::sqrt(static_cast<double>(n.D));
  const double inverse = 1 / (1 - n.dropout);
  const std::vector<double> slopes = alibi_slopes(n.H);
  Expected e{.o = std::vector<double>(d_o.size()), .dqkv = std::vector<double>(qkv.size())};
  const auto dot = [&](const double* a, const double* b) {
    return std::inner_product(a, a + n.D, b, 0.0);
  };
  const auto add = [&](double* to, double factor, const double* from) {
    for (std::int64_t d = 0; d < n.D; ++d) {
      to[d] += factor * from[d];
    }
  };
  for_each_row(n, [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t first) {
    const auto q = index_of((b * n.S + i) * width + h * n.D);
    const auto k = [&](std::int64_t j) {
      return index_of((b * n.S + j) * width + (n.H + h / (n.H / n.G)) * n.D);
    };
    const auto v = [&](std::int64_t j) {
      return k(j) + index_of(n.G * n.D);
    };
    const auto out = index_of(((b * n.S + i) * n.H + h) * n.D);
    const double* kept = &mask[index_of(((b * n.H + h) * n.S + i) * n.S)];
    std::vector<double> p(index_of(i + 1));
    double total = 0;
    for (std::int64_t j = first; j <= i; ++j) {
      const double distance = n.has_slopes ? slopes[index_of(h)] * static_cast<double>(j - i) : 0;
      p[index_of(j)] = std::exp(dot(&qkv[q], &qkv[k(j)]) * scale + distance);
      total += p[index_of(j)];
    }
    for (std::int64_t j = first; j <= i; ++j) {
      p[index_of(j)] /= total;
      add(&e.o[out], p[index_of(j)] * kept[j] * inverse, &qkv[v(j)]);
    }
    const double row_sum = dot(&d_o[out], &e.o[out]);
    for (std::int64_t j = first; j <= i; ++j) {
      const double factor = kept[j] * inverse;
      add(&e.dqkv[v(j)], p[index_of(j)] * factor, &d_o[out]);
      const double d_p = dot(&d_o[out], &qkv[v(j)]) * factor;
      const double d_s = p[index_of(j)] * (d_p - row_sum) * scale;
      add(&e.dqkv[q], d_s, &qkv[k(j)]);
      add(&e.dqkv[k(j)], d_s, &qkv[q]);
    }
  });
  return e;
}

TEST_P(CudaDropout, OutputsAndGradientsAreThoseOfItsMask) {
  const AttentionSize& n = GetParam();
  OpBed bed("cuda");
  const AttentionFwd fwd = attention_fwd(bed, n, DType::kBF16);
  const AttentionBwd bwd = attention_bwd(bed, fwd);
  bed.run(fwd);
  bed.run(bwd);
  const Expected e = expected_of(n, values_of(bed.on_host(fwd.qkv)),
                                 values_of(bed.on_host(bwd.do_)), mask_of(bed, n, fwd));
  expect_close(values_of(bed.on_host(fwd.o)), e.o, fwd.o.shape, 1e-2, "o");
  expect_close(values_of(bed.on_host(bwd.dqkv)), e.dqkv, bwd.dqkv.shape, 2e-2, "dqkv");
}

TEST_P(CudaDropout, KeepsItsShare) {
  const AttentionSize& n = GetParam();
  OpBed bed("cuda");
  const std::vector<double> mask = mask_of(bed, n, attention_fwd(bed, n, DType::kBF16));
  double num_seen = 0;
  for_each_row(n, [&](std::int64_t /*b*/, std::int64_t /*h*/, std::int64_t i, std::int64_t first) {
    num_seen += static_cast<double>(i - first + 1);
  });
  const double kept = std::accumulate(mask.begin(), mask.end(), 0.0);
  const double deviation = std::sqrt(num_seen * n.dropout * (1 - n.dropout));
  EXPECT_NEAR(kept, num_seen * (1 - n.dropout), 5 * deviation);
}

INSTANTIATE_TEST_SUITE_P(Sizes, CudaDropout, testing::ValuesIn(kSizes));

// In each head one late query has a gradient, 1 at its first element: of values it is what the
// forward has multiplied them with, and that again times values is the output.
void expect_one_mask(const AttentionSize& n) {
  OpBed bed("cuda");
  const AttentionFwd fwd = attention_fwd(bed, n, DType::kBF16);
  AttentionBwd bwd = attention_bwd(bed, fwd);
  const auto at = [&](std::int64_t b, std::int64_t h) {
    const std::int64_t query = n.S - 1 - 3 * h;
    return index_of(((b * n.S + query) * n.H + h) * n.D);
  };
  std::vector<double> d_o(index_of(fwd.o.count()));
  for (std::int64_t b = 0; b < n.B; ++b) {
    for (std::int64_t h = 0; h < n.H; ++h) {
      d_o[at(b, h)] = 1;
    }
  }
  bwd.do_ = bed.floats(fwd.o.shape, DType::kBF16, d_o);
  bed.run(fwd);
  bed.run(bwd);
  const std::vector<double> o = values_of(bed.on_host(fwd.o));
  const std::vector<double> qkv = values_of(bed.on_host(fwd.qkv));
  const std::vector<double> dqkv = values_of(bed.on_host(bwd.dqkv));
  std::vector<double> found;
  std::vector<double> expected;
  for (std::int64_t b = 0; b < n.B; ++b) {
    for (std::int64_t h = 0; h < n.H; ++h) {
      double sum = 0;
      for (std::int64_t j = 0; j < n.S; ++j) {
        const auto v = index_of(((b * n.S + j) * 3 * n.H + 2 * n.H + h) * n.D);
        sum += dqkv[v] * qkv[v];
      }
      expected.push_back(sum);
      found.push_back(o[at(b, h)]);
    }
  }
  expect_close(found, expected, {n.B, n.H}, 0.05, "o");
}

TEST(CudaDropoutMask, IsOneForwardAndBackwardOfLongSequences) {
  if (gpus().empty()) GTEST_SKIP() << "no GPU is here";
  expect_one_mask({2, 1024, 4, 4, 128, false, 0.1});
  expect_one_mask({3, 2000, 6, 6, 64, true, 0.2});
  expect_one_mask({3, 8192, 32, 32, 8, false, 0.1});  // more than 2^32 scores
}

TEST(CudaDropoutMask, IsAnotherForEachStepSiteSeedSampleAndHead) {
  if (gpus().empty()) GTEST_SKIP() << "no GPU is here";
  const AttentionSize n = {1, 64, 2, 2, 64, false, 0.5};
  OpBed bed("cuda");
  const AttentionFwd first = attention_fwd(bed, n, DType::kBF16);
  std::vector<AttentionFwd> others(5, first);
  others[0].step_state = bed.step_state({.step = 4, .seed = 7});
  others[1].step_state = bed.step_state({.step = 3, .seed = 8});
  others[2].shape.site = 6;
  others[3].sample_ids = bed.whole({1}, DType::kI64, std::vector<std::int64_t>{1001});
  others[4].shape.first_head = 0;
  const std::vector<double> mask = mask_of(bed, n, first);
  EXPECT_EQ(mask, mask_of(bed, n, first));
  for (std::size_t i = 0; i < others.size(); ++i) {
    const std::vector<double> other = mask_of(bed, n, others[i]);
    double num_equal = 0;
    for_each_row(n, [&](std::int64_t /*b*/, std::int64_t h, std::int64_t query, std::int64_t) {
      for (std::int64_t key = 0; key <= query; ++key) {
        const std::size_t at = index_of((h * n.S + query) * n.S + key);
        num_equal += mask[at] == other[at] ? 1 : 0;
      }
    });
    constexpr double kSeen = 2 * 64 * 65 / 2.0;
    EXPECT_NEAR(num_equal / kSeen, 0.5, 0.05) << i;
  }
}

}  // namespace
}  // namespace orthant
