// GPU kernels of max_pool2d: one thread per output, adjacent threads for adjacent outputs. The gradient is gathered, as
// on the CPU and in the same order of additions.
#include <tandem/ops/pool/pool_cuda.h>
#include <tandem/ops/pool/pool_functions.h>
#include <tandem/ops/pool/pool_kernels.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

using functions::element_over;
using functions::elements_inside;
using functions::Range;
using functions::windows_over;

int64_t pixel_of(const MaxPoolShape& shape) { return shape.channels_last ? shape.channels : 1; }
int64_t image_elements(const MaxPoolShape& shape) {
  return shape.batch * shape.channels * shape.height.image * shape.width.image;
}
int64_t window_elements(const MaxPoolShape& shape) {
  return shape.batch * shape.channels * shape.height.windows * shape.width.windows;
}

template <class T, class P>
struct MaxPool {
  MaxPoolShape shape;
  int64_t n;
  int64_t pixel;
  const T* in;
  T* out;
  P* indices;

  __device__ void operator()(int64_t i) const {
    using C = Accumulator<T>;
    const PoolPosition at = position_of(i, n, shape.height.windows, shape.width.windows, pixel);
    const Range rows = elements_inside(shape.height, at.row), columns = elements_inside(shape.width, at.column);
    const int64_t top = at.row * shape.height.stride - shape.height.padding;
    const int64_t left = at.column * shape.width.stride - shape.width.padding;
    const T* from = in + at.image * shape.height.image * shape.width.image * pixel + at.channel;
    functions::Largest<C, int32_t> largest;
    for (int64_t k = rows.begin; k < rows.end; ++k) {
      const T* line = from + (top + k * shape.height.dilation) * shape.width.image * pixel;
      for (int64_t j = columns.begin; j < columns.end; ++j) {
        largest.offer(static_cast<C>(line[(left + j * shape.width.dilation) * pixel]),
                      static_cast<int32_t>(k * shape.width.kernel + j));
      }
    }
    out[i] = static_cast<T>(largest.value);
    if (indices != nullptr) indices[i] = static_cast<P>(largest.index);
  }
};

template <class T, class P>
struct MaxPoolBackward {
  MaxPoolShape shape;
  int64_t n;
  int64_t pixel;
  const T* grad_out;
  const P* indices;
  T* grad_in;

  __device__ void operator()(int64_t i) const {
    using C = Accumulator<T>;
    const PoolPosition at = position_of(i, n, shape.height.image, shape.width.image, pixel);
    const Range rows = windows_over(shape.height, at.row), columns = windows_over(shape.width, at.column);
    const int64_t start = at.image * shape.height.windows * shape.width.windows * pixel + at.channel;
    C sum = 0;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const int64_t k = element_over(shape.height, row, at.row);
      if (k < 0) continue;
      for (int64_t column = columns.begin; column < columns.end; ++column) {
        const int64_t j = element_over(shape.width, column, at.column);
        if (j < 0) continue;
        const int64_t window = start + (row * shape.width.windows + column) * pixel;
        if (indices[window] == static_cast<P>(k * shape.width.kernel + j)) sum += static_cast<C>(grad_out[window]);
      }
    }
    grad_in[i] = static_cast<T>(sum);
  }
};

template <class P>
struct LargestElements {
  MaxPoolShape shape;
  int64_t n;
  int64_t pixel;
  const P* indices;

  /// The index of window i's largest element in its image; negative for a window without elements.
  __device__ int64_t index(int64_t i, const PoolPosition& at) const {
    const P k = indices[i];
    if (k == static_cast<P>(-1)) return -1;
    const int64_t y =
        at.row * shape.height.stride - shape.height.padding + k / shape.width.kernel * shape.height.dilation;
    const int64_t x =
        at.column * shape.width.stride - shape.width.padding + k % shape.width.kernel * shape.width.dilation;
    return y * shape.width.image + x;
  }
  __device__ PoolPosition position(int64_t i) const {
    return position_of(i, n, shape.height.windows, shape.width.windows, pixel);
  }
};

template <class T, class P>
struct TakeAt {
  LargestElements<P> largest;
  const T* in;
  T* out;

  __device__ void operator()(int64_t i) const {
    const MaxPoolShape& shape = largest.shape;
    const PoolPosition at = largest.position(i);
    const int64_t index = largest.index(i, at);
    const T* from = in + at.image * shape.height.image * shape.width.image * largest.pixel + at.channel;
    out[i] = index < 0 ? static_cast<T>(0.0f) : from[index * largest.pixel];
  }
};

template <class P>
struct FlatIndices {
  LargestElements<P> largest;
  int64_t* out;

  __device__ void operator()(int64_t i) const { out[i] = largest.index(i, largest.position(i)); }
};

/// Calls run.operator()<T, P>() with the types of elements and indices.
template <class Run>
void visit_types(DType dtype, const MaxPoolShape& shape, const Run& run) {
  visit_floating_dtype(dtype, [&]<class T>() {
    if (index_dtype(shape.kernel_elements()) == kUInt8) {
      run.template operator()<T, uint8_t>();
    } else {
      run.template operator()<T, int32_t>();
    }
  });
}

}  // namespace

void max_pool(const KernelContext& context, DType dtype, const MaxPoolShape& shape, const void* in, void* out,
              void* indices) {
  const int64_t n = window_elements(shape);
  visit_types(dtype, shape, [&]<class T, class P>() {
    for_each_index(context, n,
                   MaxPool<T, P>{shape, n, pixel_of(shape), static_cast<const T*>(in), static_cast<T*>(out),
                                 static_cast<P*>(indices)});
  });
}

void max_pool_backward(const KernelContext& context, DType dtype, const MaxPoolShape& shape, const void* grad_out,
                       const void* indices, void* grad_in) {
  const int64_t n = image_elements(shape);
  visit_types(dtype, shape, [&]<class T, class P>() {
    for_each_index(context, n,
                   MaxPoolBackward<T, P>{shape, n, pixel_of(shape), static_cast<const T*>(grad_out),
                                         static_cast<const P*>(indices), static_cast<T*>(grad_in)});
  });
}

void take_at(const KernelContext& context, DType dtype, const MaxPoolShape& shape, const void* in, const void* indices,
             void* out) {
  const int64_t n = window_elements(shape);
  visit_types(dtype, shape, [&]<class T, class P>() {
    for_each_index(context, n,
                   TakeAt<T, P>{{shape, n, pixel_of(shape), static_cast<const P*>(indices)},
                                static_cast<const T*>(in),
                                static_cast<T*>(out)});
  });
}

void flat_indices(const KernelContext& context, const MaxPoolShape& shape, const void* indices, int64_t* out) {
  const int64_t n = window_elements(shape);
  const auto run = [&]<class P>() {
    for_each_index(context, n, FlatIndices<P>{{shape, n, pixel_of(shape), static_cast<const P*>(indices)}, out});
  };
  index_dtype(shape.kernel_elements()) == kUInt8 ? run.template operator()<uint8_t>()
                                                 : run.template operator()<int32_t>();
}

}}}  // namespace tandem::v0::cuda
