// Kernels of linear algebra, for CPUs only. Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/tensor/dtype.h>

namespace tandem { inline namespace v0 { namespace cpu {

// All matrices are row-major, float or double, `batches` of them one after the other. Functions that can fail return
// the first batch index that failed, or -1; its results are undefined.

/// out [n, n] = the lower Cholesky factor of a. Fails unless a is positive definite.
int64_t cholesky(DType dtype, int64_t batches, int64_t n, const void* a, void* out);
/// out [n, k] = a^-1 b. Fails for a singular a.
int64_t solve(DType dtype, int64_t batches, int64_t n, int64_t k, const void* a, const void* b, void* out);
/// out = the determinant of a.
void det(DType dtype, int64_t batches, int64_t n, const void* a, void* out);
/// out [n, n] = grad times the derivatives of the determinant by the elements of a. Fails unless a is finite.
int64_t det_backward(DType dtype, int64_t batches, int64_t n, const void* a, const void* grad, void* out);
/// out [m, n] = L and U of the rows of a, exchanged as pivots [min(m, n)] says; see linalg::lu_factor.
void lu_factor(DType dtype, int64_t batches, int64_t m, int64_t n, const void* a, void* out, int32_t* pivots);
/// out = Q [m, k], then R [k, n], with k = min(m, n).
void qr(DType dtype, int64_t batches, int64_t m, int64_t n, const void* a, void* out);
/// out = U [m, k], then S [k], then Vh [k, n]. Fails unless a is finite.
int64_t svd(DType dtype, int64_t batches, int64_t m, int64_t n, const void* a, void* out);
/// out = the eigenvalues [n], then the eigenvectors [n, n]. Fails unless a is finite.
int64_t eigh(DType dtype, int64_t batches, int64_t n, const void* a, void* out);

}}}  // namespace tandem::v0::cpu
