// CPU kernels of max_pool2d.
//
// Channels-last images are walked pixel by pixel with the channels innermost, planar ones row by row with the columns
// innermost, so that the innermost loops become vector code.  The gradient is gathered, not scattered: each element of the image
// asks the windows over it whether it was their largest, so that it is written once, by one thread, in a fixed order of additions.
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
using functions::Range;

/// Elements that a piece of work takes at least.
constexpr int64_t kGrainElements = 1 << 14;
/// Numbers that are computed side by side.
constexpr int64_t kStripe = 128;

template <class T>
using Compute = Accumulator<T>;
/// An integer as wide as a number, so that both fill the same vector lanes.
template <class C>
using Lane = std::conditional_t<sizeof(C) == 8, int64_t, int32_t>;

/// Places side by side at any address.
template <class C>
struct PlaceType {
  typedef Lane<C> Lanes __attribute__((vector_size(32), aligned(sizeof(C)), may_alias));
};
template <class C>
using PlaceLanes = typename PlaceType<C>::Lanes;

/// Windows [begin, end) whose kernel element k lies in [image_begin, image_end).
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
    if (k >= 0) f(window, k);
  }
}

/// Calls f(place) with a null pointer of the type in which places are stored.
template <class F>
void visit_place(const MaxPoolShape& shape, F f) {
  if (place_dtype(shape.kernel_elements()) == kUInt8) {
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

/// kLaneCount<C> numbers, `step` apart; kStep is that where it is known.
template <int kStep, class T>
inline __attribute__((always_inline)) Lanes<Compute<T>> load_apart(const T* from, int64_t step) {
  using C = Compute<T>;
  if constexpr (kStep == 1) return load_lanes(from);
  Lanes<C> result;
  for (int64_t l = 0; l < kLaneCount<C>; ++l) result[l] = static_cast<C>(from[l * (kStep == 0 ? step : kStep)]);
  return result;
}

/// best[i] = max(best[i], from[i * step]), and place[i] = k where that changed it, for i < n; a negative place says that there was
/// nothing yet.
template <int kStep, class T, class C = Compute<T>>
inline void offer(const T* from, int64_t step, int64_t n, Lane<C> k, C* best, Lane<C>* place) {
  constexpr int64_t kWidth = kLaneCount<C>;
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const Lanes<C> value = load_apart<kStep>(from + i * step, step), old = load_lanes(best + i);
    PlaceLanes<C>& places = *reinterpret_cast<PlaceLanes<C>*>(place + i);
    const LaneMask<C> which = places;
    const LaneMask<C> replaces = (~(value <= old) & (old == old)) | (which < 0);
    store_lanes(best + i, replaces ? value : old);
    places = replaces ? LaneMask<C>{} + k : which;
  }
  for (; i < n; ++i) {
    const C value = static_cast<C>(from[i * step]);
    if (!beats(value, best[i]) && place[i] >= 0) continue;
    best[i] = value;
    place[i] = k;
  }
}

/// sum[i * step] += grad[i] where places[i] is k, for as many i as kVectors vectors hold.
template <int kStep, int kVectors, class T, class P, class C = Compute<T>>
inline void collect_lanes(const T* grad, const P* places, P k, int64_t step, C* sum) {
  constexpr int64_t kWidth = kLaneCount<C>;
  Lane<C> wide[kVectors * kWidth];
  for (int64_t i = 0; i < kVectors * kWidth; ++i) wide[i] = places[i];
  for (int64_t v = 0; v < kVectors; ++v) {
    const LaneMask<C> which = *reinterpret_cast<const PlaceLanes<C>*>(wide + v * kWidth);
    const Lanes<C> part = which == static_cast<Lane<C>>(k) ? load_lanes(grad + v * kWidth) : Lanes<C>{};
    if constexpr (kStep == 1) {
      store_lanes(sum + v * kWidth, load_lanes(sum + v * kWidth) + part);
    } else {
      for (int64_t l = 0; l < kWidth; ++l) sum[(v * kWidth + l) * (kStep == 0 ? step : kStep)] += part[l];
    }
  }
}

/// The same for i < n.
template <int kStep, class T, class P, class C = Compute<T>>
inline void collect(const T* grad, const P* places, P k, int64_t n, int64_t step, C* sum) {
  constexpr int64_t kWidth = kLaneCount<C>;
  int64_t i = 0;
  for (; i + 4 * kWidth <= n; i += 4 * kWidth) collect_lanes<kStep, 4>(grad + i, places + i, k, step, sum + i * step);
  for (; i + kWidth <= n; i += kWidth) collect_lanes<kStep, 1>(grad + i, places + i, k, step, sum + i * step);
  for (; i < n; ++i) sum[i * step] += places[i] == k ? static_cast<C>(grad[i]) : C(0);
}

// --- channels-last -------------------------------------------------------------------------------

/// The four elements of a 2 x 2 window, of one channel or of several side by side, from its upper left one on.
template <class T>
struct FourElements {
  const T* upper;
  const T* lower;
  int64_t right;  ///< from an element to its right neighbour

  FourElements operator+(int64_t c) const { return {upper + c, lower + c, right}; }
};

/// The largest of four, and which it is, for as many channels as kVectors vectors hold.
template <int kVectors, class T, class P>
inline void largest_of_four(FourElements<T> x, T* out, P* places) {
  using C = Compute<T>;
  constexpr int64_t kWidth = kLaneCount<C>;
  Lane<C> place[kVectors * kWidth];
  for (int64_t v = 0; v < kVectors; ++v) {
    const FourElements<T> at = x + v * kWidth;
    Lanes<C> best = load_lanes(at.upper);
    LaneMask<C> which = {};
    const auto offer = [&](const T* from, Lane<C> k) {
      const Lanes<C> value = load_lanes(from);
      const LaneMask<C> replaces = ~(value <= best) & (best == best);
      best = replaces ? value : best;
      which = replaces ? LaneMask<C>{} + k : which;
    };
    offer(at.upper + at.right, 1);
    offer(at.lower, 2);
    offer(at.lower + at.right, 3);
    store_lanes(out + v * kWidth, best);
    for (int64_t l = 0; l < kWidth; ++l) place[v * kWidth + l] = which[l];
  }
  if (places == nullptr) return;
  for (int64_t c = 0; c < kVectors * kWidth; ++c) places[c] = static_cast<P>(place[c]);
}

/// One row of windows of 2 x 2 elements that touch: all inside the image, none shared.
template <class T, class P>
void two_by_two_row(const MaxPoolShape& shape, const T* upper, T* out, P* places) {
  using C = Compute<T>;
  constexpr int64_t kWidth = kLaneCount<C>;
  const int64_t channels = shape.channels;
  for (int64_t w = 0; w < shape.width.windows; ++w) {
    const FourElements<T> x = {upper + 2 * w * channels, upper + (shape.width.image + 2 * w) * channels, channels};
    T* to = out + w * channels;
    P* at = places == nullptr ? nullptr : places + w * channels;
    const auto place = [&](int64_t c) { return at == nullptr ? nullptr : at + c; };
    int64_t c = 0;
    for (; c + 4 * kWidth <= channels; c += 4 * kWidth) largest_of_four<4>(x + c, to + c, place(c));
    for (; c + kWidth <= channels; c += kWidth) largest_of_four<1>(x + c, to + c, place(c));
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

/// The largest so far and its place, negative while there is none: of one channel, or of several side by side.
template <class V>
struct Largest;
template <class C>
requires(!kIsLanes<C>) struct Largest<C> : functions::Largest<C, Lane<C>> {
  void store_place(Lane<C>* to) const { *to = this->place; }
};
template <class V>
requires(kIsLanes<V>) struct Largest<V> {
  using C = std::decay_t<decltype(V{}[0])>;
  V value = V{} - std::numeric_limits<C>::infinity();
  LaneMask<C> place = LaneMask<C>{} - 1;

  void offer(V x, Lane<C> k) {
    const LaneMask<C> replaces = (~(x <= value) & (value == value)) | (place < 0);
    value = replaces ? x : value;
    place = replaces ? LaneMask<C>{} + k : place;
  }
  void store_place(Lane<C>* to) const { *reinterpret_cast<PlaceLanes<C>*>(to) = place; }
};

/// One row of windows of one image, for all channels.
template <class T, class P>
void max_row_channels_last(const MaxPoolShape& shape, int64_t row, const T* image, T* out, P* places) {
  using C = Compute<T>;
  const int64_t channels = shape.channels;
  const Range rows = elements_inside(shape.height, row);
  const int64_t top = row * shape.height.stride - shape.height.padding;
  for (int64_t w = 0; w < shape.width.windows; ++w) {
    const Range columns = elements_inside(shape.width, w);
    const int64_t left = w * shape.width.stride - shape.width.padding;
    for (int64_t first = 0; first < channels; first += kStripe) {
      const int64_t count = std::min(kStripe, channels - first);
      Lane<C> place[kStripe];
      for_lanes<C>(count, [&]<class V>(int64_t c) {
        Largest<V> largest;
        for (int64_t i = rows.begin; i < rows.end; ++i) {
          const int64_t y = top + i * shape.height.dilation;
          for (int64_t j = columns.begin; j < columns.end; ++j) {
            const int64_t x = left + j * shape.width.dilation;
            const T* from = image + (y * shape.width.image + x) * channels + first + c;
            largest.offer(load_as<V>(from), static_cast<Lane<C>>(i * shape.width.kernel + j));
          }
        }
        store_as(out + w * channels + first + c, largest.value);
        largest.store_place(place + c);
      });
      if (places == nullptr) continue;
      for (int64_t c = 0; c < count; ++c) places[w * channels + first + c] = static_cast<P>(place[c]);
    }
  }
}

/// The gradients of the four elements of a 2 x 2 window, for as many channels as kVectors vectors hold.
template <int kVectors, class T, class P>
inline void spread_to_four(const T* grad, const P* places, T* upper, T* lower, int64_t right) {
  using C = Compute<T>;
  constexpr int64_t kWidth = kLaneCount<C>;
  Lane<C> place[kVectors * kWidth];
  for (int64_t c = 0; c < kVectors * kWidth; ++c) place[c] = places[c];
  for (int64_t v = 0; v < kVectors; ++v) {
    const Lanes<C> value = load_lanes(grad + v * kWidth);
    LaneMask<C> which;
    for (int64_t l = 0; l < kWidth; ++l) which[l] = place[v * kWidth + l];
    const auto give = [&](Lane<C> k, T* to) { store_lanes(to + v * kWidth, which == k ? value : Lanes<C>{}); };
    give(0, upper);
    give(1, upper + right);
    give(2, lower);
    give(3, lower + right);
  }
}

/// The two rows of the image under one row of touching 2 x 2 windows.
template <class T, class P>
void two_by_two_backward_row(const MaxPoolShape& shape, const T* grad, const P* places, T* upper) {
  constexpr int64_t kWidth = kLaneCount<Compute<T>>;
  const int64_t channels = shape.channels;
  T* lower = upper + shape.width.image * channels;
  for (int64_t w = 0; w < shape.width.windows; ++w) {
    const T* g = grad + w * channels;
    const P* at = places + w * channels;
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

/// One row of the image's gradient, from the windows of its image.
template <class T, class P>
void backward_row_channels_last(const MaxPoolShape& shape, int64_t y, const T* grad, const P* places, T* out) {
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
          collect<1>(grad + at, places + at, static_cast<P>(i * shape.width.kernel + j), count, 1, sum);
        });
      });
      for (int64_t c = 0; c < count; ++c) out[x * channels + first + c] = static_cast<T>(sum[c]);
    }
  }
}

// --- planar --------------------------------------------------------------------------------------

/// The axis with its stride as a constant, by which the compiler divides faster; kStep = 0: it is any.
template <int kStep>
MaxPoolAxis with_stride(MaxPoolAxis axis) {
  if (kStep != 0) axis.stride = kStep;
  return axis;
}

/// One row of windows of one plane.
template <int kStep, class T, class P>
void max_row_planar(const MaxPoolShape& shape, int64_t row, const T* plane, T* out, P* places) {
  using C = Compute<T>;
  const MaxPoolAxis axis = with_stride<kStep>(shape.width);
  const int64_t step = axis.stride;
  const Range rows = elements_inside(shape.height, row);
  for (int64_t first = 0; first < axis.windows; first += kStripe) {
    const int64_t count = std::min(kStripe, axis.windows - first);
    C best[kStripe];
    Lane<C> place[kStripe];
    std::fill(best, best + count, -std::numeric_limits<C>::infinity());
    std::fill(place, place + count, Lane<C>{-1});
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      const int64_t y = row * shape.height.stride - shape.height.padding + i * shape.height.dilation;
      for (int64_t j = 0; j < axis.kernel; ++j) {
        const Range windows = windows_with(axis, j, 0, axis.image);
        const int64_t begin = std::max(windows.begin - first, int64_t{0}), end = std::min(windows.end - first, count);
        const T* from = plane + y * axis.image;
        const int64_t offset = first * step + j * axis.dilation - axis.padding;
        const Lane<C> k = static_cast<Lane<C>>(i * axis.kernel + j);
        if (begin < end) offer<kStep>(from + begin * step + offset, step, end - begin, k, best + begin, place + begin);
      }
    }
    for (int64_t w = 0; w < count; ++w) out[first + w] = static_cast<T>(best[w]);
    if (places == nullptr) continue;
    for (int64_t w = 0; w < count; ++w) places[first + w] = static_cast<P>(place[w]);
  }
}

/// One row of a plane's gradient.
template <int kStep, class T, class P>
void backward_row_planar(const MaxPoolShape& shape, int64_t y, const T* grad, const P* places, T* out) {
  using C = Compute<T>;
  const MaxPoolAxis axis = with_stride<kStep>(shape.width);
  const int64_t step = axis.stride;
  for (int64_t first = 0; first < axis.image; first += kStripe) {
    const int64_t count = std::min(kStripe, axis.image - first);
    C sum[kStripe];
    std::fill(sum, sum + count, C(0));
    for_windows_over(shape.height, y, [&](int64_t row, int64_t i) {
      for (int64_t j = axis.kernel; j-- > 0;) {  // from the first window over an element to the last
        const Range windows = windows_with(axis, j, first, first + count);
        if (windows.begin >= windows.end) continue;
        const int64_t from = row * axis.windows + windows.begin;
        const int64_t to = windows.begin * step + j * axis.dilation - axis.padding - first;
        const P k = static_cast<P>(i * axis.kernel + j);
        collect<kStep>(grad + from, places + from, k, windows.end - windows.begin, step, sum + to);
      }
    });
    for (int64_t x = 0; x < count; ++x) out[first + x] = static_cast<T>(sum[x]);
  }
}

/// Calls f(image, row) for each of `images` x `rows`, in pieces of rows of `row_elements`.
template <class F>
void for_rows(int64_t images, int64_t rows, int64_t row_elements, F f) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, row_elements));
  parallel_for(images * rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i / rows, i % rows);
  });
}

/// Calls f(std::integral_constant<int, the stride where that is 1 or 2, else 0>).
template <class F>
void visit_stride(int64_t stride, F f) {
  switch (stride) {
    case 1: return f(std::integral_constant<int, 1>());
    case 2: return f(std::integral_constant<int, 2>());
    default: return f(std::integral_constant<int, 0>());
  }
}

}  // namespace

void max_pool(const KernelContext&, DType dtype, const MaxPoolShape& shape, const void* in, void* out, void* places) {
  const int64_t rows = shape.height.windows;
  const int64_t images = shape.channels_last ? shape.batch : shape.batch * shape.channels;
  const int64_t pixel = shape.channels_last ? shape.channels : 1;
  const int64_t image_elements = shape.height.image * shape.width.image * pixel;
  const int64_t row_elements = shape.width.windows * pixel;
  visit_floating_dtype(dtype, [&]<class T>() {
    visit_place(shape, [&]<class P>(P*) {
      const auto each = [&](auto row_of_windows) {
        for_rows(images, rows, row_elements * shape.kernel_elements(), [&](int64_t image, int64_t row) {
          const int64_t at = (image * rows + row) * row_elements;
          row_of_windows(row, static_cast<const T*>(in) + image * image_elements, static_cast<T*>(out) + at,
                         places == nullptr ? nullptr : static_cast<P*>(places) + at);
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
                       const void* places, void* grad_in) {
  const int64_t images = shape.channels_last ? shape.batch : shape.batch * shape.channels;
  const int64_t pixel = shape.channels_last ? shape.channels : 1;
  const int64_t windows_elements = shape.height.windows * shape.width.windows * pixel;
  const int64_t row_elements = shape.width.image * pixel;
  const int64_t image_elements = shape.height.image * row_elements;
  visit_floating_dtype(dtype, [&]<class T>() {
    visit_place(shape, [&]<class P>(P*) {
      const T* grad = static_cast<const T*>(grad_out);
      const P* at = static_cast<const P*>(places);
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

void take_places(const KernelContext&, DType dtype, const MaxPoolShape& shape, const void* in, const void* places,
                 void* out) {
  const int64_t images = shape.channels_last ? shape.batch : shape.batch * shape.channels;
  const int64_t pixel = shape.channels_last ? shape.channels : 1;
  const int64_t image_elements = shape.height.image * shape.width.image * pixel;
  const int64_t row_elements = shape.width.windows * pixel;
  visit_floating_dtype(dtype, [&]<class T>() {
    visit_place(shape, [&]<class P>(P*) {
      for_rows(images, shape.height.windows, row_elements, [&](int64_t image, int64_t row) {
        const int64_t at = (image * shape.height.windows + row) * row_elements;
        const T* from = static_cast<const T*>(in) + image * image_elements;
        for (int64_t i = 0; i < row_elements; ++i) {
          const P place = static_cast<const P*>(places)[at + i];
          const int64_t k = place == static_cast<P>(-1) ? -1 : place;
          const int64_t y =
              row * shape.height.stride - shape.height.padding + k / shape.width.kernel * shape.height.dilation;
          const int64_t x =
              i / pixel * shape.width.stride - shape.width.padding + k % shape.width.kernel * shape.width.dilation;
          static_cast<T*>(out)[at + i] = k < 0 ? T(0) : from[(y * shape.width.image + x) * pixel + i % pixel];
        }
      });
    });
  });
}

}}}  // namespace tandem::v0::cpu
