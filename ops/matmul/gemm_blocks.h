// Matrix products of blocks in the cache by the micro-kernels of gemm_tile.h, and micro-kernels in plain C++. Private
// to ops/.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tandem/ops/matmul/gemm_tile.h>

namespace tandem { inline namespace v0 {

/// Micro-kernels in plain C++: for float64, and as the reference for the vectorized micro-kernels.
template <class T>
struct PlainTiles {
  static constexpr int64_t kRows = 4, kColumns = 16;

  static void solve(const GemmTile<T>& tile) {
    T sums[kRows][kColumns] = {};
    const int64_t row_step = tile.left_stride == 0 ? 1 : tile.left_stride;
    const int64_t k_step = tile.left_stride == 0 ? kRows : 1;
    for (int64_t l = 0; l < tile.k; ++l) {
      for (int64_t r = 0; r < tile.rows; ++r) {
        const T factor = tile.left[r * row_step + l * k_step];
        for (int64_t c = 0; c < kColumns; ++c) {
          sums[r][c] = std::fma(factor, tile.right[l * tile.right_stride + c], sums[r][c]);
        }
      }
    }
    for (int64_t r = 0; r < tile.rows; ++r) {
      for (int64_t c = 0; c < tile.columns; ++c) {
        T& out = tile.out[tile.transposed ? c * tile.out_leading + r : r * tile.out_leading + c];
        out = tile.alpha * sums[r][c] + (tile.beta == 0 ? T(0) : tile.beta * out);
      }
    }
  }
  static void pack_right(const T* source, long k, long columns, long k_stride, long column_stride, T* panel) {
    for (int64_t l = 0; l < k; ++l) {
      for (int64_t j = 0; j < kColumns; ++j) {
        panel[l * kColumns + j] = j < columns ? source[l * k_stride + j * column_stride] : T(0);
      }
    }
  }
  static void pack_left(const T* source, long k, long rows, long k_stride, T* panel) {
    for (int64_t l = 0; l < k; ++l) {
      for (int64_t i = 0; i < kRows; ++i) panel[l * kRows + i] = i < rows ? source[l * k_stride + i] : T(0);
    }
  }
};

template <class T>
inline constexpr TileKernels<T> kPlainTiles = {"plain",
                                               PlainTiles<T>::kRows,
                                               PlainTiles<T>::kColumns,
                                               PlainTiles<T>::solve,
                                               PlainTiles<T>::pack_right,
                                               PlainTiles<T>::pack_left};

/// The left side of a product: unpacked rows, or packed.
template <class T>
struct LeftSide {
  const T* data;
  int64_t stride;     ///< from row to row; 0: packed
  int64_t panel = 0;  ///< elements of a packed panel
};

/// The right side: packed panels, or rows of a buffer whose length is a multiple of the panel width.
template <class T>
struct RightSide {
  const T* data;
  int64_t stride;  ///< from row to row
  int64_t panel;   ///< elements from one panel to the next; in a buffer, the panel width
};

/// The part of a row of tiles that is computed: only columns [column_begin, column_end) are written, and only k in
/// [k_begin, k_end) is summed. column_begin is a multiple of 16.
struct TileRange {
  int64_t k_begin, k_end;
  int64_t column_begin, column_end;
};

/// out = alpha * left @ right + beta * out, `columns` wide. range(i, n) returns the TileRange of rows [i, i + n).
template <class T, class Range>
void multiply_tiles(const TileKernels<T>& kernels, int64_t rows, int64_t columns, const LeftSide<T>& left,
                    const RightSide<T>& right, T alpha, T beta, bool transposed, T* out, int64_t out_leading,
                    Range range) {
  GemmTile<T> tile{};
  tile.left_stride = left.stride;
  tile.right_stride = right.stride;
  tile.alpha = alpha;
  tile.beta = beta;
  tile.transposed = transposed;
  tile.out_leading = out_leading;
  for (int64_t panel = 0; panel * kernels.columns < columns; ++panel) {
    const int64_t panel_begin = panel * kernels.columns;
    const int64_t panel_end = std::min(columns, panel_begin + kernels.columns);
    for (int64_t i = 0; i < rows; i += kernels.rows) {
      tile.rows = std::min<int64_t>(kernels.rows, rows - i);
      const TileRange needed = range(i, tile.rows);
      const int64_t begin = std::max(panel_begin, needed.column_begin);
      tile.columns = std::min(panel_end, needed.column_end) - begin;
      if (tile.columns <= 0) continue;
      tile.k = needed.k_end - needed.k_begin;
      tile.left = left.stride == 0 ? left.data + i / kernels.rows * left.panel + needed.k_begin * kernels.rows
                                   : left.data + i * left.stride + needed.k_begin;
      tile.right = right.data + panel * right.panel + (begin - panel_begin) + needed.k_begin * right.stride;
      tile.out = transposed ? out + begin * out_leading + i : out + i * out_leading + begin;
      kernels.tile(tile);
    }
  }
}

}}  // namespace tandem::v0
