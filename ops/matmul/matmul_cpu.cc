// CPU kernels of matrix products.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include <Eigen/Core>

#include <tandem/base/math.h>
#include <tandem/base/parallel_for.h>
#include <tandem/base/trace.h>
#include <tandem/ops/common/simd.h>
#include <tandem/ops/common/wide.h>
#include <tandem/ops/elementwise/elementwise_kernels.h>
#include <tandem/ops/matmul/gemm_tile.h>
#include <tandem/ops/matmul/matmul_kernels.h>

namespace tandem { inline namespace v0 {

namespace {

bool is_swapped(GemmAlgorithm algorithm) {
  return algorithm == GemmAlgorithm::kAvx2Swapped || algorithm == GemmAlgorithm::kAvx512Swapped ||
         algorithm == GemmAlgorithm::kAvx512Bf16Swapped;
}

bool is_bf16(GemmAlgorithm algorithm) { return algorithm >= GemmAlgorithm::kAvx512Bf16; }

constexpr int64_t kSmallProduct = 24 * 24 * 24;

/// Elements of k of a product that is rounded to bfloat16: all are summed in one block.
constexpr int64_t kMaxRoundedDepth = 8192;

}  // namespace

const char* to_string(GemmAlgorithm algorithm) {
  constexpr const char* kNames[] = {"direct", "vector",         "avx2",        "avx2 swapped",
                                    "avx512", "avx512 swapped", "avx512_bf16", "avx512_bf16 swapped"};
  return kNames[static_cast<int>(algorithm)];
}

bool is_available(GemmAlgorithm algorithm) {
  return is_bf16(algorithm) ? has_avx512_bf16() : algorithm < GemmAlgorithm::kAvx512 || has_avx512();
}

bool has_half_gemm(DType dtype, int64_t m, int64_t n, int64_t k, bool rounds) {
  return dtype == kBFloat16 && has_avx512_bf16() && m * n * k > kSmallProduct && (!rounds || k <= kMaxRoundedDepth);
}

GemmAlgorithm gemm_algorithm(int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed, DType dtype) {
  if (m * n * k <= kSmallProduct) return GemmAlgorithm::kDirect;
  if (m == 1 && !a_transposed && b_transposed) return GemmAlgorithm::kVector;
  // Swapping the operands avoids packing the weight of x @ weight^T. With few columns, packing the rows of x would cost
  // more; with many rows, packing the weight costs little, and tiles stored without transposition are faster.
  constexpr int64_t kFewColumns = 32, kManyRows = 512;
  // If both sides must be packed, the larger one becomes the right side, whose panels are copied in longer runs.
  constexpr int64_t kMuchLarger = 4;
  const bool swapped = b_transposed ? !a_transposed && n > kFewColumns && m <= kManyRows
                                    : a_transposed && n > kFewColumns && m >= kMuchLarger * n;
  if (dtype == kBFloat16) return swapped ? GemmAlgorithm::kAvx512Bf16Swapped : GemmAlgorithm::kAvx512Bf16;
  // A packed panel is 64 columns wide for AVX-512 and 16 for AVX2: a narrow right side would be mostly padding.
  constexpr int64_t kNarrow = 16;
  if (has_avx512() && (swapped ? m : n) > kNarrow) {
    return swapped ? GemmAlgorithm::kAvx512Swapped : GemmAlgorithm::kAvx512;
  }
  return swapped ? GemmAlgorithm::kAvx2Swapped : GemmAlgorithm::kAvx2;
}

namespace cpu {
namespace {

/// A matrix product, or the part of it that is computed by one thread.
struct Problem {
  int64_t m, n, k;
  double alpha, beta;
  MatrixOperand a, b;
  GemmEpilogue epilogue;
  void* out;
  int64_t out_leading;
};

template <class T>
const T* element(const MatrixOperand& operand, int64_t i, int64_t j) {
  const T* data = static_cast<const T*>(operand.data);
  return operand.transposed ? data + j * operand.leading + i : data + i * operand.leading + j;
}

/// The part of a problem that computes rows [i, i + m) and columns [j, j + n) of the output.
template <class T>
Problem tile(const Problem& p, int64_t i, int64_t m, int64_t j, int64_t n) {
  Problem part = p;
  part.m = m;
  part.n = n;
  part.a.data = element<T>(p.a, i, 0);
  part.b.data = element<T>(p.b, 0, j);
  part.out = static_cast<T*>(p.out) + i * p.out_leading + j;
  if (p.epilogue.bias != nullptr) part.epilogue.bias = static_cast<const T*>(p.epilogue.bias) + j;
  return part;
}

template <class T>
void apply_epilogue(const Problem& p) {
  const T* bias = static_cast<const T*>(p.epilogue.bias);
  if (bias == nullptr && !p.epilogue.relu) return;
  for (int64_t i = 0; i < p.m; ++i) {
    T* row = static_cast<T*>(p.out) + i * p.out_leading;
    if (bias != nullptr && p.epilogue.relu) {
      for (int64_t j = 0; j < p.n; ++j) {
        const T value = row[j] + bias[j];
        row[j] = value < 0 ? T(0) : value;
      }
    } else if (bias != nullptr) {
      for (int64_t j = 0; j < p.n; ++j) row[j] += bias[j];
    } else {
      for (int64_t j = 0; j < p.n; ++j) row[j] = row[j] < 0 ? T(0) : row[j];
    }
  }
}

/// out = alpha * sums + beta * out for `cols` neighbours.
template <class T>
void store(const T* sums, int64_t cols, T alpha, T beta, T* out) {
  using C = Compute<T>;  // integers wrap around
  const C factor = static_cast<C>(alpha), kept = static_cast<C>(beta);
  if (beta == 0) {
    for (int64_t j = 0; j < cols; ++j) out[j] = static_cast<T>(factor * static_cast<C>(sums[j]));
  } else {
    for (int64_t j = 0; j < cols; ++j) {
      out[j] = static_cast<T>(factor * static_cast<C>(sums[j]) + kept * static_cast<C>(out[j]));
    }
  }
}

/// The direct algorithm: the sums of 4 rows by 16 columns stay in registers while k runs. A transposed b is copied
/// panel by panel into a buffer on the stack, 128 values of k at a time.
template <class T>
void direct_gemm(const Problem& p) {
  constexpr int64_t kRows = 4, kCols = 16, kDepth = 128;
  using Number = std::conditional_t<std::is_integral_v<T>, int64_t, double>;  // wraps around in narrow integers
  const T alpha = static_cast<T>(static_cast<Number>(p.alpha));
  for (int64_t j = 0; j < p.n; j += kCols) {
    const int64_t cols = std::min(kCols, p.n - j);
    T panel[kDepth * kCols];
    for (int64_t begin = 0; begin == 0 || begin < p.k; begin += kDepth) {
      const int64_t depth = std::min(kDepth, p.k - begin);
      const T beta = begin == 0 ? static_cast<T>(static_cast<Number>(p.beta)) : T(1);
      const T* b = element<T>(p.b, begin, j);
      int64_t b_stride = p.b.leading;
      if (p.b.transposed || cols < kCols) {
        for (int64_t l = 0; l < depth; ++l) {
          for (int64_t c = 0; c < cols; ++c) panel[l * kCols + c] = *element<T>(p.b, begin + l, j + c);
          for (int64_t c = cols; c < kCols; ++c) panel[l * kCols + c] = T(0);
        }
        b = panel;
        b_stride = kCols;
      }
      const int64_t a_col = p.a.transposed ? p.a.leading : 1;
      for (int64_t i = 0; i < p.m; i += kRows) {
        const int64_t rows = std::min(kRows, p.m - i);
        const T* a[kRows];
        for (int64_t r = 0; r < kRows; ++r) a[r] = element<T>(p.a, i + std::min(r, rows - 1), begin);
        T sums[kRows][kCols] = {};
        for (int64_t l = 0; l < depth; ++l) {
          for (int64_t r = 0; r < kRows; ++r) {
            const T factor = a[r][l * a_col];
            for (int64_t c = 0; c < kCols; ++c) {
              if constexpr (std::is_floating_point_v<T>) {
                sums[r][c] = std::fma(factor, b[l * b_stride + c], sums[r][c]);
              } else {
                sums[r][c] =
                    static_cast<T>(static_cast<Compute<T>>(sums[r][c]) +
                                   static_cast<Compute<T>>(factor) * static_cast<Compute<T>>(b[l * b_stride + c]));
              }
            }
          }
        }
        for (int64_t r = 0; r < rows; ++r) {
          store(sums[r], cols, alpha, beta, static_cast<T*>(p.out) + (i + r) * p.out_leading + j);
        }
      }
    }
  }
}

/// The vector algorithm: four dot products at a time, of elements E, with results R.
template <class E, class R>
void vector_gemm(const Problem& p) {
  constexpr int64_t kRows = 4, kGrainFloats = 1 << 17;
  const E* a = static_cast<const E*>(p.a.data);
  const float* bias = static_cast<const float*>(p.epilogue.bias);
  const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  R* out = static_cast<R*>(p.out);
  const int64_t grain = kRows * std::max<int64_t>(1, kGrainFloats / (kRows * p.k));
  parallel_for(p.n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; j += kRows) {
      const int64_t rows = std::min(kRows, end - j);
      const E* b[kRows];
      for (int64_t r = 0; r < kRows; ++r) b[r] = element<E>(p.b, 0, j + std::min(r, rows - 1));
      Vec<float> vectors[kRows] = {};
      float sums[kRows] = {};
      for_vecs<float>(p.k, [&]<class V>(int64_t l) {
        const V x = load_as<V>(a + l);
        for (int64_t r = 0; r < kRows; ++r) {
          if constexpr (kIsVec<V>) {
            vectors[r] = fma_of(x, load_as<V>(b[r] + l), vectors[r]);
          } else {
            sums[r] = fma_of(x, load_as<V>(b[r] + l), sums[r]);
          }
        }
      });
      for (int64_t r = 0; r < rows; ++r) {
        float value = alpha * (sums[r] + sum_vec(vectors[r]));
        if (beta != 0) value += beta * static_cast<float>(out[j + r]);
        if (bias != nullptr) value += bias[j + r];
        out[j + r] = R(p.epilogue.relu && value < 0 ? 0.0f : value);
      }
    }
  });
}

/// The micro-kernels of an algorithm for elements of type E, float or BFloat16.
template <class E>
auto& kernels_of(GemmAlgorithm algorithm) {
  if constexpr (std::is_same_v<E, BFloat16>) {
    return kGemmAvx512Bf16;
  } else {
    return algorithm >= GemmAlgorithm::kAvx512 ? kGemmAvx512 : kGemmAvx2;
  }
}

/// The partition of a product for the micro-kernels of an instruction set.
///
/// k is divided into equal blocks of at most kMaxWords, the columns of the right side into groups. For each block and
/// group, the group is packed; then tiles are computed in pieces of rows by columns. Everything depends only on the
/// sizes.
template <class E>
struct TilePlan {
  static constexpr int64_t kGroupFloats = 1 << 18;  ///< a group of columns stays in the L2 cache
  static constexpr int64_t kPair = sizeof(float) / sizeof(E);
  static constexpr int64_t kMaxWords = kPair == 1 ? 1024 : kMaxRoundedDepth / kPair;

  static int64_t words(int64_t depth) { return ceil_div(depth, kPair); }

  decltype(kernels_of<E>(GemmAlgorithm())) kernels;
  bool swapped;
  int64_t rows, columns;  ///< of left @ right
  int64_t depth;          ///< of a block of k
  int64_t group_columns;  ///< columns of the right side that are packed at a time
  bool pack_left;
  int64_t left_row_stride, left_k_stride, right_k_stride, right_column_stride;

  TilePlan(GemmAlgorithm algorithm, int64_t m, int64_t n, int64_t k, const MatrixOperand& a, const MatrixOperand& b)
      : kernels(kernels_of<E>(algorithm)),
        swapped(is_swapped(algorithm)),
        rows(swapped ? n : m),
        columns(swapped ? m : n) {
    const int64_t blocks = std::max<int64_t>(1, ceil_div(words(k), kMaxWords));
    depth = ceil_div(words(k), blocks) * kPair;
    const int64_t panel_floats = std::max<int64_t>(1, words(depth) * kernels.columns);
    group_columns = std::min(round_up(columns, kernels.columns),
                             std::max<int64_t>(1, kGroupFloats / panel_floats) * kernels.columns);
    const int64_t a_row = a.transposed ? 1 : a.leading, a_k = a.transposed ? a.leading : 1;
    const int64_t b_k = b.transposed ? 1 : b.leading, b_column = b.transposed ? b.leading : 1;
    left_row_stride = swapped ? b_column : a_row;
    left_k_stride = swapped ? b_k : a_k;
    right_k_stride = swapped ? a_k : b_k;
    right_column_stride = swapped ? a_row : b_column;
    pack_left = left_k_stride != 1;
  }

  int64_t right_floats() const { return words(depth) * group_columns; }
  int64_t left_floats() const { return pack_left ? words(depth) * round_up(rows, kernels.rows) : 0; }
};

/// Calls f(first, past) for ranges of the panels of width `width` that cover `size`, large enough to be worth a thread.
template <class F>
void for_panels(int64_t size, int64_t width, int64_t depth, F f) {
  constexpr int64_t kGrainFloats = 1 << 15;
  parallel_for((size + width - 1) / width, std::max<int64_t>(1, kGrainFloats / (width * depth)), f);
}

/// A product by micro-kernels. For each block of k, the left side is packed if necessary; then groups of columns are
/// packed and multiplied, one after the other, so that a packed group is still in the cache.
template <class E>
class TiledGemm {
 public:
  TiledGemm(GemmAlgorithm algorithm, const Problem& p, float* workspace)
      : p_(p),
        rounds_(std::is_same_v<E, BFloat16> && !p.epilogue.float32_result),
        plan_(algorithm, p.m, p.n, p.k, p.a, p.b),
        left_(static_cast<const E*>(plan_.swapped ? p.b.data : p.a.data)),
        right_(static_cast<const E*>(plan_.swapped ? p.a.data : p.b.data)),
        packed_right_(workspace),
        packed_left_(workspace + plan_.right_floats()) {}

  void run() const {
    for (int64_t begin = 0; begin < p_.k; begin += plan_.depth) {
      const int64_t depth = std::min(plan_.depth, p_.k - begin);
      if (plan_.pack_left) pack_left(begin, depth);
      for (int64_t column = 0; column < plan_.columns; column += plan_.group_columns) {
        const int64_t columns = std::min(plan_.group_columns, plan_.columns - column);
        pack_right(begin, depth, column, columns);
        multiply(begin, depth, column, columns);
      }
    }
  }

 private:
  // Rows of a side whose k is not contiguous may be pages apart. Each page should be touched once: a few rows are
  // packed for all panels of a piece, then the next ones.
  static constexpr int64_t kTogether = 32;

  void pack_left(int64_t begin, int64_t depth) const {
    const int64_t width = plan_.kernels.rows;
    for_panels(plan_.rows, width, depth, [&](int64_t first, int64_t past) {
      for (int64_t l = 0; l < depth; l += kTogether) {
        for (int64_t i = first * width; i < std::min(plan_.rows, past * width); i += width) {
          plan_.kernels.pack_left(left_ + i * plan_.left_row_stride + (begin + l) * plan_.left_k_stride,
                                  std::min(kTogether, depth - l), std::min(width, plan_.rows - i), plan_.left_k_stride,
                                  packed_left_ + i * plan_.words(depth) + plan_.words(l) * width);
        }
      }
    });
  }

  void pack_right(int64_t begin, int64_t depth, int64_t column, int64_t columns) const {
    const int64_t width = plan_.kernels.columns, together = plan_.right_k_stride == 1 ? depth : kTogether;
    for_panels(columns, width, depth, [&](int64_t first, int64_t past) {
      for (int64_t l = 0; l < depth; l += together) {
        for (int64_t j = first * width; j < std::min(columns, past * width); j += width) {
          plan_.kernels.pack_right(
              right_ + (column + j) * plan_.right_column_stride + (begin + l) * plan_.right_k_stride,
              std::min(together, depth - l), std::min(width, columns - j), plan_.right_k_stride,
              plan_.right_column_stride, packed_right_ + j * plan_.words(depth) + plan_.words(l) * width);
        }
      }
    });
  }

  /// Adds the products of a block of k and a group of columns to the output.
  void multiply(int64_t begin, int64_t depth, int64_t column, int64_t columns) const {
    // A piece is 48 rows by as many panels of columns as give about 2^22 multiplications.
    constexpr int64_t kPieceWork = int64_t{1} << 22;
    const int64_t width = plan_.kernels.columns;
    const int64_t piece_columns = width * std::max<int64_t>(1, kPieceWork / (kPieceRows * plan_.words(depth) * width));
    const int64_t row_pieces = (plan_.rows + kPieceRows - 1) / kPieceRows;
    const int64_t column_pieces = (columns + piece_columns - 1) / piece_columns;
    // The inner loop runs over the smaller side, so that the piece of the larger side stays in the cache.
    const bool columns_first = columns < plan_.rows;
    parallel_for(row_pieces * column_pieces, 1, [&](int64_t first, int64_t past) {
      for (int64_t piece = first; piece < past; ++piece) {
        const int64_t row_piece = columns_first ? piece / column_pieces : piece % row_pieces;
        const int64_t column_piece = columns_first ? piece % column_pieces : piece / row_pieces;
        const int64_t row = row_piece * kPieceRows, past_rows = std::min(plan_.rows, row + kPieceRows);
        const int64_t past_columns = std::min(columns, (column_piece + 1) * piece_columns);
        for (int64_t j = column_piece * piece_columns; j < past_columns; j += width) {
          multiply_rows(begin, depth, row, past_rows, column + j, std::min(width, past_columns - j),
                        packed_right_ + j * plan_.words(depth));
        }
      }
    });
  }

  /// The rows [row, past_rows), at most kPieceRows, of a panel.
  void multiply_rows(int64_t begin, int64_t depth, int64_t row, int64_t past_rows, int64_t column, int64_t columns,
                     const float* panel) const {
    const auto& kernels = plan_.kernels;
    const bool swapped = plan_.swapped, is_last = begin + depth == p_.k, is_stored_later = swapped || rounds_;
    const float* bias = is_last ? static_cast<const float*>(p_.epilogue.bias) : nullptr;
    if (bias != nullptr) bias += swapped ? row : column;
    const int64_t at = swapped ? column * p_.out_leading + row : row * p_.out_leading + column;
    float* const out = static_cast<float*>(p_.out) + (rounds_ ? 0 : at);
    GemmTile<float> tile{};
    tile.rows = past_rows - row;
    tile.columns = columns;
    tile.k = depth;
    tile.left_stride = plan_.pack_left ? 0 : plan_.left_row_stride;
    tile.right = panel;
    tile.right_stride = kernels.columns;
    tile.alpha = static_cast<float>(p_.alpha);
    tile.beta = begin == 0 ? static_cast<float>(p_.beta) : 1.0f;
    tile.bias = bias;
    tile.relu = is_last && p_.epilogue.relu;
    tile.out = out;
    tile.out_leading = p_.out_leading;
    // The rows of a swapped product are transposed together, so that whole cache lines are stored.
    GemmTile<float> whole = tile;
    whole.transposed = swapped;
    alignas(64) float values[kPieceRows * kMaxColumns];
    if (is_stored_later) {
      tile.beta = 0;
      tile.bias = nullptr;
      tile.relu = false;
      tile.out_leading = kernels.columns;
    }
    for (int64_t i = row; i < past_rows; i += kernels.rows) {
      tile.rows = std::min(kernels.rows, past_rows - i);
      tile.left = reinterpret_cast<const float*>(left_ + i * plan_.left_row_stride + begin);
      if (plan_.pack_left) tile.left = packed_left_ + i * plan_.words(depth);
      tile.out = (is_stored_later ? values : out) + (i - row) * tile.out_leading;
      kernels.tile(tile);
    }
    if constexpr (std::is_same_v<E, BFloat16>) {
      if (rounds_) return kernels.store_rounded(whole, values, kernels.columns, static_cast<E*>(p_.out) + at);
    }
    if (swapped) kernels.store_transposed(whole, values, kernels.columns);
  }

  static constexpr int64_t kPieceRows = 48, kMaxColumns = 64;

  const Problem& p_;
  const bool rounds_;
  const TilePlan<E> plan_;
  const E *left_, *right_;
  float *packed_right_, *packed_left_;
};

void eigen_gemm(const Problem& p) {
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using ColMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
  using Stride = Eigen::OuterStride<>;
  Eigen::Map<RowMajor, 0, Stride> out(static_cast<double*>(p.out), p.m, p.n, Stride(p.out_leading));
  auto multiply = [&]<class Left, class Right>(Left*, Right*) {
    const Eigen::Map<const Left, 0, Stride> a(static_cast<const double*>(p.a.data), p.m, p.k, Stride(p.a.leading));
    const Eigen::Map<const Right, 0, Stride> b(static_cast<const double*>(p.b.data), p.k, p.n, Stride(p.b.leading));
    if (p.beta == 0) {
      out.setZero();
    } else if (p.beta != 1) {
      out *= p.beta;
    }
    out.noalias() += p.alpha * (a * b);
  };
  RowMajor* row = nullptr;
  ColMajor* col = nullptr;
  if (p.a.transposed) {
    p.b.transposed ? multiply(col, col) : multiply(col, row);
  } else {
    p.b.transposed ? multiply(row, col) : multiply(row, row);
  }
}

/// Calls f on parts of the output: pieces of the longer side with about 2^24 multiplications each, at most sixteen.
template <class T, class F>
void for_tiles(const Problem& p, F f) {
  const int64_t work = p.m * p.n * std::max<int64_t>(1, p.k);
  if (work < int64_t{1} << 22) {
    f(p);
    return;
  }
  const int64_t pieces = std::clamp<int64_t>(work >> 24, 2, 16);
  const int64_t side = std::max(p.m, p.n);
  const int64_t size = (side / pieces + 63) / 64 * 64;
  parallel_for((side + size - 1) / size, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t start = piece * size, length = std::min(size, side - start);
      f(p.m > p.n ? tile<T>(p, start, length, 0, p.n) : tile<T>(p, 0, p.m, start, length));
    }
  });
}

void solve(DType dtype, GemmAlgorithm algorithm, const Problem& p, void* workspace) {
  if (p.m == 0 || p.n == 0) return;
  if (is_integral(dtype)) return visit_integral_dtype(dtype, [&]<class T>() { direct_gemm<T>(p); });
  if (dtype == kFloat64) {
    if (p.m * p.n * p.k <= 16 * 16 * 16) {
      direct_gemm<double>(p);
      return apply_epilogue<double>(p);
    }
    return for_tiles<double>(p, [](const Problem& part) {
      eigen_gemm(part);
      apply_epilogue<double>(part);
    });
  }
  if (algorithm == GemmAlgorithm::kVector) {
    return dtype == kFloat32           ? vector_gemm<float, float>(p)
           : p.epilogue.float32_result ? vector_gemm<BFloat16, float>(p)
                                       : vector_gemm<BFloat16, BFloat16>(p);
  }
  if (is_bf16(algorithm)) return TiledGemm<BFloat16>(algorithm, p, static_cast<float*>(workspace)).run();
  if (algorithm == GemmAlgorithm::kDirect || p.k == 0) {
    direct_gemm<float>(p);
    return apply_epilogue<float>(p);
  }
  TiledGemm<float>(algorithm, p, static_cast<float*>(workspace)).run();
}

/// The span of a product; only float32 and bfloat16 have a choice of algorithms.
TraceSpan trace_gemm(DType dtype, GemmAlgorithm algorithm) {
  return dtype == kFloat32 || dtype == kBFloat16 ? TraceSpan(to_string(algorithm), "algorithm") : TraceSpan();
}

}  // namespace

int64_t gemm_workspace_bytes(DType dtype, GemmAlgorithm algorithm, int64_t m, int64_t n, int64_t k,
                             const MatrixOperand& a, const MatrixOperand& b) {
  if (algorithm < GemmAlgorithm::kAvx2 || (dtype != kFloat32 && dtype != kBFloat16)) return 0;
  const auto bytes_of = [](const auto& plan) { return (plan.right_floats() + plan.left_floats()) * size_of(kFloat32); };
  return is_bf16(algorithm) ? bytes_of(TilePlan<BFloat16>(algorithm, m, n, k, a, b))
                            : bytes_of(TilePlan<float>(algorithm, m, n, k, a, b));
}

void gemm(const CpuContext&, DType dtype, GemmAlgorithm algorithm, int64_t m, int64_t n, int64_t k, double alpha,
          const MatrixOperand& a, const MatrixOperand& b, double beta, GemmEpilogue epilogue, void* workspace,
          void* out) {
  solve(dtype, algorithm, {m, n, k, alpha, beta, a, b, epilogue, out, n}, workspace);
}

int64_t gemm_workspace_bytes(const KernelContext&, DType dtype, int64_t batches, int64_t m, int64_t n, int64_t k,
                             const MatrixOperand& a, const MatrixOperand& b) {
  const GemmAlgorithm algorithm = gemm_algorithm(m, n, k, a.transposed, b.transposed, dtype);
  return batches * gemm_workspace_bytes(dtype, algorithm, m, n, k, a, b);
}

void gemm(const KernelContext&, DType dtype, int64_t batches, int64_t m, int64_t n, int64_t k, double alpha,
          const MatrixOperand& a, const int64_t* a_offsets, const MatrixOperand& b, const int64_t* b_offsets,
          double beta, GemmEpilogue epilogue, void* workspace, void* out) {
  const GemmAlgorithm algorithm = gemm_algorithm(m, n, k, a.transposed, b.transposed, dtype);
  const TraceSpan span = trace_gemm(dtype, algorithm);
  if (batches == 1 && a_offsets == nullptr && b_offsets == nullptr) {  // split over threads inside solve
    return solve(dtype, algorithm, {m, n, k, alpha, beta, a, b, epilogue, out, n}, workspace);
  }
  const int64_t work = std::max<int64_t>(1, m * n * k);
  const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 20) / work);
  const int64_t bytes = size_of(dtype), workspace_bytes = gemm_workspace_bytes(dtype, algorithm, m, n, k, a, b);
  parallel_for(batches, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      MatrixOperand left = a, right = b;
      if (a_offsets != nullptr) left.data = static_cast<const std::byte*>(a.data) + a_offsets[i] * bytes;
      if (b_offsets != nullptr) right.data = static_cast<const std::byte*>(b.data) + b_offsets[i] * bytes;
      std::byte* const own_out = static_cast<std::byte*>(out) + i * m * n * (epilogue.float32_result ? 4 : bytes);
      solve(dtype, algorithm, {m, n, k, alpha, beta, left, right, epilogue, own_out, n},
            static_cast<std::byte*>(workspace) + i * workspace_bytes);
    }
  });
}

}  // namespace cpu
}}  // namespace tandem::v0
