// GPU kernel of interpolate and its gradient: one thread per result, adjacent threads for adjacent results.
#include <tandem/ops/pool/pool_cuda.h>
#include <tandem/ops/resize/resize_functions.h>
#include <tandem/ops/resize/resize_kernels.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

template <class T, class Index>
struct Resize {
  ResizeShape<ResizeAxis> shape;
  PoolGrid<Index> grid;
  const T* in;
  T* out;

  __device__ void operator()(int64_t i) const {
    using C = Accumulator<T>;
    const int64_t columns = shape.width.num_sources(), pixel = grid.pixel;
    const PoolPosition<Index> at = grid.position(i);
    const T* image = in + at.image * shape.height.num_sources() * columns * pixel + at.channel;
    C sum = 0;
    functions::for_taps<C>(shape.height, at.row, [&](int64_t y, C row_weight) {
      C line = 0;
      functions::for_taps<C>(shape.width, at.column, [&](int64_t x, C weight) {
        line += weight * static_cast<C>(image[(y * columns + x) * pixel]);
      });
      sum += row_weight * line;
    });
    out[i] = static_cast<T>(sum);
  }
};

}  // namespace

void resize(const KernelContext& context, DType dtype, const ResizeMap& map, const void* in, void* out) {
  const ResizeShape<ResizeAxis>& shape = map.computed;
  const int64_t rows = shape.height.num_results(), columns = shape.width.num_results();
  const int64_t n = shape.batch * shape.channels * rows * columns;
  visit_floating_dtype(dtype, [&]<class T>() {
    const auto run = [&]<class Index>() {
      using D = Divisor<Index>;
      const PoolGrid<Index> grid = {D(rows), D(columns), D(shape.channels_last ? shape.channels : 1)};
      for_each_index(context, n, Resize<T, Index>{shape, grid, static_cast<const T*>(in), static_cast<T*>(out)});
    };
    n <= INT32_MAX ? run.template operator()<uint32_t>() : run.template operator()<int64_t>();
  });
}

}}}  // namespace tandem::v0::cuda
