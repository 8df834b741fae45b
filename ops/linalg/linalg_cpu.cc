#include <tandem/ops/linalg/linalg_cpu.h>

#include <algorithm>
#include <atomic>

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <Eigen/LU>
#include <Eigen/QR>
#include <Eigen/SVD>

#include <tandem/base/parallel_for.h>

namespace tandem { inline namespace v0 { namespace cpu {
namespace {

/// Multiply-adds per piece of parallel work.
constexpr int64_t kGrain = 1 << 16;

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using Vector = Eigen::Matrix<T, Eigen::Dynamic, 1>;
template <class T>
using Input = Eigen::Map<const Matrix<T>>;
template <class T>
using Output = Eigen::Map<Matrix<T>>;

template <class F>
void visit(DType dtype, F f) {
  dtype == kFloat64 ? f.template operator()<double>() : f.template operator()<float>();
}

/// Calls succeeds(i) for all batch indices; returns the first one for which it is false, or -1. `size` is that of a
/// matrix's longer side.
template <class F>
int64_t for_batches(int64_t batches, int64_t size, F succeeds) {
  std::atomic<int64_t> first = batches;
  const int64_t work = std::max<int64_t>(1, size * size * size);
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
  int64_t failed = -1;
  visit(dtype, [&]<class T>() {
    failed = for_batches(batches, n, [&](int64_t i) {
      const Eigen::LLT<Matrix<T>> llt(Input<T>(static_cast<const T*>(a) + i * n * n, n, n));
      Output<T> lower(static_cast<T*>(out) + i * n * n, n, n);
      lower = llt.matrixL();
      return llt.info() == Eigen::Success && !lower.hasNaN();
    });
  });
  return failed;
}

int64_t solve(DType dtype, int64_t batches, int64_t n, int64_t k, const void* a, const void* b, void* out) {
  int64_t failed = -1;
  visit(dtype, [&]<class T>() {
    failed = for_batches(batches, std::max(n, k), [&](int64_t i) {
      if (n == 0) return true;
      const Eigen::PartialPivLU<Matrix<T>> lu(Input<T>(static_cast<const T*>(a) + i * n * n, n, n));
      if ((lu.matrixLU().diagonal().array() == 0).any()) return false;
      if (k > 0) {
        Output<T>(static_cast<T*>(out) + i * n * k, n, k) =
            lu.solve(Input<T>(static_cast<const T*>(b) + i * n * k, n, k));
      }
      return true;
    });
  });
  return failed;
}

void det(DType dtype, int64_t batches, int64_t n, const void* a, void* out) {
  visit(dtype, [&]<class T>() {
    for_batches(batches, n, [&](int64_t i) {
      const Input<T> matrix(static_cast<const T*>(a) + i * n * n, n, n);
      static_cast<T*>(out)[i] = n == 0 ? T{1} : Eigen::PartialPivLU<Matrix<T>>(matrix).determinant();
      return true;
    });
  });
}

int64_t det_backward(DType dtype, int64_t batches, int64_t n, const void* a, const void* grad, void* out) {
  int64_t failed = -1;
  visit(dtype, [&]<class T>() {
    failed = for_batches(batches, n, [&](int64_t i) {
      if (n == 0) return true;
      const Eigen::BDCSVD<Matrix<T>> svd(Input<T>(static_cast<const T*>(a) + i * n * n, n, n),
                                         Eigen::ComputeFullU | Eigen::ComputeFullV);
      if (svd.info() != Eigen::Success) return false;
      // The matrix of cofactors: det(U V^T) U diag(products of the other singular values) V^T.
      Vector<T> others(n);
      for (int64_t j = 0; j < n; ++j) {
        others(j) = static_cast<const T*>(grad)[i];
        for (int64_t l = 0; l < n; ++l) others(j) *= l == j ? T{1} : svd.singularValues()(l);
      }
      const T sign = svd.matrixU().determinant() * svd.matrixV().determinant() < 0 ? T{-1} : T{1};
      Output<T>(static_cast<T*>(out) + i * n * n, n, n) =
          sign * svd.matrixU() * others.asDiagonal() * svd.matrixV().transpose();
      return true;
    });
  });
  return failed;
}

void qr(DType dtype, int64_t batches, int64_t m, int64_t n, const void* a, void* out) {
  const int64_t k = std::min(m, n);
  visit(dtype, [&]<class T>() {
    for_batches(batches, std::max(m, n), [&](int64_t i) {
      if (k == 0) return true;
      const Eigen::HouseholderQR<Matrix<T>> decomposition(Input<T>(static_cast<const T*>(a) + i * m * n, m, n));
      T* result = static_cast<T*>(out) + i * k * (m + n);
      Output<T>(result, m, k) = decomposition.householderQ() * Matrix<T>::Identity(m, k);
      Output<T>(result + m * k, k, n) = decomposition.matrixQR().topRows(k).template triangularView<Eigen::Upper>();
      return true;
    });
  });
}

int64_t svd(DType dtype, int64_t batches, int64_t m, int64_t n, const void* a, void* out) {
  const int64_t k = std::min(m, n);
  int64_t failed = -1;
  visit(dtype, [&]<class T>() {
    failed = for_batches(batches, std::max(m, n), [&](int64_t i) {
      if (k == 0) return true;
      const Eigen::BDCSVD<Matrix<T>> decomposition(Input<T>(static_cast<const T*>(a) + i * m * n, m, n),
                                                   Eigen::ComputeThinU | Eigen::ComputeThinV);
      T* result = static_cast<T*>(out) + i * k * (m + n + 1);
      if (decomposition.info() != Eigen::Success) return false;
      Output<T>(result, m, k) = decomposition.matrixU();
      Output<T>(result + m * k, k, 1) = decomposition.singularValues();
      Output<T>(result + m * k + k, k, n) = decomposition.matrixV().transpose();
      return true;
    });
  });
  return failed;
}

int64_t eigh(DType dtype, int64_t batches, int64_t n, const void* a, void* out) {
  int64_t failed = -1;
  visit(dtype, [&]<class T>() {
    failed = for_batches(batches, n, [&](int64_t i) {
      const Input<T> matrix(static_cast<const T*>(a) + i * n * n, n, n);
      if (n == 0) return true;
      if (!matrix.allFinite()) return false;
      const Eigen::SelfAdjointEigenSolver<Matrix<T>> solver(matrix);
      T* result = static_cast<T*>(out) + i * n * (n + 1);
      Output<T>(result, n, 1) = solver.eigenvalues();
      Output<T>(result + n, n, n) = solver.eigenvectors();
      return solver.info() == Eigen::Success;
    });
  });
  return failed;
}

}}}  // namespace tandem::v0::cpu
