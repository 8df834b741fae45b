// Kernels over a row-major matrix M [rows, cols] and a few columns beside it: p [rank, rows] and q [rank, cols], whose columns lie
// one after the other.  M, p and q are of the accumulator's type of `dtype`, which is the gradient's.  Private to distributed/.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 { namespace distributed {

struct LowRankShape {
  int64_t rows;
  int64_t cols;
  int64_t rank;
};

/// Random columns, one after the other: a function of the stream, and of how many were drawn.
struct ColumnStream {
  PhiloxState stream;
  int64_t* draws;  ///< where the columns lie; null: there are no more columns
};

/// Number j of column `draw`, in [-0.5, 0.5).
TANDEM_HOST_DEVICE inline double drawn_value(PhiloxState stream, int64_t draw, int64_t j) {
  stream.offset = static_cast<uint64_t>(draw) << 32;
  return stream.block(static_cast<uint64_t>(j / 4))[static_cast<size_t>(j % 4)] * 0x1p-32 - 0.5;
}

/// Where no more than this is left of a column of A, in parts of it, it is rounding.
template <class A>
inline constexpr double kLeastOfColumn = std::is_same_v<A, float> ? 1e-5 : 1e-13;

// clang-format off
TANDEM_KERNELS(
/// columns [rank, n] = the stream's next ones; nothing happens where unless (null: 0) holds 1.
void draw_columns(const KernelContext& context, DType dtype, int64_t n, int64_t rank, const ColumnStream& stream,
                  const int32_t* unless, void* columns);
/// Makes columns [rank, n] orthonormal by Gram-Schmidt, twice, with sums in double; those that are not all finite stay as they are.
/// Of a column that depends on those before it nothing but rounding would be left: the stream's next one takes its place, or, where
/// that is no better, 0.
void orthonormalize(const KernelContext& context, DType dtype, int64_t n, int64_t rank, const ColumnStream& stream,
                    void* columns);
/// M += gradient, then p = M q.
void add_and_project(const KernelContext& context, DType dtype, const LowRankShape& shape, const void* gradient, void* m,
                     const void* q, void* p);
/// q = M^T p.
void project_transposed(const KernelContext& context, DType dtype, const LowRankShape& shape, const void* m,
                        const void* p, void* q);
/// *finite = 1 if all of p and q is finite, else 0.
void all_finite(const KernelContext& context, DType dtype, const LowRankShape& shape, const void* p, const void* q,
                int32_t* finite);
/// result = p q^T, rounded to dtype, and M -= result; where *finite is 0: result = NaN, M = 0.
void subtract_product(const KernelContext& context, DType dtype, const LowRankShape& shape, const void* p,
                      const void* q, const int32_t* finite, void* m, void* result);
)
// clang-format on

}}}  // namespace tandem::v0::distributed
