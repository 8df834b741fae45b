// Tiles of attention on GPUs: 64 queries by 64 keys, and their products. Private to the *.cu files of ops/attention.
//
// The 256 threads of a block are 16 x 16; thread (x, y) holds the 4 x 4 elements of a tile in rows 4 y .. and columns
// 4 x .. in registers. Products read both sides from shared memory, where the summed dimension, `depth`, is the row.
#pragma once

#include <cstdint>
#include <limits>

#include <tandem/tensor/cuda/launch.h>

namespace tandem { inline namespace v0 { namespace cuda { namespace attention_tiles {

inline constexpr int kTile = 64;
inline constexpr int kOwn = 4;  // rows and columns per thread
inline constexpr int kSide = kTile / kOwn;
inline constexpr int kThreads = kSide * kSide;

template <class C>
inline constexpr int kDepth = sizeof(C) == 8 ? 16 : 32;  // rows of a side in shared memory at a time
template <class C>
inline constexpr C kNoScore = -std::numeric_limits<C>::infinity();

/// Four consecutive elements, loaded by one instruction.
template <class C>
struct alignas(16) Four {
  C at[kOwn];
};

/// One column wider than a tile, so that threads that write a column access different banks.
template <class C>
using TileRow = Four<C>[kSide + 1];

template <class C>
struct SharedTiles {
  TileRow<C> left[kTile];
  TileRow<C> right[kDepth<C>];
};

/// Rows of an operand; rows from `count` on are read as zeros.
template <class T>
struct Rows {
  T* data;
  int64_t stride;
  int64_t count;

  /// The rows of the batch at `offset`.
  __device__ Rows at(int64_t offset) const { return {data + offset, stride, count}; }
  /// The rows from `first` on.
  __device__ Rows from(int64_t first) const {
    return {data + first * stride, stride, count - first < kTile ? count - first : kTile};
  }
  /// The columns from `first` on.
  __device__ Rows columns_from(int64_t first) const { return {data + first, stride, count}; }
};

__device__ inline float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
__device__ inline double multiply_add(double a, double b, double c) { return __builtin_fma(a, b, c); }

__device__ inline int thread_x() { return static_cast<int>(threadIdx.x) % kSide; }
__device__ inline int thread_y() { return static_cast<int>(threadIdx.x) / kSide; }

/// tile[d][r] = element first + d of row r, for d < depth. A warp reads 8 consecutive elements of 4 rows, so that
/// memory accesses are coalesced and shared-memory writes have no bank conflicts.
template <class T, class C>
__device__ void load_transposed(const Rows<T>& rows, int64_t first, int depth, TileRow<C>* tile) {
  constexpr int kTogether = 8;
  for (int i = static_cast<int>(threadIdx.x); i < kDepth<C> * kTile; i += kThreads) {
    const int d = i / (kTogether * kTile) * kTogether + i % kTogether, r = i / kTogether % kTile;
    if (d < depth)
      tile[d][r / kOwn].at[r % kOwn] = r < rows.count ? static_cast<C>(rows.data[r * rows.stride + first + d]) : C{0};
  }
}

/// tile[r][c] = element c of row first + r, for r < depth; zeros from column `columns` on.
template <class T, class C>
__device__ void load_rows(const Rows<T>& rows, int64_t first, int depth, int64_t columns, TileRow<C>* tile) {
  for (int i = static_cast<int>(threadIdx.x); i < depth * kTile; i += kThreads) {
    const int r = i / kTile, c = i % kTile;
    tile[r][c / kOwn].at[c % kOwn] = c < columns ? static_cast<C>(rows.data[(first + r) * rows.stride + c]) : C{0};
  }
}

/// sums[i][j] += sum over d < depth of left[d][4 y + i] * right[d][4 x + j].
template <class C>
__device__ void multiply(int depth, const TileRow<C>* left, const TileRow<C>* right, C (&sums)[kOwn][kOwn]) {
  const int x = thread_x(), y = thread_y();
  for (int d = 0; d < depth; ++d) {
    const Four<C> a = left[d][y], b = right[d][x];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
#pragma unroll
      for (int j = 0; j < kOwn; ++j) sums[i][j] = multiply_add(a.at[i], b.at[j], sums[i][j]);
    }
  }
}

/// sums[i][j] = the dot product of row 4 y + i of `left` and row 4 x + j of `right`, of `depth` elements each.
template <class T, class C>
__device__ void multiply_rows(const Rows<T>& left, const Rows<T>& right, int64_t depth, SharedTiles<C>& tiles,
                              C (&sums)[kOwn][kOwn]) {
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) sums[i][j] = C{0};
  }
  for (int64_t first = 0; first < depth; first += kDepth<C>) {
    const int part = static_cast<int>(::min(depth - first, static_cast<int64_t>(kDepth<C>)));
    load_transposed<T, C>(left, first, part, tiles.left);
    load_transposed<T, C>(right, first, part, tiles.right);
    __syncthreads();
    multiply<C>(part, tiles.left, tiles.right, sums);
    __syncthreads();
  }
}

/// tiles.left = the tile of `factors`, transposed, so that the summed dimension is the row.
template <class C>
__device__ void store_transposed(const C (&factors)[kOwn][kOwn], SharedTiles<C>& tiles) {
  const int x = thread_x(), y = thread_y();
#pragma unroll
  for (int j = 0; j < kOwn; ++j) {
    Four<C> column;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) column.at[i] = factors[i][j];
    tiles.left[x * kOwn + j][y] = column;
  }
  __syncthreads();
}

/// The columns of results of a block: kChunks tiles.
template <class C, int kChunks>
struct Results {
  C sums[kChunks][kOwn][kOwn] = {};

  /// Adds the product of tiles.left and `rows`, which has `columns` columns left.
  template <class T>
  __device__ void add(const Rows<T>& rows, int64_t columns, SharedTiles<C>& tiles) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int64_t begin = chunk * kTile;
      for (int64_t first = 0; first < rows.count && begin < columns; first += kDepth<C>) {
        const int part = static_cast<int>(::min(rows.count - first, static_cast<int64_t>(kDepth<C>)));
        load_rows<T, C>(rows.columns_from(begin), first, part, columns - begin, tiles.right);
        __syncthreads();
        multiply<C>(part, tiles.left + first, tiles.right, sums[chunk]);
        __syncthreads();
      }
    }
  }

  /// Writes row 4 y + i of the results, multiplied by factors[i].
  template <class T>
  __device__ void write(const Rows<T>& rows, int64_t columns, const C (&factors)[kOwn]) const {
    const int x = thread_x(), y = thread_y();
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int r = y * kOwn + i;
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
          const int c = chunk * kTile + x * kOwn + j;
          if (r < rows.count && c < columns)
            rows.data[r * rows.stride + c] = static_cast<T>(sums[chunk][i][j] * factors[i]);
        }
      }
    }
  }
};

}}}}  // namespace tandem::v0::cuda::attention_tiles
