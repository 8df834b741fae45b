// GPU kernels of PowerSGD.  The matrix is read and written in parallel; columns, of which there are few, are one block's.
#include <tandem/distributed/ddp/low_rank_kernels.h>
#include <tandem/tensor/cuda/block.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace distributed::cuda {

namespace {

using namespace tandem::cuda;

constexpr int kTile = 4;  // columns that a thread has sums of at a time

struct And {
  __device__ int operator()(int a, int b) const { return a & b; }
};

template <class A>
__device__ bool is_finite(const A* values, int64_t n) {
  int finite = 1;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) finite &= values[i] * 0 == 0;
  return block_reduce(finite, 1, And()) == 1;
}

template <class A>
__device__ double dot(const A* a, const A* b, int64_t n) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return block_reduce(sum, 0.0, Plus());
}

/// Each thread draws the elements that are its own in dot.
template <class A>
__device__ void draw(const ColumnStream& stream, int64_t n, A* column) {
  const int64_t number = *stream.draws;
  __syncthreads();
  if (threadIdx.x == 0) *stream.draws = number + 1;
  __syncthreads();
  for (int64_t j = threadIdx.x; j < n; j += blockDim.x)
    column[j] = static_cast<A>(drawn_value(stream.stream, number, j));
}

template <class A>
__global__ void draw_kernel(int64_t n, int64_t rank, ColumnStream stream, const int32_t* unless, A* columns) {
  if (unless != nullptr && *unless == 1) return;
  for (int64_t k = 0; k < rank; ++k) draw(stream, n, columns + k * n);
}

/// Threads keep to their elements of all columns, so that nothing but sums is exchanged.
template <class A>
__global__ void orthonormalize_kernel(int64_t n, int64_t rank, ColumnStream stream, A* columns) {
  if (!is_finite(columns, rank * n)) return;
  __syncthreads();  // elements were read by other threads than those that write them
  for (int64_t k = 0; k < rank; ++k) {
    A* column = columns + k * n;
    bool may_replace = stream.draws != nullptr;
    for (;;) {
      const double before = sqrt(dot(column, column, n));
      for (int pass = 0; pass < 2; ++pass) {
        for (int64_t l = 0; l < k; ++l) {
          const A* other = columns + l * n;
          const double along = dot(other, column, n);
          for (int64_t j = threadIdx.x; j < n; j += blockDim.x) {
            column[j] = static_cast<A>(static_cast<double>(column[j]) - along * static_cast<double>(other[j]));
          }
        }
      }
      const double norm = sqrt(dot(column, column, n));
      const bool is_left = norm > kLeastOfColumn<A> * before;
      if (is_left || !may_replace) {
        for (int64_t j = threadIdx.x; j < n; j += blockDim.x) {
          column[j] = is_left ? static_cast<A>(static_cast<double>(column[j]) / norm) : A(0);
        }
        break;
      }
      may_replace = false;
      draw(stream, n, column);
    }
  }
}

/// A block for each row.
template <class T, class A>
__global__ void project_kernel(LowRankShape shape, const T* gradient, A* m, const A* q, A* p) {
  for (int64_t i = blockIdx.x; i < shape.rows; i += gridDim.x) {
    A* row = m + i * shape.cols;
    const T* more = gradient + i * shape.cols;
    for (int64_t j = threadIdx.x; j < shape.cols; j += blockDim.x) row[j] += static_cast<A>(more[j]);
    for (int64_t first = 0; first < shape.rank; first += kTile) {
      const int columns = static_cast<int>(min(int64_t{kTile}, shape.rank - first));
      A sums[kTile] = {};
      for (int64_t j = threadIdx.x; j < shape.cols; j += blockDim.x) {  // the thread's own elements
        for (int k = 0; k < columns; ++k) sums[k] += row[j] * q[(first + k) * shape.cols + j];
      }
      for (int k = 0; k < columns; ++k) {
        const A sum = block_reduce(sums[k], A(0), Plus());
        if (threadIdx.x == 0) p[(first + k) * shape.rows + i] = sum;
      }
    }
  }
}

constexpr int kStripe = 32, kRowLanes = 16;

/// A block for each stripe of columns of M; its warps take the rows by turns.
template <class A>
__global__ void project_transposed_kernel(LowRankShape shape, const A* m, const A* p, A* q) {
  __shared__ A sums[kRowLanes][kStripe];
  const int lane = static_cast<int>(threadIdx.x) % kStripe, row_lane = static_cast<int>(threadIdx.x) / kStripe;
  for (int64_t stripe = blockIdx.x; stripe * kStripe < shape.cols; stripe += gridDim.x) {
    const int64_t j = stripe * kStripe + lane;
    for (int64_t k = 0; k < shape.rank; ++k) {
      A sum = 0;
      if (j < shape.cols) {
        for (int64_t i = row_lane; i < shape.rows; i += kRowLanes) sum += p[k * shape.rows + i] * m[i * shape.cols + j];
      }
      sums[row_lane][lane] = sum;
      __syncthreads();
      if (row_lane == 0 && j < shape.cols) {
        for (int other = 1; other < kRowLanes; ++other) sum += sums[other][lane];
        q[k * shape.cols + j] = sum;
      }
      __syncthreads();
    }
  }
}

template <class A>
__global__ void all_finite_kernel(LowRankShape shape, const A* p, const A* q, int32_t* finite) {
  const bool of_p = is_finite(p, shape.rank * shape.rows), of_q = is_finite(q, shape.rank * shape.cols);
  if (threadIdx.x == 0) *finite = of_p && of_q;
}

template <class T, class A>
struct Subtract {
  LowRankShape shape;
  const A* p;
  const A* q;
  const int32_t* finite;
  A* m;
  T* result;

  __device__ void operator()(int64_t at) const {
    if (*finite == 0) {
      m[at] = 0;
      result[at] = static_cast<T>(std::numeric_limits<A>::quiet_NaN());
      return;
    }
    const int64_t i = at / shape.cols, j = at % shape.cols;
    A sum = 0;
    for (int64_t k = 0; k < shape.rank; ++k) sum += p[k * shape.rows + i] * q[k * shape.cols + j];
    const T rounded = static_cast<T>(sum);
    result[at] = rounded;
    m[at] -= static_cast<A>(rounded);  // what is delivered, so that the rounding is not lost either
  }
};

}  // namespace

void draw_columns(const KernelContext& context, DType dtype, int64_t n, int64_t rank, const ColumnStream& stream,
                  const int32_t* unless, void* columns) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using A = Accumulator<T>;
    launch_kernel(context, draw_kernel<A>, 1, threads_for_row(n), 0, n, rank, stream, unless, static_cast<A*>(columns));
  });
}

void orthonormalize(const KernelContext& context, DType dtype, int64_t n, int64_t rank, const ColumnStream& stream,
                    void* columns) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using A = Accumulator<T>;
    launch_kernel(context, orthonormalize_kernel<A>, 1, threads_for_row(n), 0, n, rank, stream,
                  static_cast<A*>(columns));
  });
}

void add_and_project(const KernelContext& context, DType dtype, const LowRankShape& shape, const void* gradient,
                     void* m, const void* q, void* p) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using A = Accumulator<T>;
    launch_kernel(context, project_kernel<T, A>, blocks_for(shape.rows, 1), threads_for_row(shape.cols), 0, shape,
                  static_cast<const T*>(gradient), static_cast<A*>(m), static_cast<const A*>(q), static_cast<A*>(p));
  });
}

void project_transposed(const KernelContext& context, DType dtype, const LowRankShape& shape, const void* m,
                        const void* p, void* q) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using A = Accumulator<T>;
    launch_kernel(context, project_transposed_kernel<A>, blocks_for(shape.cols, kStripe), kStripe * kRowLanes, 0, shape,
                  static_cast<const A*>(m), static_cast<const A*>(p), static_cast<A*>(q));
  });
}

void all_finite(const KernelContext& context, DType dtype, const LowRankShape& shape, const void* p, const void* q,
                int32_t* finite) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using A = Accumulator<T>;
    launch_kernel(context, all_finite_kernel<A>, 1, threads_for_row(std::max(shape.rows, shape.cols)), 0, shape,
                  static_cast<const A*>(p), static_cast<const A*>(q), finite);
  });
}

void subtract_product(const KernelContext& context, DType dtype, const LowRankShape& shape, const void* p,
                      const void* q, const int32_t* finite, void* m, void* result) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using A = Accumulator<T>;
    for_each_index(context, shape.rows * shape.cols,
                   Subtract<T, A>{shape, static_cast<const A*>(p), static_cast<const A*>(q), finite, static_cast<A*>(m),
                                  static_cast<T*>(result)});
  });
}

}}}  // namespace tandem::v0::distributed::cuda
