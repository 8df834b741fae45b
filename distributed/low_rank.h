// Loops over a row-major matrix M [rows, cols] and a few columns beside it.  Columns lie one after the other.  Private to
// distributed/.
#pragma once

#include <cstdint>

#include <tandem/base/function_ref.h>

namespace tandem::inline v0::distributed {

/// M += gradient, then p [rank, rows] = M q for q [rank, cols].  T is the gradient's type, A the one of sums: T or, for half
/// types, float.
template <class T, class A>
void add_and_project(const T* gradient, A* m, int64_t rows, int64_t cols, const A* q, int64_t rank, A* p);

/// q [rank, cols] = M^T p for p [rank, rows].
template <class A>
void project_transposed(const A* m, int64_t rows, int64_t cols, const A* p, int64_t rank, A* q);

/// result = p q^T, rounded to T; M -= result.
template <class T, class A>
void subtract_product(A* m, int64_t rows, int64_t cols, const A* p, const A* q, int64_t rank, T* result);

/// Makes columns [rank, n] orthonormal by Gram-Schmidt, twice, with sums in double.  Of a column that depends on those
/// before it nothing but rounding would be left: replace(k) may put another one in its place and return true; or it becomes
/// 0.
template <class A>
void orthonormalize(A* columns, int64_t n, int64_t rank, FunctionRef<bool(int64_t k)> replace);

}  // namespace tandem::inline v0::distributed
