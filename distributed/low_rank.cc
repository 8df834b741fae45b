#include <tandem/distributed/low_rank.h>

#include <cmath>
#include <type_traits>

#include <tandem/tensor/dtype.h>

namespace tandem::inline v0::distributed {

namespace {

constexpr int64_t kLanes = 16;

/// In a fixed order: lane i sums elements i, i + kLanes, ...
template <class Sum, class A>
Sum dot(const A* a, const A* b, int64_t n) {
  Sum lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += static_cast<Sum>(a[i + l]) * static_cast<Sum>(b[i + l]);
  }
  for (; i < n; ++i) lanes[i % kLanes] += static_cast<Sum>(a[i]) * static_cast<Sum>(b[i]);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

}  // namespace

template <class T, class A>
void add_and_project(const T* gradient, A* m, int64_t rows, int64_t cols, const A* q, int64_t rank, A* p) {
  for (int64_t i = 0; i < rows; ++i) {
    A* row = m + i * cols;
    const T* more = gradient + i * cols;
    for (int64_t j = 0; j < cols; ++j) row[j] += static_cast<A>(more[j]);
    for (int64_t k = 0; k < rank; ++k) p[k * rows + i] = dot<A>(row, q + k * cols, cols);
  }
}

template <class A>
void project_transposed(const A* m, int64_t rows, int64_t cols, const A* p, int64_t rank, A* q) {
  for (int64_t j = 0; j < rank * cols; ++j) q[j] = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const A* row = m + i * cols;
    for (int64_t k = 0; k < rank; ++k) {
      const A factor = p[k * rows + i];
      A* column = q + k * cols;
      for (int64_t j = 0; j < cols; ++j) column[j] += factor * row[j];
    }
  }
}

template <class T, class A>
void subtract_product(A* m, int64_t rows, int64_t cols, const A* p, const A* q, int64_t rank, T* result) {
  constexpr int64_t kTile = 256;
  A tile[kTile];
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t begin = 0; begin < cols; begin += kTile) {
      const int64_t n = cols - begin < kTile ? cols - begin : kTile;
      for (int64_t j = 0; j < n; ++j) tile[j] = 0;
      for (int64_t k = 0; k < rank; ++k) {
        const A factor = p[k * rows + i];
        const A* column = q + k * cols + begin;
        for (int64_t j = 0; j < n; ++j) tile[j] += factor * column[j];
      }
      A* row = m + i * cols + begin;
      T* to = result + i * cols + begin;
      for (int64_t j = 0; j < n; ++j) {
        const T rounded = static_cast<T>(tile[j]);
        to[j] = rounded;
        row[j] -= static_cast<A>(rounded);  // what is delivered, so that the rounding is not lost either
      }
    }
  }
}

template <class A>
void orthonormalize(A* columns, int64_t n, int64_t rank, FunctionRef<bool(int64_t k)> replace) {
  // Where less than this is left of a column, it is rounding.
  const double least = std::is_same_v<A, float> ? 1e-5 : 1e-13;
  for (int64_t k = 0; k < rank; ++k) {
    A* column = columns + k * n;
    bool may_replace = true;
    for (;;) {
      const double before = std::sqrt(dot<double>(column, column, n));
      for (int pass = 0; pass < 2; ++pass) {
        for (int64_t l = 0; l < k; ++l) {
          const A* other = columns + l * n;
          const double along = dot<double>(other, column, n);
          for (int64_t j = 0; j < n; ++j) {
            column[j] = static_cast<A>(static_cast<double>(column[j]) - along * static_cast<double>(other[j]));
          }
        }
      }
      const double norm = std::sqrt(dot<double>(column, column, n));
      if (norm > least * before) {
        for (int64_t j = 0; j < n; ++j) column[j] = static_cast<A>(static_cast<double>(column[j]) / norm);
        break;
      }
      if (may_replace && replace(k)) {
        may_replace = false;
        continue;
      }
      for (int64_t j = 0; j < n; ++j) column[j] = 0;
      break;
    }
  }
}

template void add_and_project(const Half*, float*, int64_t, int64_t, const float*, int64_t, float*);
template void add_and_project(const BFloat16*, float*, int64_t, int64_t, const float*, int64_t, float*);
template void add_and_project(const float*, float*, int64_t, int64_t, const float*, int64_t, float*);
template void add_and_project(const double*, double*, int64_t, int64_t, const double*, int64_t, double*);
template void project_transposed(const float*, int64_t, int64_t, const float*, int64_t, float*);
template void project_transposed(const double*, int64_t, int64_t, const double*, int64_t, double*);
template void subtract_product(float*, int64_t, int64_t, const float*, const float*, int64_t, Half*);
template void subtract_product(float*, int64_t, int64_t, const float*, const float*, int64_t, BFloat16*);
template void subtract_product(float*, int64_t, int64_t, const float*, const float*, int64_t, float*);
template void subtract_product(double*, int64_t, int64_t, const double*, const double*, int64_t, double*);
template void orthonormalize(float*, int64_t, int64_t, FunctionRef<bool(int64_t)>);
template void orthonormalize(double*, int64_t, int64_t, FunctionRef<bool(int64_t)>);

}  // namespace tandem::inline v0::distributed
