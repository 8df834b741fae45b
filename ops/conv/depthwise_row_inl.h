// Implementation of depthwise_row.h, for a struct V of an instruction set: Number, Vector, kLanes, zero(), load(p),
// load_some(p, n), store(p, Vector), store_some(p, Vector, n), fma(a, b, c), add, positive(Vector) (negative -> 0)
// and load_members<D>(p, i): element l is p[l / D * D + i]. Everything here is in an anonymous namespace, so that the
// linker cannot use code for wider instructions elsewhere.
#pragma once

#include <tandem/ops/conv/depthwise_row.h>

namespace tandem { inline namespace v0 { namespace {

/// Results of a row that are summed together. With two vectors of channels there are enough independent sums for the
/// latency of additions.
constexpr int kTile = 4;

/// The first n elements if `partial`, else all.
template <class V, bool partial>
inline __attribute__((always_inline)) typename V::Vector load_lanes(const typename V::Number* p, long n) {
  if constexpr (partial) {
    return V::load_some(p, n);
  } else {
    return V::load(p);
  }
}
template <class V, bool partial>
inline __attribute__((always_inline)) void store_lanes(typename V::Number* p, typename V::Vector value, long n) {
  if constexpr (partial) {
    V::store_some(p, value, n);
  } else {
    V::store(p, value);
  }
}
template <class V, int D, bool partial>
inline __attribute__((always_inline)) typename V::Vector load_source(const typename V::Number* p, int i, long n) {
  if constexpr (D == 1) {
    return load_lanes<V, partial>(p, n);
  } else {
    return V::template load_members<D>(p, i);
  }
}

/// Calls f<N, partial>(channel, lanes) for N <= most vectors of channels at a time. Only groups of one channel have a
/// partial vector.
template <class V, int D, int most, class F>
inline __attribute__((always_inline)) void for_channels(long channels, const F& f) {
  long c = 0;
  for (; c + most * V::kLanes <= channels; c += most * V::kLanes) f.template operator()<most, false>(c, V::kLanes);
  if constexpr (most > 1) {
    for (; c + V::kLanes <= channels; c += V::kLanes) f.template operator()<1, false>(c, V::kLanes);
  }
  if constexpr (D == 1) {
    if (c < channels) f.template operator()<1, true>(c, channels - c);
  }
}

/// The results of P positions. K is the number of columns of taps, or 0.
template <class V, int D, int N, int P, int K, bool partial>
void sum_tile(const DepthwiseRow<typename V::Number>& r, long channel, long lanes, long x, long tap, long columns) {
  using T = typename V::Number;
  const long step = r.step * r.channels, tap_step = r.tap_step * r.channels;
  const T* from = r.source + (r.first + x * r.step + tap * r.tap_step) * r.channels + channel;
  const T* filter = r.filters + tap * r.filter_tap + channel;
  typename V::Vector sums[P][N];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) sums[p][n] = V::zero();
  }
  for (long i = 0; i < r.rows; ++i, from += r.source_row, filter += r.filter_row) {
    const T *pixel = from, *factor = filter;
#pragma GCC unroll 3
    for (long j = 0; j < (K != 0 ? K : columns); ++j, pixel += tap_step, factor += r.filter_tap) {
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
#pragma GCC unroll 8
        for (int d = 0; d < D; ++d) {
          const auto factors = load_lanes<V, partial>(factor + d * r.channels + n * V::kLanes, lanes);
#pragma GCC unroll 8
          for (int p = 0; p < P; ++p) {
            sums[p][n] =
                V::fma(load_source<V, D, partial>(pixel + p * step + n * V::kLanes, d, lanes), factors, sums[p][n]);
          }
        }
      }
    }
  }
  T* const to = r.results + x * r.result_step + channel;
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    const auto added = r.bias != nullptr ? load_lanes<V, partial>(r.bias + channel + n * V::kLanes, lanes) : V::zero();
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      auto value = V::add(sums[p][n], added);
      if (r.relu) value = V::positive(value);
      store_lanes<V, partial>(to + p * r.result_step + n * V::kLanes, value, lanes);
    }
  }
}

template <class V, int D>
void sum_row(const DepthwiseRow<typename V::Number>& r) {
  for_channels<V, D, 2>(r.channels, [&]<int N, bool partial>(long channel, long lanes) {
    const auto border = [&](long x) {  // only the taps that are inside the source
      long tap = 0, end = r.taps;
      while (tap < end && r.first + x * r.step + tap * r.tap_step < 0) ++tap;
      while (end > tap && r.first + x * r.step + (end - 1) * r.tap_step >= r.pixels) --end;
      sum_tile<V, D, N, 1, 0, partial>(r, channel, lanes, x, tap, end - tap);
    };
    long x = r.x_begin;
    for (; x < r.inside_begin; ++x) border(x);
    for (; x + kTile <= r.inside_end; x += kTile) {
      if (r.taps == 3) {
        sum_tile<V, D, N, kTile, 3, partial>(r, channel, lanes, x, 0, 3);
      } else {
        sum_tile<V, D, N, kTile, 0, partial>(r, channel, lanes, x, 0, r.taps);
      }
    }
    for (; x < r.inside_end; ++x) sum_tile<V, D, N, 1, 0, partial>(r, channel, lanes, x, 0, r.taps);
    for (; x < r.x_end; ++x) border(x);
  });
}

/// The gradients of J taps of a row, from `tap` on. `source` and `filters` point to the row.
template <class V, int D, int N, int J, bool partial>
void add_taps(const DepthwiseRow<typename V::Number>& r, long channel, long lanes, const typename V::Number* source,
              long tap, typename V::Number* filters) {
  using T = typename V::Number;
  typename V::Vector sums[J][N][D];
#pragma GCC unroll 8
  for (int j = 0; j < J; ++j) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
#pragma GCC unroll 8
      for (int d = 0; d < D; ++d) sums[j][n][d] = V::zero();
    }
  }
  const auto add = [&](long x, bool is_border) __attribute__((always_inline)) {
    const long pixel = r.first + x * r.step + tap * r.tap_step;
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const auto factors = load_lanes<V, partial>(r.results + x * r.result_step + channel + n * V::kLanes, lanes);
#pragma GCC unroll 8
      for (int j = 0; j < J; ++j) {
        const long at = pixel + j * r.tap_step;
        if (is_border && (at < 0 || at >= r.pixels)) continue;
        const T* const from = source + at * r.channels + channel + n * V::kLanes;
#pragma GCC unroll 8
        for (int d = 0; d < D; ++d) {
          sums[j][n][d] = V::fma(load_source<V, D, partial>(from, d, lanes), factors, sums[j][n][d]);
        }
      }
    }
  };
  for (long x = r.x_begin; x < r.inside_begin; ++x) add(x, true);
  for (long x = r.inside_begin; x < r.inside_end; ++x) add(x, false);
  for (long x = r.inside_end; x < r.x_end; ++x) add(x, true);
#pragma GCC unroll 8
  for (int j = 0; j < J; ++j) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
#pragma GCC unroll 8
      for (int d = 0; d < D; ++d) {
        T* const to = filters + (tap + j) * r.filter_tap + d * r.channels + channel + n * V::kLanes;
        store_lanes<V, partial>(to, V::add(load_lanes<V, partial>(to, lanes), sums[j][n][d]), lanes);
      }
    }
  }
}

template <class V, int D>
void add_row_gradients(const DepthwiseRow<typename V::Number>& r) {
  /// At most 12 sums in registers.
  constexpr int kTaps = D <= 4 ? 3 : 1, kVectors = D <= 2 ? 2 : 1;
  for_channels<V, D, kVectors>(r.channels, [&]<int N, bool partial>(long channel, long lanes) {
    for (long i = 0; i < r.rows; ++i) {
      const auto* const source = r.source + i * r.source_row;
      auto* const filters = r.filters + i * r.filter_row;
      long tap = 0;
      for (; tap + kTaps <= r.taps; tap += kTaps) {
        add_taps<V, D, N, kTaps, partial>(r, channel, lanes, source, tap, filters);
      }
      for (; tap < r.taps; ++tap) add_taps<V, D, N, 1, partial>(r, channel, lanes, source, tap, filters);
    }
  });
}

template <class V>
void sum_any_width(const DepthwiseRow<typename V::Number>& row) {
  switch (row.width) {
    case 2: return sum_row<V, 2>(row);
    case 4: return sum_row<V, 4>(row);
    case 8: return sum_row<V, 8>(row);
    default: return sum_row<V, 1>(row);
  }
}

template <class V>
void add_gradients_of_any_width(const DepthwiseRow<typename V::Number>& row) {
  switch (row.width) {
    case 2: return add_row_gradients<V, 2>(row);
    case 4: return add_row_gradients<V, 4>(row);
    case 8: return add_row_gradients<V, 8>(row);
    default: return add_row_gradients<V, 1>(row);
  }
}

}}}  // namespace tandem::v0
