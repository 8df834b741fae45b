#include <cmath>

#include <tandem/distributed/ddp/low_rank_kernels.h>

namespace tandem { inline namespace v0 { namespace distributed::cpu {

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

template <class A>
bool is_finite(const A* values, int64_t n) {
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) finite = finite && std::isfinite(values[i]);
  return finite;
}

template <class A>
void draw(const ColumnStream& stream, int64_t n, A* column) {
  const int64_t number = (*stream.draws)++;
  for (int64_t j = 0; j < n; ++j) column[j] = static_cast<A>(drawn_value(stream.stream, number, j));
}

template <class A>
void make_orthonormal(A* columns, int64_t n, int64_t rank, const ColumnStream& stream) {
  if (!is_finite(columns, rank * n)) return;
  for (int64_t k = 0; k < rank; ++k) {
    A* column = columns + k * n;
    bool may_replace = stream.draws != nullptr;
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
      if (norm > kLeastOfColumn<A> * before) {
        for (int64_t j = 0; j < n; ++j) column[j] = static_cast<A>(static_cast<double>(column[j]) / norm);
        break;
      }
      if (!may_replace) {
        for (int64_t j = 0; j < n; ++j) column[j] = 0;
        break;
      }
      may_replace = false;
      draw(stream, n, column);
    }
  }
}

template <class T, class A>
void subtract(const LowRankShape& shape, const A* p, const A* q, A* m, T* result) {
  constexpr int64_t kTile = 256;
  A tile[kTile];
  const int64_t cols = shape.cols;
  for (int64_t i = 0; i < shape.rows; ++i) {
    for (int64_t begin = 0; begin < cols; begin += kTile) {
      const int64_t n = cols - begin < kTile ? cols - begin : kTile;
      for (int64_t j = 0; j < n; ++j) tile[j] = 0;
      for (int64_t k = 0; k < shape.rank; ++k) {
        const A factor = p[k * shape.rows + i];
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

}  // namespace

void draw_columns(const KernelContext&, DType dtype, int64_t n, int64_t rank, const ColumnStream& stream,
                  const int32_t* unless, void* columns) {
  if (unless != nullptr && *unless == 1) return;
  visit_floating_dtype(dtype, [&]<class T>() {
    for (int64_t k = 0; k < rank; ++k) draw(stream, n, static_cast<Accumulator<T>*>(columns) + k * n);
  });
}

void orthonormalize(const KernelContext&, DType dtype, int64_t n, int64_t rank, const ColumnStream& stream,
                    void* columns) {
  visit_floating_dtype(dtype,
                       [&]<class T>() { make_orthonormal(static_cast<Accumulator<T>*>(columns), n, rank, stream); });
}

void add_and_project(const KernelContext&, DType dtype, const LowRankShape& shape, const void* gradient, void* m,
                     const void* q, void* p) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using A = Accumulator<T>;
    for (int64_t i = 0; i < shape.rows; ++i) {
      A* row = static_cast<A*>(m) + i * shape.cols;
      const T* more = static_cast<const T*>(gradient) + i * shape.cols;
      for (int64_t j = 0; j < shape.cols; ++j) row[j] += static_cast<A>(more[j]);
      for (int64_t k = 0; k < shape.rank; ++k) {
        static_cast<A*>(p)[k * shape.rows + i] = dot<A>(row, static_cast<const A*>(q) + k * shape.cols, shape.cols);
      }
    }
  });
}

void project_transposed(const KernelContext&, DType dtype, const LowRankShape& shape, const void* m, const void* p,
                        void* q) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using A = Accumulator<T>;
    A* columns = static_cast<A*>(q);
    for (int64_t j = 0; j < shape.rank * shape.cols; ++j) columns[j] = 0;
    for (int64_t i = 0; i < shape.rows; ++i) {
      const A* row = static_cast<const A*>(m) + i * shape.cols;
      for (int64_t k = 0; k < shape.rank; ++k) {
        const A factor = static_cast<const A*>(p)[k * shape.rows + i];
        A* column = columns + k * shape.cols;
        for (int64_t j = 0; j < shape.cols; ++j) column[j] += factor * row[j];
      }
    }
  });
}

void all_finite(const KernelContext&, DType dtype, const LowRankShape& shape, const void* p, const void* q,
                int32_t* finite) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using A = Accumulator<T>;
    *finite = is_finite(static_cast<const A*>(p), shape.rank * shape.rows) &&
              is_finite(static_cast<const A*>(q), shape.rank * shape.cols);
  });
}

void subtract_product(const KernelContext&, DType dtype, const LowRankShape& shape, const void* p, const void* q,
                      const int32_t* finite, void* m, void* result) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using A = Accumulator<T>;
    A* matrix = static_cast<A*>(m);
    T* to = static_cast<T*>(result);
    if (*finite == 1) return subtract<T, A>(shape, static_cast<const A*>(p), static_cast<const A*>(q), matrix, to);
    for (int64_t i = 0; i < shape.rows * shape.cols; ++i) {
      matrix[i] = 0;
      to[i] = static_cast<T>(std::numeric_limits<A>::quiet_NaN());
    }
  });
}

}}}  // namespace tandem::v0::distributed::cpu
