// The tree of a sum.  Up to kLeafRows numbers of a column, or kLeaf numbers of a row in kLanes interleaved lanes, are added
// one after the other; longer stretches are halved (at multiples of a leaf), and the halves' sums added.  What exceeds a
// chunk is cut into chunks first, each summed by that rule, possibly on several threads; their sums are then summed by the
// same rule.  Lanes and columns are independent, so the innermost loops become vector code.
#include <tandem/ops/reduce_kernels.h>

#include <algorithm>
#include <type_traits>

#include <tandem/base/parallel_for.h>

namespace tandem::inline v0::cpu {

namespace {

constexpr int64_t kLanes = 32;
constexpr int64_t kLeaf = 4096;
constexpr int64_t kLeafRows = 64;
/// Columns that are summed together.
constexpr int64_t kStripe = 64;
/// Elements of a chunk, and of a piece of parallel work.
constexpr int64_t kChunk = 1 << 16;
constexpr int64_t kGrain = 32768;

/// Numbers along the reduced dimension that make a chunk.
int64_t chunk_length(const ReduceSizes& sizes) {
  return sizes.inner == 1 ? kChunk : std::max(kLeafRows, kChunk / std::max<int64_t>(sizes.inner, 1));
}
int64_t num_chunks(const ReduceSizes& sizes) {
  const int64_t length = chunk_length(sizes);
  return std::max<int64_t>((sizes.reduce + length - 1) / length, 1);
}

/// Where to cut n > leaf items: a multiple of `leaf` near the middle.
int64_t middle(int64_t n, int64_t leaf) { return (n / 2 + leaf - 1) / leaf * leaf; }

/// Sum of n numbers that lie side by side.
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

/// out[k] = sum over `rows` rows of in[r * step + k], for k < width <= kStripe.
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
  if (width == kStripe) {  // the same additions; a fixed width lets the sums stay in registers
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

/// The sums over stretches of `length` along the reduced dimension: out is [outer, chunks, inner].
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

int64_t sum_workspace_bytes(const ReduceSizes& sizes) {
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

/// Whether x replaces `best`: larger, or the first NaN.
template <class T>
bool beats(T x, T best) {
  if constexpr (std::is_integral_v<T>) {
    return x > best;
  } else {
    return x > best || (x != x && best == best);
  }
}

/// T, or float for half types.
template <class T>
using Comparable = std::conditional_t<std::is_integral_v<T> || std::is_floating_point_v<T>, T, float>;

}  // namespace

void max(const KernelContext&, DType dtype, int64_t n, const void* in, void* out) {
  visit_dtype(dtype, [&]<class T>() {
    using C = Comparable<T>;
    const T* values = static_cast<const T*>(in);
    // Lanes, so that the comparisons of neighbours do not wait for one another.
    constexpr int64_t kWidth = 8;
    C best[kWidth];
    std::fill(best, best + kWidth, static_cast<C>(values[0]));
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      for (int64_t k = 0; k < kWidth; ++k) {
        const C x = static_cast<C>(values[i + k]);
        best[k] = beats(x, best[k]) ? x : best[k];
      }
    }
    for (; i < n; ++i) best[0] = beats(static_cast<C>(values[i]), best[0]) ? static_cast<C>(values[i]) : best[0];
    for (int64_t k = 1; k < kWidth; ++k) best[0] = beats(best[k], best[0]) ? best[k] : best[0];
    *static_cast<T*>(out) = static_cast<T>(best[0]);
  });
}

void argmax(const KernelContext&, DType dtype, const ReduceSizes& sizes, const void* in, void* out) {
  visit_dtype(dtype, [&]<class T>() {
    using C = Comparable<T>;
    const int64_t items = sizes.outer * sizes.inner;
    const auto piece = [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t start = item / sizes.inner * sizes.reduce * sizes.inner + item % sizes.inner;
        const T* values = static_cast<const T*>(in) + start;
        C best = static_cast<C>(values[0]);
        int64_t index = 0;
        for (int64_t r = 1; r < sizes.reduce; ++r) {
          const C x = static_cast<C>(values[r * sizes.inner]);
          if (beats(x, best)) {
            best = x;
            index = r;
          }
        }
        static_cast<int64_t*>(out)[item] = index;
      }
    };
    const int64_t grain = std::max<int64_t>(kGrain / sizes.reduce, 1);
    if (items <= grain) {
      piece(0, items);
    } else {
      parallel_for(items, grain, piece);
    }
  });
}

}  // namespace tandem::inline v0::cpu
