// CPU kernels of layer_norm.
//
// A row is read three times, and stays in the nearest cache meanwhile: its sum, the sums of its deviations and their squares,
// the result.  The sum of deviations corrects the mean, which alone would be off by half a unit of its last place: too much where
// the mean is much larger than the deviations.  Sums run over lanes that are joined in a fixed order.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/norm_kernels.h>
#include <tandem/ops/row_math.h>

namespace tandem::inline v0::cpu {
namespace {

constexpr int64_t kGrainElements = 1 << 14;
constexpr int64_t kLanes = kRowLanes;

float fma_of(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
double fma_of(double a, double b, double c) { return __builtin_fma(a, b, c); }

template <class C>
struct Pair {
  C a;
  C b;
};

/// The sums of f(i).a and f(i).b over [0, n).
template <class C, class F>
Pair<C> sum_pairs(int64_t n, F f) {
  C a[kLanes] = {}, b[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma GCC ivdep
    for (int64_t l = 0; l < kLanes; ++l) {
      const Pair<C> p = f(i + l);
      a[l] += p.a;
      b[l] += p.b;
    }
  }
  for (int64_t l = 0; i < n; ++i, ++l) {
    const Pair<C> p = f(i);
    a[l] += p.a;
    b[l] += p.b;
  }
  const auto plus = [](C x, C y) { return x + y; };
  return {join_lanes(a, plus), join_lanes(b, plus)};
}

/// Rows of a piece of backward, whose sums for weight and bias are formed together.
int64_t piece_rows(int64_t n) { return std::clamp<int64_t>(kGrainElements / std::max<int64_t>(1, n), 16, 256); }
int64_t num_pieces(int64_t rows, int64_t n) { return (rows + piece_rows(n) - 1) / piece_rows(n); }

template <class T>
void forward_row(int64_t n, double eps, const T* __restrict x, const T* __restrict weight, const T* __restrict bias,
                 RowCompute<T>* __restrict statistics, T* __restrict out) {
  using C = RowCompute<T>;
  const C mean = row_sum<C>(n, [&](int64_t i) { return static_cast<C>(x[i]); }) / static_cast<C>(n);
  const Pair<C> sums = sum_pairs<C>(n, [&](int64_t i) {
    const C deviation = static_cast<C>(x[i]) - mean;
    return Pair<C>{deviation, deviation * deviation};
  });
  const C correction = sums.a / static_cast<C>(n);
  const C variance = sums.b / static_cast<C>(n) - correction * correction;
  const C rstd = C(1) / std::sqrt(variance + static_cast<C>(eps));
  statistics[0] = mean;
  statistics[1] = correction;
  statistics[2] = rstd;
  const C shift = -correction * rstd;
  const auto normal = [&](int64_t i) { return fma_of(static_cast<C>(x[i]) - mean, rstd, shift); };
  if (weight != nullptr && bias != nullptr) {
    for (int64_t i = 0; i < n; ++i) {
      out[i] = static_cast<T>(fma_of(normal(i), static_cast<C>(weight[i]), static_cast<C>(bias[i])));
    }
  } else if (weight != nullptr) {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(normal(i) * static_cast<C>(weight[i]));
  } else if (bias != nullptr) {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(normal(i) + static_cast<C>(bias[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(normal(i));
  }
}

/// Adds a row to the sums for weight and bias, and writes the input's gradient unless `out` is null.
template <class T>
void backward_row(int64_t n, const T* __restrict x, const T* __restrict weight,
                  const RowCompute<T>* __restrict statistics, const T* __restrict grad,
                  RowCompute<T>* __restrict weight_sum, RowCompute<T>* __restrict bias_sum, T* __restrict out) {
  using C = RowCompute<T>;
  const C mean = statistics[0], rstd = statistics[2], shift = -statistics[1] * rstd;
  const auto normal = [&](int64_t i) { return fma_of(static_cast<C>(x[i]) - mean, rstd, shift); };
  const auto weighted = [&](int64_t i) {
    return weight == nullptr ? static_cast<C>(grad[i]) : static_cast<C>(grad[i]) * static_cast<C>(weight[i]);
  };
  const Pair<C> sums = sum_pairs<C>(n, [&](int64_t i) {
    const C value = normal(i), gradient = static_cast<C>(grad[i]), part = weighted(i);
    weight_sum[i] = fma_of(gradient, value, weight_sum[i]);
    bias_sum[i] += gradient;
    return Pair<C>{part, part * value};
  });
  if (out == nullptr) return;
  const C offset = -rstd * (sums.a / static_cast<C>(n)), slope = -rstd * (sums.b / static_cast<C>(n));
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(fma_of(normal(i), slope, fma_of(weighted(i), rstd, offset)));
}

}  // namespace

void layer_norm(const KernelContext&, DType dtype, int64_t rows, int64_t n, double eps, const void* in,
                const void* weight, const void* bias, void* statistics, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = RowCompute<T>;
    parallel_for(rows, std::max<int64_t>(1, kGrainElements / n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        forward_row(n, eps, static_cast<const T*>(in) + row * n, static_cast<const T*>(weight),
                    static_cast<const T*>(bias), static_cast<C*>(statistics) + row * kLayerNormStatistics,
                    static_cast<T*>(out) + row * n);
      }
    });
  });
}

int64_t layer_norm_workspace_bytes(DType dtype, int64_t rows, int64_t n) {
  return 2 * num_pieces(rows, n) * n * (dtype == kFloat64 ? 8 : 4);
}

void layer_norm_backward(const KernelContext&, DType dtype, int64_t rows, int64_t n, const void* in, const void* weight,
                         const void* statistics, const void* grad, void* workspace,
                         const LayerNormGradients& gradients) {
  const int64_t pieces = num_pieces(rows, n), length = piece_rows(n);
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = RowCompute<T>;
    C* sums = static_cast<C*>(workspace);
    parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        C* weight_sum = sums + 2 * piece * n;
        std::fill(weight_sum, weight_sum + 2 * n, C(0));
        for (int64_t row = piece * length; row < std::min(rows, (piece + 1) * length); ++row) {
          T* to = gradients.in == nullptr ? nullptr : static_cast<T*>(gradients.in) + row * n;
          backward_row(n, static_cast<const T*>(in) + row * n, static_cast<const T*>(weight),
                       static_cast<const C*>(statistics) + row * kLayerNormStatistics,
                       static_cast<const T*>(grad) + row * n, weight_sum, weight_sum + n, to);
        }
      }
    });
    const auto finish = [&](const C* from, bool accumulate, void* slot) {
      if (slot == nullptr) return;
      T* to = static_cast<T*>(slot);
      for (int64_t i = 0; i < n; ++i) {
        double sum = 0;
        for (int64_t piece = 0; piece < pieces; ++piece) sum += static_cast<double>(from[2 * piece * n + i]);
        if (accumulate) sum += static_cast<double>(to[i]);
        to[i] = static_cast<T>(static_cast<C>(sum));
      }
    };
    finish(sums, gradients.accumulate_weight, gradients.weight);
    finish(sums + n, gradients.accumulate_bias, gradients.bias);
  });
}

}  // namespace tandem::inline v0::cpu
