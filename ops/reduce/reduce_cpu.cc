// CPU kernels of sums and products.
//
// The tree of a sum (a product has the same tree): up to kLeafRows elements of a column, or kLeaf elements of a row in
// kLanes interleaved lanes, are added sequentially. Longer ranges are halved (at a multiple of a leaf), and the sums of
// the halves are added. Ranges longer than a chunk are first divided into chunks, possibly summed by several threads;
// the sums of chunks are then summed by the same rule. Lanes and columns are independent, so the innermost loops are
// vectorized.
#include <tandem/ops/reduce/reduce_kernels.h>

#include <algorithm>
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

/// The fold of n consecutive elements.
template <class F, class T, class A>
A fold_row(const T* in, int64_t n) {
  if (n > kLeaf) {
    const int64_t half = middle(n, kLeaf);
    return F::combine(fold_row<F, T, A>(in, half), fold_row<F, T, A>(in + half, n - half));
  }
  A lanes[kLanes];
  std::fill(lanes, lanes + kLanes, A{F::kStart});
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] = F::combine(lanes[k], F::term(static_cast<A>(in[i + k])));
  }
  for (int64_t i = whole; i < n; ++i) {
    lanes[i - whole] = F::combine(lanes[i - whole], F::term(static_cast<A>(in[i])));
  }
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t k = 0; k < width; ++k) lanes[k] = F::combine(lanes[k], lanes[k + width]);
  }
  return lanes[0];
}

/// out[k] = the fold over `rows` rows of in[r * step + k], for k < width <= kStripe.
template <class F, class T, class A>
void fold_columns(const T* in, int64_t rows, int64_t step, int64_t width, A* out) {
  if (rows > kLeafRows) {
    const int64_t half = middle(rows, kLeafRows);
    A second[kStripe];
    fold_columns<F>(in, half, step, width, out);
    fold_columns<F>(in + half * step, rows - half, step, width, second);
    for (int64_t k = 0; k < width; ++k) out[k] = F::combine(out[k], second[k]);
    return;
  }
  if (width == kStripe) {  // the same additions; a constant width keeps the sums in registers
    A sums[kStripe];
    std::fill(sums, sums + kStripe, A{F::kStart});
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < kStripe; ++k) {
        sums[k] = F::combine(sums[k], F::term(static_cast<A>(in[r * step + k])));
      }
    }
    std::copy(sums, sums + kStripe, out);
    return;
  }
  std::fill(out, out + width, A{F::kStart});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < width; ++k) {
      out[k] = F::combine(out[k], F::term(static_cast<A>(in[r * step + k])));
    }
  }
}

/// The folds over ranges of `length` along the reduced dimension: out is [outer, chunks, inner].
template <class F, class T, class A, class Out>
void fold_chunks(const ReduceSizes& sizes, int64_t length, A divisor, const T* in, Out* out) {
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
        *to = divided<Out>(fold_row<F, T, A>(from, rows), divisor);
      } else {
        const int64_t width = std::min(kStripe, sizes.inner - stripe * kStripe);
        A sums[kStripe];
        fold_columns<F>(from, rows, sizes.inner, width, sums);
        for (int64_t k = 0; k < width; ++k) to[k] = divided<Out>(sums[k], divisor);
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

int64_t fold_workspace_bytes(const KernelContext&, const ReduceSizes& sizes) {
  const int64_t chunks = num_chunks(sizes);
  return chunks == 1 ? 0 : sizes.outer * chunks * sizes.inner * static_cast<int64_t>(sizeof(double));
}

void fold(const KernelContext&, Fold fold, DType dtype, const ReduceSizes& sizes, double divisor, const void* in,
          void* workspace, void* out) {
  visit_fold(fold, dtype, [&]<class T, class F>() {
    using A = Accumulator<T>;
    using Out = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
    const int64_t chunks = num_chunks(sizes);
    const A final_divisor = static_cast<A>(divisor);
    if (chunks == 1) {
      fold_chunks<F, T, A>(sizes, chunk_length(sizes), final_divisor, static_cast<const T*>(in),
                           static_cast<Out*>(out));
    } else {
      A* partial = static_cast<A*>(workspace);
      fold_chunks<F, T, A>(sizes, chunk_length(sizes), A{1}, static_cast<const T*>(in), partial);
      fold_chunks<typename F::Chunks, A, A>({sizes.outer, chunks, sizes.inner}, chunks, final_divisor, partial,
                                            static_cast<Out*>(out));
    }
  });
}

}}}  // namespace tandem::v0::cpu
