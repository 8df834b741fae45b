// CPU kernels of reductions.
//
// The tree of a sum: up to kLeafRows elements of a column, or kLeaf elements of a row in kLanes interleaved lanes, are
// added sequentially. Longer ranges are halved (at a multiple of a leaf), and the sums of the halves are added. Ranges
// longer than a chunk are first divided into chunks, possibly summed by several threads; the sums of chunks are then
// summed by the same rule. Lanes and columns are independent, so the innermost loops are vectorized.
#include <tandem/ops/reduce/reduce_kernels.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include <tandem/base/parallel_for.h>

namespace tandem { inline namespace v0 { namespace cpu {

namespace {

constexpr int64_t kLanes = 32;
constexpr int64_t kLeaf = 4096;
constexpr int64_t kLeafRows = 64;
/// Columns that are summed together.
constexpr int64_t kStripe = 64;
/// Elements per chunk, and per piece of parallel work.
constexpr int64_t kChunk = 1 << 16;
constexpr int64_t kGrain = 32768;

/// Elements per chunk along the reduced dimension.
int64_t chunk_length(const ReduceSizes& sizes) {
  return sizes.inner == 1 ? kChunk : std::max(kLeafRows, kChunk / std::max<int64_t>(sizes.inner, 1));
}
int64_t num_chunks(const ReduceSizes& sizes) {
  const int64_t length = chunk_length(sizes);
  return std::max<int64_t>((sizes.reduce + length - 1) / length, 1);
}

/// The position at which n > leaf items are divided: a multiple of `leaf` near the middle.
int64_t middle(int64_t n, int64_t leaf) { return (n / 2 + leaf - 1) / leaf * leaf; }

/// The sum of n consecutive elements.
template <class T, class A>
A sum_row(const T* in, int64_t n) {
  if (n > kLeaf) {
    const int64_t half = middle(n, kLeaf);
    return sum_row<T, A>(in, half) + sum_row<T, A>(in + half, n - half);
  }
  A lanes[kLanes] = {};
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] += static_cast<A>(in[i + k]);
  }
  for (int64_t i = whole; i < n; ++i) lanes[i - whole] += static_cast<A>(in[i]);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t k = 0; k < width; ++k) lanes[k] += lanes[k + width];
  }
  return lanes[0];
}

/// out[k] = the sum over `rows` rows of in[r * step + k], for k < width <= kStripe.
template <class T, class A>
void sum_columns(const T* in, int64_t rows, int64_t step, int64_t width, A* out) {
  if (rows > kLeafRows) {
    const int64_t half = middle(rows, kLeafRows);
    A second[kStripe];
    sum_columns(in, half, step, width, out);
    sum_columns(in + half * step, rows - half, step, width, second);
    for (int64_t k = 0; k < width; ++k) out[k] += second[k];
    return;
  }
  if (width == kStripe) {  // the same additions; a constant width keeps the sums in registers
    A sums[kStripe] = {};
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < kStripe; ++k) sums[k] += static_cast<A>(in[r * step + k]);
    }
    std::copy(sums, sums + kStripe, out);
    return;
  }
  std::fill(out, out + width, A{});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < width; ++k) out[k] += static_cast<A>(in[r * step + k]);
  }
}

template <class A, class Out>
Out finish(A sum, A divisor) {
  if constexpr (std::is_integral_v<A>) {
    return sum;
  } else {
    return static_cast<Out>(sum / divisor);
  }
}

/// The sums over ranges of `length` along the reduced dimension: out is [outer, chunks, inner].
template <class T, class A, class Out>
void sum_chunks(const ReduceSizes& sizes, int64_t length, A divisor, const T* in, Out* out) {
  const int64_t chunks = std::max<int64_t>((sizes.reduce + length - 1) / length, 1);
  const int64_t stripes = (sizes.inner + kStripe - 1) / kStripe;
  const int64_t items = sizes.outer * chunks * stripes;
  const int64_t item_elements = std::min(length, sizes.reduce) * std::min(kStripe, sizes.inner);
  const auto piece = [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t stripe = item % stripes;
      const int64_t chunk = item / stripes % chunks;
      const int64_t o = item / stripes / chunks;
      const int64_t first = chunk * length;
      const int64_t rows = std::min(length, sizes.reduce - first);
      const T* from = in + (o * sizes.reduce + first) * sizes.inner + stripe * kStripe;
      Out* to = out + (o * chunks + chunk) * sizes.inner + stripe * kStripe;
      if (sizes.inner == 1) {
        *to = finish<A, Out>(sum_row<T, A>(from, rows), divisor);
      } else {
        const int64_t width = std::min(kStripe, sizes.inner - stripe * kStripe);
        A sums[kStripe];
        sum_columns(from, rows, sizes.inner, width, sums);
        for (int64_t k = 0; k < width; ++k) to[k] = finish<A, Out>(sums[k], divisor);
      }
    }
  };
  const int64_t grain = std::max<int64_t>(kGrain / std::max<int64_t>(item_elements, 1), 1);
  if (items <= grain) {
    piece(0, items);
  } else {
    parallel_for(items, grain, piece);
  }
}

}  // namespace

int64_t sum_workspace_bytes(const KernelContext&, const ReduceSizes& sizes) {
  const int64_t chunks = num_chunks(sizes);
  return chunks == 1 ? 0 : sizes.outer * chunks * sizes.inner * static_cast<int64_t>(sizeof(double));
}

void sum(const KernelContext&, DType dtype, const ReduceSizes& sizes, double divisor, const void* in, void* workspace,
         void* out) {
  visit_dtype(dtype, [&]<class T>() {
    using A = Accumulator<T>;
    using Out = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
    const int64_t chunks = num_chunks(sizes);
    const A final_divisor = static_cast<A>(divisor);
    if (chunks == 1) {
      sum_chunks<T, A>(sizes, chunk_length(sizes), final_divisor, static_cast<const T*>(in), static_cast<Out*>(out));
    } else {
      A* partial = static_cast<A*>(workspace);
      sum_chunks<T, A>(sizes, chunk_length(sizes), A{1}, static_cast<const T*>(in), partial);
      sum_chunks<A, A>({sizes.outer, chunks, sizes.inner}, chunks, final_divisor, partial, static_cast<Out*>(out));
    }
  });
}

namespace {

/// Whether x replaces `best`: it is larger, or the first NaN. Without branches, so that loops are vectorized.
template <class T>
bool beats(T x, T best) {
  return !(x <= best) & (best == best);
}

/// The compute type: T, or float for half types.
template <class T>
using Comparable = std::conditional_t<std::is_integral_v<T> || std::is_floating_point_v<T>, T, float>;

/// The largest of n >= 1 consecutive elements, or NaN; computed in lanes, as sums are.
template <class T, class C>
C max_of(const T* values, int64_t n) {
  C best[kLanes];
  std::fill(best, best + kLanes, static_cast<C>(values[0]));
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) {
      const C x = static_cast<C>(values[i + k]);
      best[k] = beats(x, best[k]) ? x : best[k];
    }
  }
  for (int64_t i = whole; i < n; ++i) {
    const C x = static_cast<C>(values[i]);
    best[0] = beats(x, best[0]) ? x : best[0];
  }
  for (int64_t k = 1; k < kLanes; ++k) best[0] = beats(best[k], best[0]) ? best[k] : best[0];
  return best[0];
}

/// The index of the first of n elements that equals the largest, or of the first NaN.
template <class T, class C>
int64_t argmax_row(const T* values, int64_t n) {
  const C largest = max_of<T, C>(values, n);
  int64_t i = 0;
  if (largest == largest) {
    while (static_cast<C>(values[i]) != largest) ++i;
  } else {
    while (static_cast<C>(values[i]) == static_cast<C>(values[i])) ++i;
  }
  return i;
}

/// out[k] = the index of the largest of in[r * step + k] over r < rows, for k < width <= kStripe.
template <class T, class C>
void argmax_columns(const T* in, int64_t rows, int64_t step, int64_t width, int64_t* out) {
  C best[kStripe];
  for (int64_t k = 0; k < width; ++k) {
    best[k] = static_cast<C>(in[k]);
    out[k] = 0;
  }
  for (int64_t r = 1; r < rows; ++r) {
    for (int64_t k = 0; k < width; ++k) {
      const C x = static_cast<C>(in[r * step + k]);
      const bool replaces = beats(x, best[k]);
      best[k] = replaces ? x : best[k];
      out[k] = replaces ? r : out[k];
    }
  }
}

}  // namespace

void max(const KernelContext&, DType dtype, int64_t n, const void* in, void* out) {
  visit_dtype(dtype, [&]<class T>() {
    using C = Comparable<T>;
    const T* values = static_cast<const T*>(in);
    C largest = max_of<T, C>(values, n);
    if constexpr (!std::is_integral_v<C>) {  // because comparisons treat zeros of both signs as equal
      const auto is_positive_zero = [](T value) {
        const C x = static_cast<C>(value);
        return x == C{0} && !std::signbit(x);
      };
      if (largest == C{0}) largest = std::any_of(values, values + n, is_positive_zero) ? C{0} : -C{0};
    }
    *static_cast<T*>(out) = static_cast<T>(largest);
  });
}

void argmax(const KernelContext&, DType dtype, const ReduceSizes& sizes, const void* in, void* out) {
  visit_dtype(dtype, [&]<class T>() {
    using C = Comparable<T>;
    const T* values = static_cast<const T*>(in);
    int64_t* indices = static_cast<int64_t*>(out);
    const int64_t stripes = (sizes.inner + kStripe - 1) / kStripe;
    const int64_t items = sizes.outer * stripes;
    const auto piece = [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t o = item / stripes;
        const int64_t column = item % stripes * kStripe;
        const T* from = values + o * sizes.reduce * sizes.inner + column;
        int64_t* to = indices + o * sizes.inner + column;
        if (sizes.inner == 1) {
          *to = argmax_row<T, C>(from, sizes.reduce);
        } else {
          argmax_columns<T, C>(from, sizes.reduce, sizes.inner, std::min(kStripe, sizes.inner - column), to);
        }
      }
    };
    const int64_t grain = std::max<int64_t>(kGrain / (sizes.reduce * std::min(kStripe, sizes.inner)), 1);
    if (items <= grain) {
      piece(0, items);
    } else {
      parallel_for(items, grain, piece);
    }
  });
}

}}}  // namespace tandem::v0::cpu
