// CPU kernels of layer_norm, and of rms_norm, whose mean is 0.
//
// A row is read three times, from the L1 cache after the first time: for its sum, for the sums of its deviations and
// their squares, and for the result. The sum of deviations corrects the mean, whose rounding error of half a unit in
// the last place would be too large if the mean is much larger than the deviations. If the correction is large, which
// only happens in wide rows, the sums of deviations are computed again with the corrected mean. Sums are accumulated in
// vector lanes, which are added in a fixed order.
#include <algorithm>
#include <cmath>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/common/simd.h>
#include <tandem/ops/norm/norm_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {
namespace {

constexpr int64_t kGrainElements = 1 << 14;

/// Two sums that are accumulated together.
template <class V>
struct Sums {
  V a;
  V b;
};

/// The sums over [i, n) that f.operator()<V>(i, sums) accumulates, with V as in simd.h. kParts independent chains hide
/// the latency of additions.
template <class C, int kParts, class F>
inline __attribute__((always_inline)) Sums<C> sum_chunk(int64_t i, int64_t n, F f) {
  constexpr int64_t kWidth = kVecSize<C>;
  using V = Vec<C>;
  static_assert(kParts == 2 || kParts == 4);
  Sums<V> first = {}, second = {}, third = {}, fourth = {};  // not an array, which the compiler would keep in memory
  for (; i + kParts * kWidth <= n; i += kParts * kWidth) {
    f.template operator()<V>(i, first);
    f.template operator()<V>(i + kWidth, second);
    if constexpr (kParts == 4) {
      f.template operator()<V>(i + 2 * kWidth, third);
      f.template operator()<V>(i + 3 * kWidth, fourth);
    }
  }
  for (; i + kWidth <= n; i += kWidth) f.template operator()<V>(i, first);
  Sums<C> sum = {sum_vec((first.a + second.a) + (third.a + fourth.a)),
                 sum_vec((first.b + second.b) + (third.b + fourth.b))};
  for (; i < n; ++i) f.template operator()<C>(i, sum);
  return sum;
}

/// The sums over [0, n), as sum_chunk. Sums of chunks are added in float64.
template <class C, int kParts, class F>
inline __attribute__((always_inline)) Sums<C> sum_row(int64_t n, F f) {
  Sums<double> total = {};
  for (int64_t i = 0; i < n; i += kLayerNormChunk) {
    const Sums<C> chunk = sum_chunk<C, kParts>(i, std::min(n, i + kLayerNormChunk), f);
    total.a += static_cast<double>(chunk.a);
    total.b += static_cast<double>(chunk.b);
  }
  return {static_cast<C>(total.a), static_cast<C>(total.b)};
}

/// Rows per piece of backward; each piece has its own sums for weight and bias.
int64_t piece_rows(int64_t n) { return std::clamp<int64_t>(kGrainElements / std::max<int64_t>(1, n), 16, 256); }
/// Elements between a piece's sums for weight and for bias. Not a multiple of 4096 bytes for common n: loads 4096 bytes
/// after a recent store would be stalled by false dependences (4K aliasing).
int64_t sums_apart(int64_t n) { return n + 16; }
int64_t num_pieces(int64_t rows, int64_t n) { return (rows + piece_rows(n) - 1) / piece_rows(n); }

/// The row's mean in two parts, and 1 / sqrt(var + eps).
template <class C>
struct Statistics {
  C mean;
  C correction;
  C rstd;

  /// The normalized elements at x.
  template <class V, class T>
  inline __attribute__((always_inline)) V normal(const T* x) const {
    return fma_of(load_as<V>(x) - broadcast<V>(mean), broadcast<V>(rstd), broadcast<V>(-correction * rstd));
  }
};

template <class T>
void forward_row(bool centres, int64_t n, double eps, const T* x, const T* weight, const T* bias,
                 Accumulator<T>* statistics, T* out) {
  using C = Accumulator<T>;
  const C count = static_cast<C>(n);
  const auto add_element = [&]<class V>(int64_t i, Sums<V>& sum) { sum.a += load_as<V>(x + i); };
  C mean = centres ? sum_row<C, 4>(n, add_element).a / count : C(0), correction = 0, variance = 0;
  for (bool is_first = true;; is_first = false) {
    const Sums<C> sums = sum_row<C, 4>(n, [&]<class V>(int64_t i, Sums<V>& sum) {
      const V deviation = load_as<V>(x + i) - broadcast<V>(mean);
      sum.a += deviation;
      sum.b = fma_of(deviation, deviation, sum.b);
    });
    if (centres) correction = sums.a / count;
    variance = sums.b / count - correction * correction;
    if (!is_first || !is_large_correction(correction, variance)) break;
    mean += correction;
  }
  const Statistics<C> row = {mean, correction, C(1) / std::sqrt(variance + static_cast<C>(eps))};
  statistics[0] = row.mean;
  statistics[1] = row.correction;
  statistics[2] = row.rstd;
  if (weight != nullptr && bias != nullptr) {
    for_vecs<C>(n, [&]<class V>(int64_t i) {
      store_as(out + i, fma_of(row.template normal<V>(x + i), load_as<V>(weight + i), load_as<V>(bias + i)));
    });
  } else if (weight != nullptr) {
    for_vecs<C>(n,
                [&]<class V>(int64_t i) { store_as(out + i, row.template normal<V>(x + i) * load_as<V>(weight + i)); });
  } else if (bias != nullptr) {
    for_vecs<C>(n,
                [&]<class V>(int64_t i) { store_as(out + i, row.template normal<V>(x + i) + load_as<V>(bias + i)); });
  } else {
    for_vecs<C>(n, [&]<class V>(int64_t i) { store_as(out + i, row.template normal<V>(x + i)); });
  }
}

/// Adds a row to the sums for weight and bias, and writes the gradient of the input to `out`, or adds it, unless `out`
/// is null.
template <bool kWeight, class T>
void backward_row(bool centres, int64_t n, const T* x, const T* weight, const Accumulator<T>* statistics, const T* grad,
                  Accumulator<T>* weight_sum, Accumulator<T>* bias_sum, bool accumulate, T* out) {
  using C = Accumulator<T>;
  const Statistics<C> row = {statistics[0], statistics[1], statistics[2]};
  const auto weighted = [&]<class V>(int64_t i) {
    if constexpr (kWeight) {
      return load_as<V>(grad + i) * load_as<V>(weight + i);
    } else {
      return load_as<V>(grad + i);
    }
  };
  const Sums<C> sums = sum_row<C, 2>(n, [&]<class V>(int64_t i, Sums<V>& sum) {
    const V value = row.template normal<V>(x + i), gradient = load_as<V>(grad + i);
    const V part = weighted.template operator()<V>(i);
    store_as(weight_sum + i, fma_of(gradient, value, load_as<V>(weight_sum + i)));
    store_as(bias_sum + i, gradient + load_as<V>(bias_sum + i));
    sum.a += part;
    sum.b = fma_of(part, value, sum.b);
  });
  if (out == nullptr) return;
  // The mean is subtracted before multiplying by rstd, which is large for nearly constant rows, so that equal gradients
  // give exactly 0.
  const C count = static_cast<C>(n), mean = centres ? sums.a / count : C(0);
  const C slope = -row.rstd * row.rstd / count * sums.b;
  const auto gradient = [&]<class V>(int64_t i) {
    const V rest =
        fma_of(load_as<V>(x + i) - broadcast<V>(row.mean), broadcast<V>(slope), broadcast<V>(-row.correction * slope));
    return fma_of(weighted.template operator()<V>(i) - broadcast<V>(mean), broadcast<V>(row.rstd), rest);
  };
  if (accumulate) {
    for_vecs<C>(
        n, [&]<class V>(int64_t i) { store_as(out + i, gradient.template operator()<V>(i) + load_as<V>(out + i)); });
  } else {
    for_vecs<C>(n, [&]<class V>(int64_t i) { store_as(out + i, gradient.template operator()<V>(i)); });
  }
}

}  // namespace

void layer_norm(const KernelContext&, DType dtype, DType, bool centres, int64_t rows, int64_t n, double eps,
                const void* in, const void* added, const void* weight, const void* bias, void* sum, void* statistics,
                void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Accumulator<T>;
    parallel_for(rows, std::max<int64_t>(1, kGrainElements / n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* x = static_cast<const T*>(in) + row * n;
        if (added != nullptr) {
          const T* const y = static_cast<const T*>(added) + row * n;
          T* const to = static_cast<T*>(sum) + row * n;
          for_vecs<C>(n, [&]<class V>(int64_t i) { store_as(to + i, load_as<V>(x + i) + load_as<V>(y + i)); });
          x = to;
        }
        forward_row(centres, n, eps, x, static_cast<const T*>(weight), static_cast<const T*>(bias),
                    static_cast<C*>(statistics) + row * kLayerNormStatistics, static_cast<T*>(out) + row * n);
      }
    });
  });
}

int64_t layer_norm_workspace_bytes(const KernelContext&, DType dtype, int64_t rows, int64_t n) {
  return 2 * num_pieces(rows, n) * sums_apart(n) * (dtype == kFloat64 ? 8 : 4);
}

void layer_norm_backward(const KernelContext&, DType dtype, DType, bool centres, int64_t rows, int64_t n,
                         const void* in, const void* weight, const void* statistics, const void* grad, void* workspace,
                         const LayerNormGradients& gradients) {
  const int64_t pieces = num_pieces(rows, n), length = piece_rows(n), apart = sums_apart(n);
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Accumulator<T>;
    C* sums = static_cast<C*>(workspace);
    parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        C* weight_sum = sums + 2 * piece * apart;
        std::fill(weight_sum, weight_sum + apart + n, C(0));
        for (int64_t row = piece * length; row < std::min(rows, (piece + 1) * length); ++row) {
          T* to = gradients.in == nullptr ? nullptr : static_cast<T*>(gradients.in) + row * n;
          const auto run = weight == nullptr ? &backward_row<false, T> : &backward_row<true, T>;
          run(centres, n, static_cast<const T*>(in) + row * n, static_cast<const T*>(weight),
              static_cast<const C*>(statistics) + row * kLayerNormStatistics, static_cast<const T*>(grad) + row * n,
              weight_sum, weight_sum + apart, gradients.accumulate_in, to);
        }
      }
    });
    const auto finish = [&](const C* from, bool accumulate, void* slot) {
      if (slot == nullptr) return;
      T* to = static_cast<T*>(slot);
      for (int64_t i = 0; i < n; ++i) {
        double sum = 0;
        for (int64_t piece = 0; piece < pieces; ++piece) sum += static_cast<double>(from[2 * piece * apart + i]);
        if (accumulate) sum += static_cast<double>(to[i]);
        to[i] = static_cast<T>(sum);
      }
    };
    finish(sums, gradients.accumulate_weight, gradients.weight);
    finish(sums + apart, gradients.accumulate_bias, gradients.bias);
  });
}

}}}  // namespace tandem::v0::cpu
