// CPU kernels of softmax and its logarithm.
#include <algorithm>
#include <cmath>
#include <limits>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/common/wide.h>
#include <tandem/ops/softmax/row_math.h>
#include <tandem/ops/softmax/softmax_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {
namespace {

/// Minimum number of elements per piece of parallel work.
constexpr int64_t kGrainElements = 1 << 14;
/// Columns of [outer, size, inner] that are processed together.
constexpr int64_t kColumns = 64;

template <class T>
void softmax_row(bool log, int64_t n, const T* x, T* out) {
  using C = RowCompute<T>;
  const C max = row_max(x, n);
  if constexpr (std::is_same_v<T, C>) {
    if (!log) {  // stores the exponentials in the output until their sum is known
      const C sum = row_sum<C>(n, [&](int64_t i) { return out[i] = exp_of_nonpositive(x[i] - max); });
      const C scale = C(1) / sum;
      for (int64_t i = 0; i < n; ++i) out[i] *= scale;
      return;
    }
  }
  const C sum = row_sum<C>(n, [&](int64_t i) { return exp_of_nonpositive(static_cast<C>(x[i]) - max); });
  if (log) {
    const C shift = std::log(sum);
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>((static_cast<C>(x[i]) - max) - shift);
  } else {
    const C scale = C(1) / sum;
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(exp_of_nonpositive(static_cast<C>(x[i]) - max) * scale);
  }
}

/// sums[c] = the sum of f(i, c) over i in [0, size), for c in [0, count).
template <class C, class F>
void sum_columns(int64_t size, int64_t count, C* sums, F f) {
  double totals[kColumns] = {};
  for (int64_t i = 0; i < size;) {
    C block[kColumns] = {};
    for (const int64_t end = std::min(size, i + kBlockTerms); i < end; ++i) {
      for (int64_t c = 0; c < count; ++c) block[c] += f(i, c);
    }
    for (int64_t c = 0; c < count; ++c) totals[c] += static_cast<double>(block[c]);
  }
  for (int64_t c = 0; c < count; ++c) sums[c] = static_cast<C>(totals[c]);
}

/// Processes `count` adjacent columns of [size, inner].
template <class T>
void softmax_columns(bool log, int64_t size, int64_t inner, int64_t count, const T* x, T* out) {
  using C = RowCompute<T>;
  C max[kColumns], sum[kColumns];
  for (int64_t c = 0; c < count; ++c) max[c] = -std::numeric_limits<C>::infinity();
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t c = 0; c < count; ++c) {
      const C value = static_cast<C>(x[i * inner + c]);
      max[c] = value > max[c] ? value : max[c];  // a NaN dropped here makes the sum NaN
    }
  }
  sum_columns(size, count, sum,
              [&](int64_t i, int64_t c) { return exp_of_nonpositive(static_cast<C>(x[i * inner + c]) - max[c]); });
  for (int64_t c = 0; c < count; ++c) sum[c] = log ? std::log(sum[c]) : C(1) / sum[c];
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t c = 0; c < count; ++c) {
      const C value = static_cast<C>(x[i * inner + c]) - max[c];
      out[i * inner + c] = static_cast<T>(log ? value - sum[c] : exp_of_nonpositive(value) * sum[c]);
    }
  }
}

template <class T>
void backward_row(bool log, int64_t n, const T* grad, const T* y, T* out) {
  using C = RowCompute<T>;
  if (log) {
    const C sum = row_sum<C>(n, [&](int64_t i) { return static_cast<C>(grad[i]); });
    for (int64_t i = 0; i < n; ++i) {
      out[i] = static_cast<T>(static_cast<C>(grad[i]) - exp_of_nonpositive(static_cast<C>(y[i])) * sum);
    }
  } else {
    const C sum = row_sum<C>(n, [&](int64_t i) { return static_cast<C>(grad[i]) * static_cast<C>(y[i]); });
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(static_cast<C>(y[i]) * (static_cast<C>(grad[i]) - sum));
  }
}

template <class T>
void backward_columns(bool log, int64_t size, int64_t inner, int64_t count, const T* grad, const T* y, T* out) {
  using C = RowCompute<T>;
  C sum[kColumns];
  sum_columns(size, count, sum, [&](int64_t i, int64_t c) {
    const int64_t at = i * inner + c;
    return log ? static_cast<C>(grad[at]) : static_cast<C>(grad[at]) * static_cast<C>(y[at]);
  });
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t c = 0; c < count; ++c) {
      const int64_t at = i * inner + c;
      const C g = static_cast<C>(grad[at]), value = static_cast<C>(y[at]);
      out[at] = static_cast<T>(log ? g - exp_of_nonpositive(value) * sum[c] : value * (g - sum[c]));
    }
  }
}

/// Calls row(offset) for contiguous rows, columns(offset, count) for pieces of strided rows.
template <class Row, class Columns>
void for_rows(Extents shape, Row row, Columns columns) {
  if (shape.size == 0) return;
  if (shape.inner == 1) {
    parallel_for(shape.outer, std::max<int64_t>(1, kGrainElements / shape.size), [&](int64_t begin, int64_t end) {
      run_wide([&] {
        for (int64_t i = begin; i < end; ++i) row(i * shape.size);
      });
    });
    return;
  }
  const int64_t pieces = (shape.inner + kColumns - 1) / kColumns;
  const int64_t grain =
      std::max<int64_t>(1, kGrainElements / (shape.size * std::min(kColumns, std::max<int64_t>(1, shape.inner))));
  parallel_for(shape.outer * pieces, grain, [&](int64_t begin, int64_t end) {
    run_wide([&] {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t column = i % pieces * kColumns;
        columns(i / pieces * shape.size * shape.inner + column, std::min(kColumns, shape.inner - column));
      }
    });
  });
}

}  // namespace

void softmax(const KernelContext&, DType dtype, Extents shape, bool log, const void* input, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    const T* x = static_cast<const T*>(input);
    T* y = static_cast<T*>(out);
    for_rows(
        shape, [&](int64_t at) { softmax_row(log, shape.size, x + at, y + at); },
        [&](int64_t at, int64_t count) { softmax_columns(log, shape.size, shape.inner, count, x + at, y + at); });
  });
}

void softmax_backward(const KernelContext&, DType dtype, Extents shape, bool log, const void* grad, const void* output,
                      void* grad_input) {
  visit_floating_dtype(dtype, [&]<class T>() {
    const T* g = static_cast<const T*>(grad);
    const T* y = static_cast<const T*>(output);
    T* x = static_cast<T*>(grad_input);
    for_rows(
        shape, [&](int64_t at) { backward_row(log, shape.size, g + at, y + at, x + at); },
        [&](int64_t at, int64_t count) {
          backward_columns(log, shape.size, shape.inner, count, g + at, y + at, x + at);
        });
  });
}

}}}  // namespace tandem::v0::cpu
