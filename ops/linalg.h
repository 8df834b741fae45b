// Linear algebra, on CPUs.
//
// Common to all: A [..., m, n] is a batch of float32 or float64 matrices (DTypeError) of any strides; m x m where a
// function says square (ShapeError). Half types are raised to float32 under autocast. Results are row-major and share
// no memory. The matrices of a batch are computed in parallel by Eigen, in double; bits do not depend on threads.
// Tensors on GPUs throw DeviceError. The formulas of backward are written in operations, so all gradients are
// differentiable. Names with one letter are as in PyTorch.
//
// M. B. Giles, "An extended collection of matrix derivative results for forward and reverse mode algorithmic
// differentiation", 2008; other sources are named below.
#pragma once

#include <tuple>
#include <utility>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace linalg {

/// The lower triangular L with A = L L^T, for square A, of which the lower triangle is read. Saves L; the gradient is
/// symmetric. Throws ValueError naming the first matrix that is not positive definite.
/// I. Murray, "Differentiation of the Cholesky decomposition", 2016.
TANDEM_OP Tensor cholesky(Tensor A);

/// X with A X = B, by LU with partial pivoting, for square A. B is [..., m, k] with batches that broadcast with the
/// batches of A, or vectors: [m], or of A's shape without the last dimension. Saves A and X: d B = A^-T d X, d A = -d B
/// X^T. Throws ValueError naming the first singular matrix, ShapeError, DeviceError.
TANDEM_OP Tensor solve(Tensor A, Tensor B);

/// The inverse of square A: solve(A, identity). Throws ValueError naming the first singular matrix.
TANDEM_OP Tensor inv(Tensor A);

/// The determinant of square A: [...]. Saves A and the result. The first derivative, the matrix of cofactors, is exact
/// for singular matrices too; second derivatives throw ValueError for them.
TANDEM_OP Tensor det(Tensor A);

/// Result of qr.
struct QR {
  Tensor Q;  ///< [..., m, k], k = min(m, n): orthonormal columns
  Tensor R;  ///< [..., k, n]: upper triangular
};
/// A = Q R by Householder reflections, as torch.linalg.qr(A, "reduced"). Saves Q and R. The gradient throws ValueError
/// if the first k columns of A are linearly dependent.
/// S. F. Walter, L. Lehmann, "Algorithmic differentiation of linear algebra functions with application in optimum
/// experimental design", 2012; D. A. O. Roberts, L. R. Roberts, "QR and LQ decomposition matrix backpropagation
/// algorithms for square, wide, and deep matrices", 2020.
TANDEM_OP QR qr(Tensor A);

/// {LU, pivots} of A = P L U by Gaussian elimination with partial pivoting, as torch.linalg.lu_factor. LU [..., m, n]
/// is U on and above the diagonal, below it L without its diagonal of ones. pivots [..., k], k = min(m, n), int32: row
/// i was exchanged with row pivots[i], counted from 1. A may be singular. Saves the result; the gradient throws
/// ValueError if the first k columns of U are singular.
TANDEM_OP std::pair<Tensor, Tensor> lu_factor(Tensor A);
/// {P, L, U} of a result of lu_factor, as torch.lu_unpack: the permutation matrix P [..., m, m], which has no gradient,
/// L [..., m, k] with ones on the diagonal, U [..., k, n]. Throws DTypeError unless pivots is int32, ShapeError, and
/// ValueError for a pivot outside of [1, m].
TANDEM_OP std::tuple<Tensor, Tensor, Tensor> lu_unpack(Tensor LU, const Tensor& pivots);

/// Result of svd.
struct SVD {
  Tensor U;   ///< [..., m, k], k = min(m, n): orthonormal columns
  Tensor S;   ///< [..., k]: singular values, descending
  Tensor Vh;  ///< [..., k, n]: orthonormal rows
};
/// A = U diag(S) Vh by divide and conquer, as torch.linalg.svd(A, full_matrices=False). Saves the result. Gradients
/// through U and Vh are infinite for equal singular values; those through S alone are always finite. Throws ValueError
/// naming the first matrix that is not finite.
/// J. Townsend, "Differentiating the singular value decomposition", 2016.
TANDEM_OP SVD svd(Tensor A);

/// Result of eigh.
struct Eigh {
  Tensor eigenvalues;   ///< [..., m], ascending
  Tensor eigenvectors;  ///< [..., m, m]: orthonormal columns
};
/// A = V diag(L) V^T for symmetric A, of which the lower triangle is read. Saves the result. Gradients through the
/// eigenvectors are infinite for equal eigenvalues. Throws ValueError naming the first matrix that is not finite.
TANDEM_OP Eigh eigh(Tensor A);

}}}  // namespace tandem::v0::linalg
