// One-dimensional transforms of Winograd's minimal filtering with six points: 0, 1, -1, 2, -2 and infinity. Private to
// ops/.
//
// A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", 2015. M adjacent results of a filter with R =
// 7 - M taps, y = A^T ((G g) * (B^T d)), take six multiplications for the six inputs d. Each transform is applied to
// the columns and then to the rows of a tile. The letters are as in the paper.
#pragma once

#include <cstdint>

namespace tandem { inline namespace v0 {

/// Eight channels at any address.
typedef float Vec __attribute__((vector_size(32), aligned(4), may_alias));
constexpr int64_t kLanes = 8;
constexpr int64_t kPoints = 6;

/// B^T d.
inline void transform_input(const Vec* d, Vec* out) {
  const Vec a = d[4] - 4 * d[2], b = d[3] - 4 * d[1], c = d[4] - d[2], e = 2 * (d[3] - d[1]);
  out[0] = (4 * d[0] - 5 * d[2]) + d[4];
  out[1] = a + b;
  out[2] = a - b;
  out[3] = c + e;
  out[4] = c - e;
  out[5] = (4 * d[1] - 5 * d[3]) + d[5];
}

/// B v: from gradients of transformed inputs to gradients of inputs.
inline void transform_input_gradient(const Vec* v, Vec* out) {
  const Vec sum1 = v[1] + v[2], difference1 = v[1] - v[2], sum2 = v[3] + v[4], difference2 = v[3] - v[4];
  out[0] = 4 * v[0];
  out[1] = 4 * (v[5] - difference1) - 2 * difference2;
  out[2] = -5 * v[0] - 4 * sum1 - sum2;
  out[3] = difference1 + 2 * difference2 - 5 * v[5];
  out[4] = v[0] + sum1 + sum2;
  out[5] = v[5];
}

/// The transforms that depend on the number of taps R.
template <int R>
struct Winograd {
  static constexpr int64_t kTaps = R;
  static constexpr int64_t kResults = 7 - R;
  static_assert(R == 3 || R == 5);

  /// G g.
  static void filter(const Vec* g, Vec* out) {
    Vec even = g[0] + g[2], odd = g[1], even2 = g[0] + 4 * g[2], odd2 = 2 * g[1];
    if constexpr (R == 5) {
      even += g[4];
      odd += g[3];
      even2 += 16 * g[4];
      odd2 += 8 * g[3];
    }
    out[0] = g[0] * (1.0f / 4);
    out[1] = (even + odd) * (-1.0f / 6);
    out[2] = (even - odd) * (-1.0f / 6);
    out[3] = (even2 + odd2) * (1.0f / 24);
    out[4] = (even2 - odd2) * (1.0f / 24);
    out[5] = g[R - 1];
  }

  /// A^T m.
  static void results(const Vec* m, Vec* out) {
    const Vec sum1 = m[1] + m[2], difference1 = m[1] - m[2], sum2 = m[3] + m[4], difference2 = m[3] - m[4];
    out[0] = m[0] + sum1 + sum2;
    if constexpr (R == 3) {
      out[1] = difference1 + 2 * difference2;
      out[2] = sum1 + 4 * sum2;
      out[3] = difference1 + 8 * difference2 + m[5];
    } else {
      out[1] = difference1 + 2 * difference2 + m[5];
    }
  }

  /// A y, for gradients y of the results.
  static void gradients(const Vec* y, Vec* out) {
    Vec even = y[0], odd = y[1], even2 = y[0], odd2 = 2 * y[1];
    if constexpr (R == 3) {
      even += y[2];
      odd += y[3];
      even2 += 4 * y[2];
      odd2 += 8 * y[3];
    }
    out[0] = y[0];
    out[1] = even + odd;
    out[2] = even - odd;
    out[3] = even2 + odd2;
    out[4] = even2 - odd2;
    out[5] = y[kResults - 1];
  }

  /// G^T u: from gradients of transformed filters to gradients of taps.
  static void filter_gradients(const Vec* u, Vec* out) {
    const Vec sum1 = (u[1] + u[2]) * (-1.0f / 6), difference1 = (u[1] - u[2]) * (-1.0f / 6);
    const Vec sum2 = (u[3] + u[4]) * (1.0f / 24), difference2 = (u[3] - u[4]) * (1.0f / 24);
    out[0] = u[0] * (1.0f / 4) + sum1 + sum2;
    out[1] = difference1 + 2 * difference2;
    out[2] = sum1 + 4 * sum2;
    if constexpr (R == 3) {
      out[2] += u[5];
    } else {
      out[3] = difference1 + 8 * difference2;
      out[4] = sum1 + 16 * sum2 + u[5];
    }
  }
};

}}  // namespace tandem::v0
