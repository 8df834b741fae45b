// Attention by its formula, in float64.
#pragma once

#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace attention {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Attention by its formula: `score_mask(batch, t, s)` is added to the scores, `factor(i)` multiplies weight i in
/// row-major order. `group` consecutive batches of queries have the same keys and values.
template <class Mask, class Factor>
inline Dense reference(const Dense& q, const Dense& k, const Dense& v, double scale, Mask score_mask, int64_t group,
                       Factor factor) {
  const size_t dims = q.shape.size();
  const int64_t T = q.shape[dims - 2], S = k.shape[dims - 2], d = q.shape[dims - 1], e = v.shape[dims - 1];
  Shape shape = q.shape;
  shape.back() = e;
  Dense out = dense_zeros(shape);
  const int64_t batches = T * d == 0 ? 0 : q.numel() / (T * d);
  for (int64_t b = 0; b < batches; ++b) {
    const int64_t shared = b / group;
    for (int64_t t = 0; t < T; ++t) {
      std::vector<double> weights(static_cast<size_t>(S));
      double max = -kInfinity, sum = 0;
      for (int64_t s = 0; s < S; ++s) {
        double score = 0;
        for (int64_t i = 0; i < d; ++i) score += q[(b * T + t) * d + i] * k[(shared * S + s) * d + i];
        weights[static_cast<size_t>(s)] = score * scale + score_mask(b, t, s);
        max = std::max(max, weights[static_cast<size_t>(s)]);
      }
      if (max == -kInfinity) continue;
      for (double& weight : weights) sum += weight = std::exp(weight - max);
      for (int64_t s = 0; s < S; ++s) {
        const double weight = weights[static_cast<size_t>(s)] / sum * factor((b * T + t) * S + s);
        for (int64_t i = 0; i < e; ++i) out[(b * T + t) * e + i] += weight * v[(shared * S + s) * e + i];
      }
    }
  }
  return out;
}

template <class Mask>
inline Dense reference(const Dense& q, const Dense& k, const Dense& v, double scale, Mask score_mask,
                       int64_t group = 1) {
  return reference(q, k, v, scale, score_mask, group, [](int64_t) { return 1.0; });
}

inline double causal_mask(int64_t t, int64_t s) { return s <= t ? 0 : -kInfinity; }
/// 0 for the keys of a window around the position of query t, else -infinity.
inline double window_mask(const AttentionWindow& window, int64_t position, int64_t s) {
  const bool is_inside =
      (window.left < 0 || s >= position - window.left) && (window.right < 0 || s <= position + window.right);
  return is_inside ? 0 : -kInfinity;
}

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
