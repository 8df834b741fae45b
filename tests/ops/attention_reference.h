// Attention by its formula, in float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <tandem/tests/support/op_case.h>

namespace tandem::testing { namespace attention {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Attention by its formula: `score_mask(batch, t, s)` is added to the scores.
template <class Mask>
inline Dense reference(const Dense& q, const Dense& k, const Dense& v, double scale, Mask score_mask) {
  const size_t dims = q.shape.size();
  const int64_t T = q.shape[dims - 2], S = k.shape[dims - 2], d = q.shape[dims - 1], e = v.shape[dims - 1];
  Shape shape = q.shape;
  shape.back() = e;
  Dense out = dense_zeros(shape);
  const int64_t batches = T * d == 0 ? 0 : q.num_elements() / (T * d);
  for (int64_t b = 0; b < batches; ++b) {
    for (int64_t t = 0; t < T; ++t) {
      std::vector<double> weights(static_cast<size_t>(S));
      double max = -kInfinity, sum = 0;
      for (int64_t s = 0; s < S; ++s) {
        double score = 0;
        for (int64_t i = 0; i < d; ++i) score += q[(b * T + t) * d + i] * k[(b * S + s) * d + i];
        weights[static_cast<size_t>(s)] = score * scale + score_mask(b, t, s);
        max = std::max(max, weights[static_cast<size_t>(s)]);
      }
      if (max == -kInfinity) continue;
      for (double& weight : weights) sum += weight = std::exp(weight - max);
      for (int64_t s = 0; s < S; ++s) {
        for (int64_t i = 0; i < e; ++i) {
          out[(b * T + t) * e + i] += weights[static_cast<size_t>(s)] / sum * v[(b * S + s) * e + i];
        }
      }
    }
  }
  return out;
}

inline double causal_mask(int64_t t, int64_t s) { return s <= t ? 0 : -kInfinity; }

struct Sizes {
  Shape batch;
  int64_t queries, keys, head_dim, value_dim;
  bool is_causal = false;
};

inline Shape with(Shape shape, int64_t rows, int64_t columns) {
  shape.push_back(rows);
  shape.push_back(columns);
  return shape;
}

}}  // namespace tandem::testing::attention
