// CPU kernel of minima and maxima. Values are compared as integer keys, so that loops are vectorized for every dtype
// and NaN and zeros need no branches.
#include <algorithm>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/common/order_key.h>
#include <tandem/ops/common/wide.h>
#include <tandem/ops/reduce/reduce_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {

namespace {

constexpr int64_t kLanes = 32;
/// Columns that are reduced together.
constexpr int64_t kStripe = 64;
/// Elements per piece of parallel work.
constexpr int64_t kGrain = 32768;

template <class F>
void for_items(int64_t n, int64_t grain, const F& f) {
  parallel_for(n, grain, [&](int64_t begin, int64_t end) { run_wide([&] { f(begin, end); }); });
}

template <class T, bool kLargest>
struct Extremum {
  using Key = OrderKey<T>;

  static Key key(T x, bool equal_zeros) { return extremum_key(x, kLargest, equal_zeros); }

  /// The largest key of a row of n >= 1 elements, computed in lanes.
  template <bool kEqualZeros>
  static Key of_row(const T* in, int64_t n) {
    Key best[kLanes];
    std::fill(best, best + kLanes, key(in[0], kEqualZeros));
    const int64_t whole = n / kLanes * kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
      for (int64_t k = 0; k < kLanes; ++k) best[k] = std::max(best[k], key(in[i + k], kEqualZeros));
    }
    for (int64_t i = whole; i < n; ++i) best[0] = std::max(best[0], key(in[i], kEqualZeros));
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
      for (int64_t k = 0; k < half; ++k) best[k] = std::max(best[k], best[k + half]);
    }
    return best[0];
  }

  /// The first index of the extremum of a row.
  static int64_t find(const T* in, int64_t n) {
    const Key best = of_row<true>(in, n);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      Key equal = 0;
      for (int64_t k = 0; k < kLanes; ++k) equal = static_cast<Key>(equal | (key(in[i + k], true) == best));
      if (equal != 0) break;
    }
    while (key(in[i], true) != best) ++i;
    return i;
  }

  static void of_columns(const T* in, int64_t rows, int64_t step, int64_t width, T* values) {
    Key best[kStripe];
    for (int64_t k = 0; k < width; ++k) best[k] = key(in[k], false);
    for (int64_t r = 1; r < rows; ++r) {
      for (int64_t k = 0; k < width; ++k) best[k] = std::max(best[k], key(in[r * step + k], false));
    }
    for (int64_t k = 0; k < width; ++k) values[k] = value_of_key<T>(best[k], kLargest);
  }

  static void find_in_columns(const T* in, int64_t rows, int64_t step, int64_t width, int64_t* indices) {
    Key best[kStripe];
    for (int64_t k = 0; k < width; ++k) {
      best[k] = key(in[k], true);
      indices[k] = 0;
    }
    for (int64_t r = 1; r < rows; ++r) {
      for (int64_t k = 0; k < width; ++k) {
        const Key x = key(in[r * step + k], true);
        indices[k] = x > best[k] ? r : indices[k];
        best[k] = std::max(best[k], x);
      }
    }
  }

  static void run(const ReduceSizes& sizes, const T* in, T* values, int64_t* indices) {
    const int64_t stripes = (sizes.inner + kStripe - 1) / kStripe;
    const int64_t grain = std::max<int64_t>(kGrain / (sizes.reduce * std::min(kStripe, sizes.inner)), 1);
    for_items(sizes.outer * stripes, grain, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t o = item / stripes, column = item % stripes * kStripe;
        const T* from = in + o * sizes.reduce * sizes.inner + column;
        const int64_t at = o * sizes.inner + column, width = std::min(kStripe, sizes.inner - column);
        if (indices == nullptr) {
          if (sizes.inner == 1) {
            values[at] = value_of_key<T>(of_row<false>(from, sizes.reduce), kLargest);
          } else {
            of_columns(from, sizes.reduce, sizes.inner, width, values + at);
          }
          continue;
        }
        if (sizes.inner == 1) {
          indices[at] = find(from, sizes.reduce);
        } else {
          find_in_columns(from, sizes.reduce, sizes.inner, width, indices + at);
        }
        for (int64_t k = 0; k < width && values != nullptr; ++k) {
          values[at + k] = from[indices[at + k] * sizes.inner + k];
        }
      }
    });
  }
};

}  // namespace

void extremum(const KernelContext&, DType dtype, const ReduceSizes& sizes, bool largest, const void* in, void* values,
              int64_t* indices) {
  visit_dtype(dtype, [&]<class T>() {
    const auto run = largest ? Extremum<T, true>::run : Extremum<T, false>::run;
    run(sizes, static_cast<const T*>(in), static_cast<T*>(values), indices);
  });
}

}}}  // namespace tandem::v0::cpu
