// CPU kernels of max_pool2d.
//
// The innermost loop runs over channels for channels-last images, and over columns for planar images, so that it is
// vectorized. The gradient is gathered, not scattered: each element of the image sums the gradients of the windows
// whose largest element it was, so it is written once, by one thread, in a fixed order of additions.
#include <algorithm>
#include <limits>
#include <type_traits>

#include <tandem/base/math.h>
#include <tandem/base/parallel_for.h>
#include <tandem/ops/common/simd.h>
#include <tandem/ops/pool/pool_functions.h>
#include <tandem/ops/pool/pool_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {
namespace {

using functions::beats;
using functions::elements_inside;
using Range = functions::Range<int64_t>;

/// Minimum number of elements per piece of parallel work.
constexpr int64_t kGrainElements = 1 << 14;
/// Elements that are processed together.
constexpr int64_t kStripe = 128;

template <class T>
using Compute = Accumulator<T>;
/// An integer type of C's size, so that vectors of both have the same lanes.
template <class C>
using IndexInt = std::conditional_t<sizeof(C) == 8, int64_t, int32_t>;

/// A vector of indices at any address.
template <class C>
struct IndexType {
  typedef IndexInt<C> Vec __attribute__((vector_size(32), aligned(sizeof(C)), may_alias));
};
template <class C>
using VecIndex = typename IndexType<C>::Vec;

/// The windows [begin, end) whose kernel element k is in [image_begin, image_end).
Range windows_with(const MaxPoolAxis& axis, int64_t k, int64_t image_begin, int64_t image_end) {
  const int64_t shift = k * axis.dilation - axis.padding;
  return {std::max<int64_t>(0, ceil_div(image_begin - shift, axis.stride)),
          std::min(axis.windows, ceil_div(image_end - shift, axis.stride))};
}
/// Calls f(window, k) for the windows whose kernel element k is element i of the image.
template <class F>
inline void for_windows_over(const MaxPoolAxis& axis, int64_t i, F f) {
  const Range windows = functions::windows_over(axis, i);
  for (int64_t window = windows.begin; window < windows.end; ++window) {
    const int64_t k = functions::element_over(axis, window, i);
    if (k < axis.kernel) f(window, k);
  }
}

/// Calls f(index) with a null pointer to the type in which indices are stored.
template <class F>
void visit_index_dtype(const MaxPoolShape& shape, F f) {
  if (index_dtype(shape.kernel_elements()) == kUInt8) {
    f(static_cast<uint8_t*>(nullptr));
  } else {
    f(static_cast<int32_t*>(nullptr));
  }
}

bool is_two_by_two(const MaxPoolShape& shape) {
  const auto fits = [](const MaxPoolAxis& axis) {
    return axis.kernel == 2 && axis.stride == 2 && axis.padding == 0 && axis.dilation == 1 &&
           2 * axis.windows <= axis.image;
  };
  return fits(shape.height) && fits(shape.width);
}

/// Loads kVecSize<C> elements, `step` apart; kStep is the step if known at compile time, else 0.
template <int kStep, class T>
inline __attribute__((always_inline)) Vec<Compute<T>> load_apart(const T* from, int64_t step) {
  using C = Compute<T>;
  if constexpr (kStep == 1) return load_vec(from);
  Vec<C> result;
  for (int64_t l = 0; l < kVecSize<C>; ++l) result[l] = static_cast<C>(from[l * (kStep == 0 ? step : kStep)]);
  return result;
}

/// best[i] = max(best[i], from[i * step]) for i < n; sets index[i] = k where that changed best[i]. A negative index
/// means that there is no element yet.
template <int kStep, class T, class C = Compute<T>>
inline void offer(const T* from, int64_t step, int64_t n, IndexInt<C> k, C* best, IndexInt<C>* index) {
  constexpr int64_t kWidth = kVecSize<C>;
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const Vec<C> value = load_apart<kStep>(from + i * step, step), old = load_vec(best + i);
    VecIndex<C>& indices = *reinterpret_cast<VecIndex<C>*>(index + i);
    const VecMask<C> which = indices;
    const VecMask<C> replaces = (~(value <= old) & (old == old)) | (which < 0);
    store_vec(best + i, replaces ? value : old);
    indices = replaces ? VecMask<C>{} + k : which;
  }
  for (; i < n; ++i) {
    const C value = static_cast<C>(from[i * step]);
    if (!beats(value, best[i]) && index[i] >= 0) continue;
    best[i] = value;
    index[i] = k;
  }
}

/// sum[i * step] += grad[i] where indices[i] is k, for kVectors full vectors.
template <int kStep, int kVectors, class T, class P, class C = Compute<T>>
inline void collect_lanes(const T* grad, const P* indices, P k, int64_t step, C* sum) {
  constexpr int64_t kWidth = kVecSize<C>;
  IndexInt<C> wide[kVectors * kWidth];
  for (int64_t i = 0; i < kVectors * kWidth; ++i) wide[i] = indices[i];
  for (int64_t v = 0; v < kVectors; ++v) {
    const VecMask<C> which = *reinterpret_cast<const VecIndex<C>*>(wide + v * kWidth);
    const Vec<C> part = which == static_cast<IndexInt<C>>(k) ? load_vec(grad + v * kWidth) : Vec<C>{};
    if constexpr (kStep == 1) {
      store_vec(sum + v * kWidth, load_vec(sum + v * kWidth) + part);
    } else {
      for (int64_t l = 0; l < kWidth; ++l) sum[(v * kWidth + l) * (kStep == 0 ? step : kStep)] += part[l];
    }
  }
}

/// collect_lanes for all i < n.
template <int kStep, class T, class P, class C = Compute<T>>
inline void collect(const T* grad, const P* indices, P k, int64_t n, int64_t step, C* sum) {
  constexpr int64_t kWidth = kVecSize<C>;
  int64_t i = 0;
  for (; i + 4 * kWidth <= n; i += 4 * kWidth) collect_lanes<kStep, 4>(grad + i, indices + i, k, step, sum + i * step);
  for (; i + kWidth <= n; i += kWidth) collect_lanes<kStep, 1>(grad + i, indices + i, k, step, sum + i * step);
  for (; i < n; ++i) sum[i * step] += indices[i] == k ? static_cast<C>(grad[i]) : C(0);
}

/// The four elements of a 2 x 2 window, from the upper left on; of one channel, or of several adjacent channels.
template <class T>
struct FourElements {
  const T* upper;
  const T* lower;
  int64_t right;  ///< from an element to its right neighbour

  FourElements operator+(int64_t c) const { return {upper + c, lower + c, right}; }
};

/// The largest of four elements and its index, for the channels of kVectors vectors.
template <int kVectors, class T, class P>
inline void largest_of_four(FourElements<T> x, T* out, P* indices) {
  using C = Compute<T>;
  constexpr int64_t kWidth = kVecSize<C>;
  IndexInt<C> index[kVectors * kWidth];
  for (int64_t v = 0; v < kVectors; ++v) {
    const FourElements<T> at = x + v * kWidth;
    Vec<C> best = load_vec(at.upper);
    VecMask<C> which = {};
    const auto offer = [&](const T* from, IndexInt<C> k) {
      const Vec<C> value = load_vec(from);
      const VecMask<C> replaces = ~(value <= best) & (best == best);
      best = replaces ? value : best;
      which = replaces ? VecMask<C>{} + k : which;
    };
    offer(at.upper + at.right, 1);
    offer(at.lower, 2);
    offer(at.lower + at.right, 3);
    store_vec(out + v * kWidth, best);
    for (int64_t l = 0; l < kWidth; ++l) index[v * kWidth + l] = which[l];
  }
  if (indices == nullptr) return;
  for (int64_t c = 0; c < kVectors * kWidth; ++c) indices[c] = static_cast<P>(index[c]);
}

/// One row of adjacent 2 x 2 windows that neither overlap nor have gaps, all inside the image.
template <class T, class P>
void two_by_two_row(const MaxPoolShape& shape, const T* upper, T* out, P* indices) {
  using C = Compute<T>;
  constexpr int64_t kWidth = kVecSize<C>;
  const int64_t channels = shape.channels;
  for (int64_t w = 0; w < shape.width.windows; ++w) {
    const FourElements<T> x = {upper + 2 * w * channels, upper + (shape.width.image + 2 * w) * channels, channels};
    T* to = out + w * channels;
    P* at = indices == nullptr ? nullptr : indices + w * channels;
    const auto index = [&](int64_t c) { return at == nullptr ? nullptr : at + c; };
    int64_t c = 0;
    for (; c + 4 * kWidth <= channels; c += 4 * kWidth) largest_of_four<4>(x + c, to + c, index(c));
    for (; c + kWidth <= channels; c += kWidth) largest_of_four<1>(x + c, to + c, index(c));
    for (; c < channels; ++c) {
      C best = static_cast<C>(x.upper[c]);
      P which = 0;
      const auto offer = [&](const T* from, P k) {
        const C value = static_cast<C>(*from);
        if (!beats(value, best)) return;
        best = value;
        which = k;
      };
      offer(x.upper + x.right + c, 1);
      offer(x.lower + c, 2);
      offer(x.lower + x.right + c, 3);
      to[c] = static_cast<T>(best);
      if (at != nullptr) at[c] = which;
    }
  }
}

/// The largest element so far and its index, negative if there is none; of one channel, or of several adjacent
/// channels.
template <class V>
struct Largest;
template <class C>
requires(!kIsVec<C>) struct Largest<C> {
  C value = -std::numeric_limits<C>::infinity();
  IndexInt<C> index = -1;

  void offer(C x, IndexInt<C> k) {
    if (index >= 0 && !beats(x, value)) return;
    value = x;
    index = k;
  }
  void store_index(IndexInt<C>* to) const { *to = index; }
};
template <class V>
requires(kIsVec<V>) struct Largest<V> {
  using C = std::decay_t<decltype(V{}[0])>;
  V value = V{} - std::numeric_limits<C>::infinity();
  VecMask<C> index = VecMask<C>{} - 1;

  void offer(V x, IndexInt<C> k) {
    const VecMask<C> replaces = (~(x <= value) & (value == value)) | (index < 0);
    value = replaces ? x : value;
    index = replaces ? VecMask<C>{} + k : index;
  }
  void store_index(IndexInt<C>* to) const { *reinterpret_cast<VecIndex<C>*>(to) = index; }
};

/// One row of windows of an image, for all channels.
template <class T, class P>
void max_row_channels_last(const MaxPoolShape& shape, int64_t row, const T* image, T* out, P* indices) {
  using C = Compute<T>;
  const int64_t channels = shape.channels;
  const Range rows = elements_inside(shape.height, row);
  const int64_t top = row * shape.height.stride - shape.height.padding;
  for (int64_t w = 0; w < shape.width.windows; ++w) {
    const Range columns = elements_inside(shape.width, w);
    const int64_t left = w * shape.width.stride - shape.width.padding;
    for (int64_t first = 0; first < channels; first += kStripe) {
      const int64_t count = std::min(kStripe, channels - first);
      IndexInt<C> index[kStripe];
      for_vecs<C>(count, [&]<class V>(int64_t c) {
        Largest<V> largest;
        for (int64_t i = rows.begin; i < rows.end; ++i) {
          const int64_t y = top + i * shape.height.dilation;
          for (int64_t j = columns.begin; j < columns.end; ++j) {
            const int64_t x = left + j * shape.width.dilation;
            const T* from = image + (y * shape.width.image + x) * channels + first + c;
            largest.offer(load_as<V>(from), static_cast<IndexInt<C>>(i * shape.width.kernel + j));
          }
        }
        store_as(out + w * channels + first + c, largest.value);
        largest.store_index(index + c);
      });
      if (indices == nullptr) continue;
      for (int64_t c = 0; c < count; ++c) indices[w * channels + first + c] = static_cast<P>(index[c]);
    }
  }
}

/// The gradients of the four elements of a 2 x 2 window, for the channels of kVectors vectors.
template <int kVectors, class T, class P>
inline void spread_to_four(const T* grad, const P* indices, T* upper, T* lower, int64_t right) {
  using C = Compute<T>;
  constexpr int64_t kWidth = kVecSize<C>;
  IndexInt<C> index[kVectors * kWidth];
  for (int64_t c = 0; c < kVectors * kWidth; ++c) index[c] = indices[c];
  for (int64_t v = 0; v < kVectors; ++v) {
    const Vec<C> value = load_vec(grad + v * kWidth);
    const VecMask<C> which = *reinterpret_cast<const VecIndex<C>*>(index + v * kWidth);
    const auto store_part = [&](IndexInt<C> k, T* to) { store_vec(to + v * kWidth, which == k ? value : Vec<C>{}); };
    store_part(0, upper);
    store_part(1, upper + right);
    store_part(2, lower);
    store_part(3, lower + right);
  }
}

/// The two rows of the image under one row of adjacent 2 x 2 windows.
template <class T, class P>
void two_by_two_backward_row(const MaxPoolShape& shape, const T* grad, const P* indices, T* upper) {
  constexpr int64_t kWidth = kVecSize<Compute<T>>;
  const int64_t channels = shape.channels;
  T* lower = upper + shape.width.image * channels;
  for (int64_t w = 0; w < shape.width.windows; ++w) {
    const T* g = grad + w * channels;
    const P* at = indices + w * channels;
    T* up = upper + 2 * w * channels;
    T* low = lower + 2 * w * channels;
    int64_t c = 0;
    for (; c + 4 * kWidth <= channels; c += 4 * kWidth) spread_to_four<4>(g + c, at + c, up + c, low + c, channels);
    for (; c + kWidth <= channels; c += kWidth) spread_to_four<1>(g + c, at + c, up + c, low + c, channels);
    for (; c < channels; ++c) {
      T* const four[] = {up + c, up + channels + c, low + c, low + channels + c};
      for (int k = 0; k < 4; ++k) *four[k] = at[c] == k ? g[c] : T(0);
    }
  }
  const int64_t covered = 2 * shape.width.windows * channels, whole = shape.width.image * channels;
  std::fill(upper + covered, upper + whole, T(0));
  std::fill(lower + covered, lower + whole, T(0));
}

/// One row of the gradient of an image.
template <class T, class P>
void backward_row_channels_last(const MaxPoolShape& shape, int64_t y, const T* grad, const P* indices, T* out) {
  using C = Compute<T>;
  const int64_t channels = shape.channels;
  for (int64_t x = 0; x < shape.width.image; ++x) {
    for (int64_t first = 0; first < channels; first += kStripe) {
      const int64_t count = std::min(kStripe, channels - first);
      C sum[kStripe];
      std::fill(sum, sum + count, C(0));
      for_windows_over(shape.height, y, [&](int64_t row, int64_t i) {
        for_windows_over(shape.width, x, [&](int64_t column, int64_t j) {
          const int64_t at = (row * shape.width.windows + column) * channels + first;
          collect<1>(grad + at, indices + at, static_cast<P>(i * shape.width.kernel + j), count, 1, sum);
        });
      });
      for (int64_t c = 0; c < count; ++c) out[x * channels + first + c] = static_cast<T>(sum[c]);
    }
  }
}

/// The axis with its stride as a compile-time constant, which makes divisions fast; kStep = 0: any stride.
template <int kStep>
MaxPoolAxis with_stride(MaxPoolAxis axis) {
  if (kStep != 0) axis.stride = kStep;
  return axis;
}

/// One row of windows of a plane.
template <int kStep, class T, class P>
void max_row_planar(const MaxPoolShape& shape, int64_t row, const T* plane, T* out, P* indices) {
  using C = Compute<T>;
  const MaxPoolAxis axis = with_stride<kStep>(shape.width);
  const int64_t step = axis.stride;
  const Range rows = elements_inside(shape.height, row);
  for (int64_t first = 0; first < axis.windows; first += kStripe) {
    const int64_t count = std::min(kStripe, axis.windows - first);
    C best[kStripe];
    IndexInt<C> index[kStripe];
    std::fill(best, best + count, -std::numeric_limits<C>::infinity());
    std::fill(index, index + count, IndexInt<C>{-1});
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      const int64_t y = row * shape.height.stride - shape.height.padding + i * shape.height.dilation;
      for (int64_t j = 0; j < axis.kernel; ++j) {
        const Range windows = windows_with(axis, j, 0, axis.image);
        const int64_t begin = std::max(windows.begin - first, int64_t{0}), end = std::min(windows.end - first, count);
        const T* from = plane + y * axis.image;
        const int64_t offset = first * step + j * axis.dilation - axis.padding;
        const IndexInt<C> k = static_cast<IndexInt<C>>(i * axis.kernel + j);
        if (begin < end) offer<kStep>(from + begin * step + offset, step, end - begin, k, best + begin, index + begin);
      }
    }
    for (int64_t w = 0; w < count; ++w) out[first + w] = static_cast<T>(best[w]);
    if (indices == nullptr) continue;
    for (int64_t w = 0; w < count; ++w) indices[first + w] = static_cast<P>(index[w]);
  }
}

/// One row of the gradient of a plane.
template <int kStep, class T, class P>
void backward_row_planar(const MaxPoolShape& shape, int64_t y, const T* grad, const P* indices, T* out) {
  using C = Compute<T>;
  const MaxPoolAxis axis = with_stride<kStep>(shape.width);
  const int64_t step = axis.stride;
  for (int64_t first = 0; first < axis.image; first += kStripe) {
    const int64_t count = std::min(kStripe, axis.image - first);
    C sum[kStripe];
    std::fill(sum, sum + count, C(0));
    for_windows_over(shape.height, y, [&](int64_t row, int64_t i) {
      for (int64_t j = axis.kernel; j-- > 0;) {  // from the first window over an element to the last one
        const Range windows = windows_with(axis, j, first, first + count);
        if (windows.begin >= windows.end) continue;
        const int64_t from = row * axis.windows + windows.begin;
        const int64_t to = windows.begin * step + j * axis.dilation - axis.padding - first;
        const P k = static_cast<P>(i * axis.kernel + j);
        collect<kStep>(grad + from, indices + from, k, windows.end - windows.begin, step, sum + to);
      }
    });
    for (int64_t x = 0; x < count; ++x) out[first + x] = static_cast<T>(sum[x]);
  }
}

/// Calls f(image, row) for all rows of all images, in pieces of rows with `row_elements` elements each.
template <class F>
void for_rows(int64_t images, int64_t rows, int64_t row_elements, F f) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, row_elements));
  parallel_for(images * rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i / rows, i % rows);
  });
}

/// Calls f(std::integral_constant<int, stride>) for strides 1 and 2, else with 0.
template <class F>
void visit_stride(int64_t stride, F f) {
  switch (stride) {
    case 1: return f(std::integral_constant<int, 1>());
    case 2: return f(std::integral_constant<int, 2>());
    default: return f(std::integral_constant<int, 0>());
  }
}

}  // namespace

void max_pool(const KernelContext&, DType dtype, const MaxPoolShape& shape, const void* in, void* out, void* indices) {
  const int64_t rows = shape.height.windows;
  const int64_t images = shape.channels_last ? shape.batch : shape.batch * shape.channels;
  const int64_t pixel = shape.channels_last ? shape.channels : 1;
  const int64_t image_elements = shape.height.image * shape.width.image * pixel;
  const int64_t row_elements = shape.width.windows * pixel;
  visit_floating_dtype(dtype, [&]<class T>() {
    visit_index_dtype(shape, [&]<class P>(P*) {
      const auto each = [&](auto row_of_windows) {
        for_rows(images, rows, row_elements * shape.kernel_elements(), [&](int64_t image, int64_t row) {
          const int64_t at = (image * rows + row) * row_elements;
          row_of_windows(row, static_cast<const T*>(in) + image * image_elements, static_cast<T*>(out) + at,
                         indices == nullptr ? nullptr : static_cast<P*>(indices) + at);
        });
      };
      if (!shape.channels_last) {
        visit_stride(shape.width.stride, [&]<int kStep>(std::integral_constant<int, kStep>) {
          each([&](int64_t row, const T* image, T* to, P* at) { max_row_planar<kStep>(shape, row, image, to, at); });
        });
      } else if (is_two_by_two(shape)) {
        const int64_t two_rows = 2 * shape.width.image * pixel;
        each([&](int64_t row, const T* image, T* to, P* at) { two_by_two_row(shape, image + row * two_rows, to, at); });
      } else {
        each([&](int64_t row, const T* image, T* to, P* at) { max_row_channels_last(shape, row, image, to, at); });
      }
    });
  });
}

void max_pool_backward(const KernelContext&, DType dtype, const MaxPoolShape& shape, const void* grad_out,
                       const void* indices, void* grad_in) {
  const int64_t images = shape.channels_last ? shape.batch : shape.batch * shape.channels;
  const int64_t pixel = shape.channels_last ? shape.channels : 1;
  const int64_t windows_elements = shape.height.windows * shape.width.windows * pixel;
  const int64_t row_elements = shape.width.image * pixel;
  const int64_t image_elements = shape.height.image * row_elements;
  visit_floating_dtype(dtype, [&]<class T>() {
    visit_index_dtype(shape, [&]<class P>(P*) {
      const T* grad = static_cast<const T*>(grad_out);
      const P* at = static_cast<const P*>(indices);
      T* out = static_cast<T*>(grad_in);
      if (shape.channels_last && is_two_by_two(shape)) {
        const int64_t rows = shape.height.windows, windows_row = shape.width.windows * pixel;
        for_rows(images, rows, 2 * row_elements, [&](int64_t image, int64_t row) {
          const int64_t from = image * windows_elements + row * windows_row;
          T* to = out + image * image_elements + 2 * row * row_elements;
          two_by_two_backward_row(shape, grad + from, at + from, to);
          // Rows below the last window.
          if (row + 1 == rows) std::fill(to + 2 * row_elements, out + (image + 1) * image_elements, T(0));
        });
        return;
      }
      const int64_t rows = shape.height.image;
      const auto each = [&](auto row_of_image) {
        for_rows(images, rows, row_elements * shape.height.kernel, [&](int64_t image, int64_t y) {
          row_of_image(y, grad + image * windows_elements, at + image * windows_elements,
                       out + image * image_elements + y * row_elements);
        });
      };
      if (shape.channels_last) {
        each([&](int64_t y, const T* g, const P* k, T* to) { backward_row_channels_last(shape, y, g, k, to); });
      } else {
        visit_stride(shape.width.stride, [&]<int kStep>(std::integral_constant<int, kStep>) {
          each([&](int64_t y, const T* g, const P* k, T* to) { backward_row_planar<kStep>(shape, y, g, k, to); });
        });
      }
    });
  });
}

namespace {

/// Calls f(i, image, channel, index) for the windows i, with the index of the largest element in its image; negative
/// for a window without elements.
template <class F>
void for_largest(const MaxPoolShape& shape, const void* indices, F f) {
  const int64_t images = shape.channels_last ? shape.batch : shape.batch * shape.channels;
  const int64_t pixel = shape.channels_last ? shape.channels : 1;
  const int64_t row_elements = shape.width.windows * pixel;
  const int32_t kernel_width = static_cast<int32_t>(shape.width.kernel);  // 64-bit divisions take twice as long
  visit_index_dtype(shape, [&]<class P>(P*) {
    for_rows(images, shape.height.windows, row_elements, [&](int64_t image, int64_t row) {
      const int64_t top = row * shape.height.stride - shape.height.padding;
      int64_t i = (image * shape.height.windows + row) * row_elements;
      for (int64_t w = 0; w < shape.width.windows; ++w) {
        const int64_t left = w * shape.width.stride - shape.width.padding;
        for (int64_t channel = 0; channel < pixel; ++channel, ++i) {
          const P k = static_cast<const P*>(indices)[i];
          const int64_t y = top + k / kernel_width * shape.height.dilation;
          const int64_t x = left + k % kernel_width * shape.width.dilation;
          f(i, image, channel, k == static_cast<P>(-1) ? -1 : y * shape.width.image + x);
        }
      }
    });
  });
}

}  // namespace

void take_at(const KernelContext&, DType dtype, const MaxPoolShape& shape, const void* in, const void* indices,
             void* out) {
  const int64_t plane = shape.height.image * shape.width.image;
  const int64_t pixel = shape.channels_last ? shape.channels : 1;
  visit_floating_dtype(dtype, [&]<class T>() {
    for_largest(shape, indices, [=](int64_t i, int64_t image, int64_t channel, int64_t index) {
      const T* from = static_cast<const T*>(in) + image * plane * pixel + channel;
      static_cast<T*>(out)[i] = index < 0 ? T(0) : from[index * pixel];
    });
  });
}

void flat_indices(const KernelContext&, const MaxPoolShape& shape, const void* indices, int64_t* out) {
  for_largest(shape, indices, [=](int64_t i, int64_t, int64_t, int64_t index) { out[i] = index; });
}

}}}  // namespace tandem::v0::cpu
