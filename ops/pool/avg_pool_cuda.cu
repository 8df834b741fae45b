// GPU kernels of avg_pool2d and adaptive_avg_pool2d: one thread per output, adjacent threads for adjacent outputs; for
// large windows of planar images one warp per output, whose lanes read adjacent columns.
#include <tandem/ops/pool/pool_cuda.h>
#include <tandem/ops/pool/pool_kernels.h>
#include <tandem/tensor/cuda/block.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

using PoolShape = AvgPoolShape<AvgPoolAxis>;

/// Windows of at least this many elements are summed by a warp.
constexpr int64_t kLargeWindow = 2 * kWarp;

int64_t pixel_of(const PoolShape& shape) { return shape.channels_last ? shape.channels : 1; }
int64_t window_elements(const PoolShape& shape) {
  return shape.batch * shape.channels * shape.height.windows * shape.width.windows;
}

/// Maximum number of elements per window.
int64_t window_size(const PoolShape& shape) {
  const auto side = [](const AvgPoolAxis& axis) {
    return axis.kernel > 0 ? axis.kernel : axis.image / axis.windows + 1;
  };
  return side(shape.height) * side(shape.width);
}

template <class T>
struct AvgPool {
  using C = Accumulator<T>;
  PoolShape shape;
  int64_t n;
  int64_t pixel;
  const T* in;
  T* out;

  /// The sum over element i's window of every `step`-th column from column `begin` on. Sums per line keep large windows
  /// precise.
  __device__ C sum(const PoolPosition& at, int begin, int step) const {
    const T* from = in + at.image * shape.height.image * shape.width.image * pixel + at.channel;
    const int64_t left = shape.width.begin(at.column) + begin, right = shape.width.end(at.column);
    const int64_t bottom = shape.height.end(at.row);
    C total = 0;
    for (int64_t y = shape.height.begin(at.row); y < bottom; ++y) {
      C line = 0;
      for (int64_t x = left; x < right; x += step) line += static_cast<C>(from[(y * shape.width.image + x) * pixel]);
      total += line;
    }
    return total;
  }
  __device__ PoolPosition position(int64_t i) const {
    return position_of(i, n, shape.height.windows, shape.width.windows, pixel);
  }
  __device__ T mean(const PoolPosition& at, C total) const {
    return static_cast<T>(total / static_cast<C>(shape.height.size(at.row) * shape.width.size(at.column)));
  }
  __device__ void operator()(int64_t i) const {
    const PoolPosition at = position(i);
    out[i] = mean(at, sum(at, 0, 1));
  }
};

/// One warp per window.
template <class T>
__global__ void large_windows_kernel(AvgPool<T> pool) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t i = thread_index() / kWarp; i < pool.n; i += num_threads() / kWarp) {
    const PoolPosition at = pool.position(i);
    const Accumulator<T> total = warp_reduce(pool.sum(at, lane, kWarp), Plus());
    if (lane == 0) pool.out[i] = pool.mean(at, total);
  }
}

template <class T>
struct AvgPoolBackward {
  PoolShape shape;
  int64_t n;
  int64_t pixel;
  const T* grad_out;
  T* grad_in;

  __device__ void operator()(int64_t i) const {
    using C = Accumulator<T>;
    const PoolPosition at = position_of(i, n, shape.height.image, shape.width.image, pixel);
    const int64_t start = at.image * shape.height.windows * shape.width.windows * pixel + at.channel;
    const int64_t last_row = shape.height.last(at.row), last_column = shape.width.last(at.column);
    C sum = 0;
    for (int64_t row = shape.height.first(at.row); row < last_row; ++row) {
      for (int64_t column = shape.width.first(at.column); column < last_column; ++column) {
        const C scale = C{1} / static_cast<C>(shape.height.size(row) * shape.width.size(column));
        sum += static_cast<C>(grad_out[start + (row * shape.width.windows + column) * pixel]) * scale;
      }
    }
    grad_in[i] = static_cast<T>(sum);
  }
};

}  // namespace

void avg_pool(const KernelContext& context, DType dtype, const AvgPoolWindows& windows, const void* in, void* out) {
  const PoolShape& shape = windows.computed;
  const int64_t n = window_elements(shape);
  visit_floating_dtype(dtype, [&]<class T>() {
    const AvgPool<T> pool = {shape, n, pixel_of(shape), static_cast<const T*>(in), static_cast<T*>(out)};
    if (shape.channels_last || window_size(shape) < kLargeWindow) return for_each_index(context, n, pool);
    if (n == 0) return;
    launch_kernel(context, large_windows_kernel<T>, blocks_for(n, kBlock / kWarp), kBlock, 0, pool);
  });
}

void avg_pool_backward(const KernelContext& context, DType dtype, const AvgPoolWindows& windows, const void* grad_out,
                       void* grad_in) {
  const PoolShape& shape = windows.computed;
  const int64_t n = shape.batch * shape.channels * shape.height.image * shape.width.image;
  visit_floating_dtype(dtype, [&]<class T>() {
    for_each_index(
        context, n,
        AvgPoolBackward<T>{shape, n, pixel_of(shape), static_cast<const T*>(grad_out), static_cast<T*>(grad_in)});
  });
}

}}}  // namespace tandem::v0::cuda
