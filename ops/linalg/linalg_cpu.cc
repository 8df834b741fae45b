#include <tandem/ops/linalg/linalg_cpu.h>

#include <algorithm>
#include <atomic>

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <Eigen/LU>
#include <Eigen/QR>
#include <Eigen/SVD>

#include <tandem/base/math.h>
#include <tandem/base/parallel_for.h>

namespace tandem { inline namespace v0 { namespace cpu {
namespace {

/// Multiply-adds per piece of parallel work.
constexpr int64_t kGrain = 1 << 16;

// Everything is computed in double, because compiling Eigen's decompositions for two types takes too long.
using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

template <class F>
void visit(DType dtype, F f) {
  dtype == kFloat64 ? f.template operator()<double>() : f.template operator()<float>();
}

/// Matrix `i` of a batch.
Matrix load(DType dtype, const void* data, int64_t i, int64_t rows, int64_t columns) {
  Matrix result;
  visit(dtype, [&]<class T>() {
    using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const T* values = static_cast<const T*>(data) + i * rows * columns;
    result = Eigen::Map<const RowMajor>(values, rows, columns).template cast<double>();
  });
  return result;
}

/// Writes the matrix from element `offset` on.
void store(DType dtype, const Matrix& matrix, void* data, int64_t offset) {
  visit(dtype, [&]<class T>() {
    using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    Eigen::Map<RowMajor>(static_cast<T*>(data) + offset, matrix.rows(), matrix.cols()) = matrix.cast<T>();
  });
}

/// Calls succeeds(i) for all batch indices; returns the first one for which it is false, or -1. `size` is the length of
/// a matrix's longer side, or 0: nothing is called, however many batches there are.
template <class F>
int64_t for_batches(int64_t batches, int64_t size, F succeeds) {
  if (size == 0) return -1;
  std::atomic<int64_t> first = batches;
  const int64_t work = std::max<int64_t>(1, saturating_mul(saturating_mul(size, size), size));
  parallel_for(batches, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (succeeds(i)) continue;
      for (int64_t seen = first; i < seen && !first.compare_exchange_weak(seen, i);) {
      }
    }
  });
  return first == batches ? -1 : first.load();
}

}  // namespace

int64_t cholesky(DType dtype, int64_t batches, int64_t n, const void* a, void* out) {
  return for_batches(batches, n, [&](int64_t i) {
    const Eigen::LLT<Matrix> llt(load(dtype, a, i, n, n));
    const Matrix lower = llt.matrixL();
    store(dtype, lower, out, i * n * n);
    return llt.info() == Eigen::Success && !lower.hasNaN();
  });
}

int64_t solve(DType dtype, int64_t batches, int64_t n, int64_t k, const void* a, const void* b, void* out) {
  return for_batches(batches, n == 0 ? 0 : std::max(n, k), [&](int64_t i) {
    const Eigen::PartialPivLU<Matrix> lu(load(dtype, a, i, n, n));
    if ((lu.matrixLU().diagonal().array() == 0).any()) return false;
    if (k > 0) store(dtype, lu.solve(load(dtype, b, i, n, k)), out, i * n * k);
    return true;
  });
}

void det(DType dtype, int64_t batches, int64_t n, const void* a, void* out) {
  for_batches(batches, std::max<int64_t>(n, 1), [&](int64_t i) {
    const double result = n == 0 ? 1 : load(dtype, a, i, n, n).determinant();
    store(dtype, Matrix::Constant(1, 1, result), out, i);
    return true;
  });
}

int64_t det_backward(DType dtype, int64_t batches, int64_t n, const void* a, const void* grad, void* out) {
  return for_batches(batches, n, [&](int64_t i) {
    const Eigen::BDCSVD<Matrix> svd(load(dtype, a, i, n, n), Eigen::ComputeFullU | Eigen::ComputeFullV);
    if (svd.info() != Eigen::Success) return false;
    // The matrix of cofactors: det(U V^T) U diag(products of the other singular values) V^T.
    Vector others = Vector::Constant(n, load(dtype, grad, i, 1, 1)(0));
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t l = 0; l < n; ++l) others(j) *= l == j ? 1 : svd.singularValues()(l);
    }
    const double sign = svd.matrixU().determinant() * svd.matrixV().determinant() < 0 ? -1 : 1;
    store(dtype, sign * svd.matrixU() * others.asDiagonal() * svd.matrixV().transpose(), out, i * n * n);
    return true;
  });
}

void lu_factor(DType dtype, int64_t batches, int64_t m, int64_t n, const void* a, void* out, int32_t* pivots) {
  const int64_t k = std::min(m, n);
  for_batches(batches, k == 0 ? 0 : std::max(m, n), [&](int64_t i) {
    Matrix lu = load(dtype, a, i, m, n);
    for (int64_t j = 0; j < k; ++j) {
      int64_t p = 0;
      lu.col(j).tail(m - j).cwiseAbs().maxCoeff(&p);
      pivots[i * k + j] = static_cast<int32_t>(j + p + 1);
      lu.row(j).swap(lu.row(j + p));
      if (lu(j, j) == 0) continue;
      lu.col(j).tail(m - j - 1) /= lu(j, j);
      lu.bottomRightCorner(m - j - 1, n - j - 1) -= lu.col(j).tail(m - j - 1) * lu.row(j).tail(n - j - 1);
    }
    store(dtype, lu, out, i * m * n);
    return true;
  });
}

void qr(DType dtype, int64_t batches, int64_t m, int64_t n, const void* a, void* out) {
  const int64_t k = std::min(m, n);
  for_batches(batches, k == 0 ? 0 : std::max(m, n), [&](int64_t i) {
    const Eigen::HouseholderQR<Matrix> decomposition(load(dtype, a, i, m, n));
    const int64_t offset = i * k * (m + n);
    store(dtype, decomposition.householderQ() * Matrix::Identity(m, k), out, offset);
    store(dtype, decomposition.matrixQR().topRows(k).triangularView<Eigen::Upper>(), out, offset + m * k);
    return true;
  });
}

int64_t svd(DType dtype, int64_t batches, int64_t m, int64_t n, const void* a, void* out) {
  const int64_t k = std::min(m, n);
  return for_batches(batches, k == 0 ? 0 : std::max(m, n), [&](int64_t i) {
    const Eigen::BDCSVD<Matrix> decomposition(load(dtype, a, i, m, n), Eigen::ComputeThinU | Eigen::ComputeThinV);
    if (decomposition.info() != Eigen::Success) return false;
    const int64_t offset = i * k * (m + n + 1);
    store(dtype, decomposition.matrixU(), out, offset);
    store(dtype, decomposition.singularValues(), out, offset + m * k);
    store(dtype, decomposition.matrixV().transpose(), out, offset + m * k + k);
    return true;
  });
}

int64_t eigh(DType dtype, int64_t batches, int64_t n, const void* a, void* out) {
  return for_batches(batches, n, [&](int64_t i) {
    const Matrix matrix = load(dtype, a, i, n, n);
    if (!matrix.allFinite()) return false;
    const Eigen::SelfAdjointEigenSolver<Matrix> solver(matrix);
    store(dtype, solver.eigenvalues(), out, i * n * (n + 1));
    store(dtype, solver.eigenvectors(), out, i * n * (n + 1) + n);
    return solver.info() == Eigen::Success;
  });
}

}}}  // namespace tandem::v0::cpu
