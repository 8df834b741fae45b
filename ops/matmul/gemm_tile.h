// GEMM micro-kernels: a tile of a matrix product, computed in registers. Private to ops/. This header includes nothing,
// because files for wider instruction sets include it. Sizes are `long`, which is int64_t.
//
// The *left* side gives single values that are broadcast, the *right* side vectors of adjacent columns. A tile is kRows
// x kColumns of left @ right; the caller chooses which operand is left, so a product may be computed transposed. The
// right side is *packed*: its columns are divided into panels of kColumns, each stored as k rows, padded with zeros.
// The left side is read in place if k is its contiguous dimension; otherwise it is packed as panels of k times kRows.
//
// Micro-kernels for bfloat16 multiply *words* of 4 bytes, the elements of two neighbouring k, and sum in float32. A
// panel of them has (k + 1) / 2 rows of words; the second element of the last word is 0 if k is odd.
#pragma once

namespace tandem { inline namespace v0 {

/// One tile: out(i, j) = f(alpha * sum_l left(i, l) * right(l, j) + beta * out(i, j)), where f adds the bias and, if
/// relu, replaces negative values by 0.
///
/// If left_rows is not null, both sides consist of `segments` segments of k each: row i of segment s of left begins at
/// left_rows[s * kRows + i], segment s of right at right + segment_offsets[s]. left is not used.
///
/// T is float for bfloat16 too: pointers are to words; left may have any alignment. k and left_stride count elements.
template <class T>
struct GemmTile {
  long rows;     ///< at most the instruction set's kRows
  long columns;  ///< at most its kColumns
  long k;
  const T* left;
  long left_stride;    ///< from one row to the next; 0: left is a packed panel
  long left_k_stride;  ///< of a packed panel from one k to the next; 0: kRows
  const T* right;      ///< a packed panel, or rows with at least as many readable columns
  long right_stride;   ///< from one row of right to the next: kColumns in a packed panel
  T alpha;
  T beta;         ///< 0: out is not read
  const T* bias;  ///< may be null; bias[j], or bias[i] if transposed
  bool relu;
  bool transposed;  ///< out(i, j) is out[j * out_leading + i], else out[i * out_leading + j]
  T* out;
  long out_leading;
  const T* const* left_rows;
  const long* segment_offsets;
  long segments;
};

/// The micro-kernels of an instruction set, for elements of type Element.
template <class T, class Element = T>
struct TileKernels {
  const char* name;
  long rows;     ///< kRows of a tile and of a packed left panel
  long columns;  ///< kColumns of a tile and of a packed right panel
  void (*tile)(const GemmTile<T>& tile);
  /// panel[l][j] = source[l * k_stride + j * column_stride] for j < columns, then zeros up to a multiple of 16, at
  /// least 16. The rest, which no tile of so few columns reads, is not written. One stride is 1.
  void (*pack_right)(const Element* source, long k, long columns, long k_stride, long column_stride, T* panel);
  /// panel[l][i] = source[l * k_stride + i] for i < rows, else 0.
  void (*pack_left)(const Element* source, long k, long rows, long k_stride, T* panel);
};

template <class Element>
struct GemmKernelsFor : TileKernels<float, Element> {
  /// Stores a block of several tiles transposed: out[j * out_leading + i] = f(values[i * stride + j] + beta * out) for
  /// the block's rows i and columns j, where f is that of GemmTile. The block's other members are not used.
  void (*store_transposed)(const GemmTile<float>& block, const float* values, long stride);
};
using GemmKernels = GemmKernelsFor<float>;

struct BFloat16;
struct Bf16GemmKernels : GemmKernelsFor<BFloat16> {
  /// Stores a block of at most 48 rows in `out`, transposed if the block is, rounded after f.
  void (*store_rounded)(const GemmTile<float>& block, const float* values, long stride, BFloat16* out);
};

extern const GemmKernels kGemmAvx2;
extern const GemmKernels kGemmAvx512;
extern const Bf16GemmKernels kGemmAvx512Bf16;

}}  // namespace tandem::v0
