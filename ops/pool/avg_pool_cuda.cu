// GPU kernels of avg_pool2d and adaptive_avg_pool2d: one thread per pack of outputs (see pool_cuda.h), adjacent threads
// for adjacent packs; for large windows of planar images one warp per output, whose lanes read adjacent columns.
#include <tandem/ops/pool/pool_cuda.h>
#include <tandem/ops/pool/pool_kernels.h>
#include <tandem/tensor/cuda/block.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

using PoolShape = AvgPoolShape<AvgPoolAxis>;

template <class Index>
using Axis = BasicAvgPoolAxis<Index, Divisor<Index>>;
template <class Index>
Axis<Index> axis_of(const AvgPoolAxis& axis) {
  using D = Divisor<Index>;
  return {D(axis.image),
          D(axis.windows),
          static_cast<Index>(axis.kernel),
          D(axis.stride),
          static_cast<Index>(axis.padding),
          axis.count_padding,
          axis.divisor};
}

/// Windows of at least this many elements are summed by a warp.
constexpr int64_t kLargeWindow = 2 * kWarp;

/// Maximum number of elements per window.
int64_t window_size(const PoolShape& shape) {
  const auto side = [](const AvgPoolAxis& axis) {
    return axis.kernel > 0 ? axis.kernel : axis.image / axis.windows + 1;
  };
  return side(shape.height) * side(shape.width);
}

template <class T, class Index, int kPack>
struct AvgPool {
  using C = Accumulator<T>;
  PoolGrid<Index> grid;
  Axis<Index> height, width;
  const Pack<T, kPack>* in;
  Pack<T, kPack>* out;

  /// The sums over a window of every `step`-th column from column `begin` on. Sums per line keep large windows precise.
  __device__ Pack<C, kPack> sum(const PoolPosition<Index>& at, Index begin, Index step) const {
    const Index left = width.begin(at.column) + begin, right = width.end(at.column), bottom = height.end(at.row);
    Pack<C, kPack> total = {};
    for (Index y = height.begin(at.row); y < bottom; ++y) {
      const Index start = (at.image * height.image + y) * width.image;
      Pack<C, kPack> line = {};
      for (Index x = left; x < right; x += step) {
        const Pack<T, kPack> values = in[(start + x) * grid.pixel + at.channel];
        for (int v = 0; v < kPack; ++v) line.values[v] += static_cast<C>(values.values[v]);
      }
      for (int v = 0; v < kPack; ++v) total.values[v] += line.values[v];
    }
    return total;
  }
  __device__ Pack<T, kPack> mean(const PoolPosition<Index>& at, const Pack<C, kPack>& total) const {
    const C size = static_cast<C>(height.size(at.row) * width.size(at.column));
    Pack<T, kPack> result;
    for (int v = 0; v < kPack; ++v) result.values[v] = static_cast<T>(total.values[v] / size);
    return result;
  }
  __device__ void operator()(int64_t i) const {
    const PoolPosition<Index> at = grid.position(i);
    out[i] = mean(at, sum(at, 0, 1));
  }
};

/// One warp per window.
template <class T, class Index>
__global__ void large_windows_kernel(int64_t n, AvgPool<T, Index, 1> pool) {
  const Index lane = threadIdx.x % kWarp;
  for (int64_t i = thread_index() / kWarp; i < n; i += num_threads() / kWarp) {
    const PoolPosition<Index> at = pool.grid.position(i);
    const Accumulator<T> total = warp_reduce(pool.sum(at, lane, kWarp).values[0], Plus());
    if (lane == 0) pool.out[i] = pool.mean(at, {total});
  }
}

template <class T, class Index, int kPack>
struct AvgPoolBackward {
  PoolGrid<Index> grid;
  Axis<Index> height, width;
  const Pack<T, kPack>* grad_out;
  Pack<T, kPack>* grad_in;

  __device__ void operator()(int64_t i) const {
    using C = Accumulator<T>;
    const PoolPosition<Index> at = grid.position(i);
    const Index last_row = height.last(at.row), last_column = width.last(at.column);
    C sums[kPack] = {};
    for (Index row = height.first(at.row); row < last_row; ++row) {
      const Index start = (at.image * height.windows + row) * width.windows;
      for (Index column = width.first(at.column); column < last_column; ++column) {
        const C scale = C{1} / static_cast<C>(height.size(row) * width.size(column));
        const Pack<T, kPack> grad = grad_out[(start + column) * grid.pixel + at.channel];
        for (int v = 0; v < kPack; ++v) sums[v] += static_cast<C>(grad.values[v]) * scale;
      }
    }
    Pack<T, kPack> result;
    for (int v = 0; v < kPack; ++v) result.values[v] = static_cast<T>(sums[v]);
    grad_in[i] = result;
  }
};

}  // namespace

void avg_pool(const KernelContext& context, DType dtype, const AvgPoolWindows& windows, const void* in, void* out) {
  const PoolShape& shape = windows.computed;
  const int64_t n = window_elements(shape);
  if (n == 0) return;
  visit_floating_dtype(dtype, [&]<class T>() {
    visit_packs<T>(shape, {in, out}, [&]<class Index, int kPack>() {
      const AvgPool<T, Index, kPack> pool = {grid_of_windows<Index>(shape, kPack), axis_of<Index>(shape.height),
                                             axis_of<Index>(shape.width), static_cast<const Pack<T, kPack>*>(in),
                                             static_cast<Pack<T, kPack>*>(out)};
      if constexpr (kPack == 1) {
        if (!shape.channels_last && window_size(shape) >= kLargeWindow) {
          return launch_kernel(context, large_windows_kernel<T, Index>, blocks_for(n, kBlock / kWarp), kBlock, 0, n,
                               pool);
        }
      }
      for_each_index(context, n / kPack, pool);
    });
  });
}

void avg_pool_backward(const KernelContext& context, DType dtype, const AvgPoolWindows& windows, const void* grad_out,
                       void* grad_in) {
  const PoolShape& shape = windows.computed;
  visit_floating_dtype(dtype, [&]<class T>() {
    visit_packs<T>(shape, {grad_out, grad_in}, [&]<class Index, int kPack>() {
      const AvgPoolBackward<T, Index, kPack> kernel = {
          grid_of_images<Index>(shape, kPack), axis_of<Index>(shape.height), axis_of<Index>(shape.width),
          static_cast<const Pack<T, kPack>*>(grad_out), static_cast<Pack<T, kPack>*>(grad_in)};
      for_each_index(context, image_elements(shape) / kPack, kernel);
    });
  });
}

}}}  // namespace tandem::v0::cuda
