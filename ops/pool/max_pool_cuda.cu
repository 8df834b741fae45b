// GPU kernels of max_pool2d: one thread per pack of outputs (see pool_cuda.h), adjacent threads for adjacent packs. The
// gradient is gathered, as on the CPU and in the same order of additions.
#include <limits>
#include <type_traits>

#include <tandem/ops/pool/pool_cuda.h>
#include <tandem/ops/pool/pool_functions.h>
#include <tandem/ops/pool/pool_kernels.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

using functions::beats;
using functions::element_over;
using functions::elements_inside;
using functions::Range;
using functions::windows_over;

template <class Index>
using Axis = BasicMaxPoolAxis<Index, Divisor<Index>>;
template <class Index>
Axis<Index> axis_of(const MaxPoolAxis& axis) {
  using D = Divisor<Index>;
  return {static_cast<Index>(axis.image),   static_cast<Index>(axis.windows),
          static_cast<Index>(axis.kernel),  D(axis.stride),
          static_cast<Index>(axis.padding), D(axis.dilation)};
}

template <class T, class P, class Index, int kPack>
struct MaxPool {
  PoolGrid<Index> grid;
  Axis<Index> height, width;
  const Pack<T, kPack>* in;
  Pack<T, kPack>* out;
  Pack<P, kPack>* indices;

  __device__ void operator()(int64_t i) const {
    using C = Accumulator<T>;
    const PoolPosition<Index> at = grid.position(i);
    const Range<Index> rows = elements_inside(height, at.row), columns = elements_inside(width, at.column);
    const Index top = at.row * height.stride - height.padding, left = at.column * width.stride - width.padding;
    const bool is_empty = rows.begin >= rows.end || columns.begin >= columns.end;
    // The first element is the largest if no element beats -inf.
    const int32_t first = is_empty ? -1 : static_cast<int32_t>(rows.begin * width.kernel + columns.begin);
    C largest[kPack];
    int32_t index[kPack];
    for (int v = 0; v < kPack; ++v) {
      largest[v] = -std::numeric_limits<C>::infinity();
      index[v] = first;
    }
    for (Index k = rows.begin; k < rows.end; ++k) {
      const Index line = (at.image * height.image + top + k * height.dilation) * width.image + left;
      for (Index j = columns.begin; j < columns.end; ++j) {
        const Pack<T, kPack> x = in[(line + j * width.dilation) * grid.pixel + at.channel];
        for (int v = 0; v < kPack; ++v) {
          const C value = static_cast<C>(x.values[v]);
          if (!beats(value, largest[v])) continue;
          largest[v] = value;
          index[v] = static_cast<int32_t>(k * width.kernel + j);
        }
      }
    }
    Pack<T, kPack> result;
    for (int v = 0; v < kPack; ++v) result.values[v] = static_cast<T>(largest[v]);
    out[i] = result;
    if (indices == nullptr) return;
    Pack<P, kPack> stored;
    for (int v = 0; v < kPack; ++v) stored.values[v] = static_cast<P>(index[v]);
    indices[i] = stored;
  }
};

/// n indices that are compared with one value. Bytes are loaded and compared as parts of words: CUDA's compiler takes
/// several instructions to extract a byte.
template <class P, int n>
struct IndexPack {
  static constexpr bool kIsBytes = sizeof(P) == 1 && n % 4 == 0;
  std::conditional_t<kIsBytes, Pack<uint32_t, n / 4>, Pack<P, n>> pack;

  __device__ bool equals(int v, P value) const {
    if constexpr (kIsBytes) {
      return ((pack.values[v / 4] ^ value * 0x01010101u) & 0xffu << v % 4 * 8) == 0;
    } else {
      return pack.values[v] == value;
    }
  }
};

template <class T, class P, class Index, int kPack>
struct MaxPoolBackward {
  PoolGrid<Index> grid;
  Axis<Index> height, width;
  const Pack<T, kPack>* grad_out;
  const IndexPack<P, kPack>* indices;
  Pack<T, kPack>* grad_in;

  __device__ void operator()(int64_t i) const {
    using C = Accumulator<T>;
    const PoolPosition<Index> at = grid.position(i);
    const Range<Index> rows = windows_over(height, at.row), columns = windows_over(width, at.column);
    C sums[kPack] = {};
    for (Index row = rows.begin; row < rows.end; ++row) {
      const Index k = element_over(height, row, at.row);
      if (k == height.kernel) continue;
#pragma unroll 1  // else threads with one window and threads with two diverge
      for (Index column = columns.begin; column < columns.end; ++column) {
        const Index j = element_over(width, column, at.column);
        if (j == width.kernel) continue;
        const Index window = ((at.image * height.windows + row) * width.windows + column) * grid.pixel + at.channel;
        const P own = static_cast<P>(k * width.kernel + j);
        const IndexPack<P, kPack> index = indices[window];
        const Pack<T, kPack> grad = grad_out[window];
        for (int v = 0; v < kPack; ++v) {
          if (index.equals(v, own)) sums[v] += static_cast<C>(grad.values[v]);
        }
      }
    }
    Pack<T, kPack> result;
    for (int v = 0; v < kPack; ++v) result.values[v] = static_cast<T>(sums[v]);
    grad_in[i] = result;
  }
};

template <class P, class Index>
struct LargestElements {
  PoolGrid<Index> grid;
  Axis<Index> height, width;
  const P* indices;

  /// Whether window i has elements.
  __device__ bool exists(int64_t i) const { return indices[i] != static_cast<P>(-1); }
  /// The index of window i's largest element in its image.
  __device__ Index index(int64_t i, const PoolPosition<Index>& at) const {
    const Index k = static_cast<Index>(indices[i]), row = k / width.kernel;
    const Index y = at.row * height.stride - height.padding + row * height.dilation;
    const Index x = at.column * width.stride - width.padding + (k - row * width.kernel) * width.dilation;
    return y * width.image + x;
  }
};

template <class T, class P, class Index>
struct TakeAt {
  LargestElements<P, Index> largest;
  const T* in;
  T* out;

  __device__ void operator()(int64_t i) const {
    const PoolPosition<Index> at = largest.grid.position(i);
    const Index start = at.image * largest.height.image * largest.width.image;
    out[i] =
        largest.exists(i) ? in[(start + largest.index(i, at)) * largest.grid.pixel + at.channel] : static_cast<T>(0.0f);
  }
};

template <class P, class Index>
struct FlatIndices {
  LargestElements<P, Index> largest;
  int64_t* out;

  __device__ void operator()(int64_t i) const {
    out[i] = largest.exists(i) ? static_cast<int64_t>(largest.index(i, largest.grid.position(i))) : -1;
  }
};

/// Calls run.operator()<P>() with the type of indices in windows.
template <class Run>
void visit_index_dtype(const MaxPoolShape& shape, const Run& run) {
  index_dtype(shape.kernel_elements()) == kUInt8 ? run.template operator()<uint8_t>()
                                                 : run.template operator()<int32_t>();
}

/// Calls run.operator()<T, P, Index, kPack>().
template <class Run>
void visit_types(DType dtype, const MaxPoolShape& shape, std::initializer_list<const void*> data, const Run& run) {
  visit_floating_dtype(dtype, [&]<class T>() {
    visit_index_dtype(shape, [&]<class P>() {
      visit_packs<T>(shape, data, [&]<class Index, int kPack>() { run.template operator()<T, P, Index, kPack>(); });
    });
  });
}

}  // namespace

void max_pool(const KernelContext& context, DType dtype, const MaxPoolShape& shape, const void* in, void* out,
              void* indices) {
  visit_types(dtype, shape, {in, out, indices}, [&]<class T, class P, class Index, int kPack>() {
    const MaxPool<T, P, Index, kPack> kernel = {
        grid_of_windows<Index>(shape, kPack), axis_of<Index>(shape.height),
        axis_of<Index>(shape.width),          static_cast<const Pack<T, kPack>*>(in),
        static_cast<Pack<T, kPack>*>(out),    static_cast<Pack<P, kPack>*>(indices)};
    for_each_index(context, window_elements(shape) / kPack, kernel);
  });
}

void max_pool_backward(const KernelContext& context, DType dtype, const MaxPoolShape& shape, const void* grad_out,
                       const void* indices, void* grad_in) {
  visit_types(dtype, shape, {grad_out, indices, grad_in}, [&]<class T, class P, class Index, int kPack>() {
    const MaxPoolBackward<T, P, Index, kPack> kernel = {grid_of_images<Index>(shape, kPack),
                                                        axis_of<Index>(shape.height),
                                                        axis_of<Index>(shape.width),
                                                        static_cast<const Pack<T, kPack>*>(grad_out),
                                                        static_cast<const IndexPack<P, kPack>*>(indices),
                                                        static_cast<Pack<T, kPack>*>(grad_in)};
    for_each_index(context, image_elements(shape) / kPack, kernel);
  });
}

void take_at(const KernelContext& context, DType dtype, const MaxPoolShape& shape, const void* in, const void* indices,
             void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    visit_index_dtype(shape, [&]<class P>() {
      visit_index(shape, [&]<class Index>() {
        const LargestElements<P, Index> largest = {grid_of_windows<Index>(shape), axis_of<Index>(shape.height),
                                                   axis_of<Index>(shape.width), static_cast<const P*>(indices)};
        for_each_index(context, window_elements(shape),
                       TakeAt<T, P, Index>{largest, static_cast<const T*>(in), static_cast<T*>(out)});
      });
    });
  });
}

void flat_indices(const KernelContext& context, const MaxPoolShape& shape, const void* indices, int64_t* out) {
  visit_index_dtype(shape, [&]<class P>() {
    visit_index(shape, [&]<class Index>() {
      const LargestElements<P, Index> largest = {grid_of_windows<Index>(shape), axis_of<Index>(shape.height),
                                                 axis_of<Index>(shape.width), static_cast<const P*>(indices)};
      for_each_index(context, window_elements(shape), FlatIndices<P, Index>{largest, out});
    });
  });
}

}}}  // namespace tandem::v0::cuda
