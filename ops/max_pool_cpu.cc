// CPU kernels of max_pool2d.
//
// Channels-last images are walked pixel by pixel with the channels innermost, planar ones row by row with the columns
// innermost, so that the innermost loops become vector code.  The gradient is gathered, not scattered: each element of the image
// asks the windows over it whether it was their largest, so that it is written once, by one thread, in a fixed order of additions.
#include <algorithm>
#include <limits>
#include <type_traits>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/pool_kernels.h>

namespace tandem::inline v0::cpu {
namespace {

/// Elements that a piece of work takes at least.
constexpr int64_t kGrainElements = 1 << 14;
/// Numbers that are computed side by side.
constexpr int64_t kStripe = 128;

template <class T>
using Compute = Accumulator<T>;
/// An integer as wide as a number, so that both fill the same vector lanes.
template <class C>
using Lane = std::conditional_t<sizeof(C) == 8, int64_t, int32_t>;

/// Whether x replaces `best`: larger, or the first NaN.  Without branches, for vector code.
template <class C>
bool beats(C x, C best) {
  return !(x <= best) & (best == best);
}

int64_t ceil_div(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

/// Kernel elements [begin, end) of window o that lie inside the image.
struct Range {
  int64_t begin;
  int64_t end;
};
Range elements_inside(const MaxPoolAxis& axis, int64_t window) {
  const int64_t start = window * axis.stride - axis.padding;
  return {std::max<int64_t>(0, ceil_div(-start, axis.dilation)),
          std::min(axis.kernel, ceil_div(axis.image - start, axis.dilation))};
}
/// Windows [begin, end) whose kernel element k lies in [image_begin, image_end).
Range windows_with(const MaxPoolAxis& axis, int64_t k, int64_t image_begin, int64_t image_end) {
  const int64_t shift = k * axis.dilation - axis.padding;
  return {std::max<int64_t>(0, ceil_div(image_begin - shift, axis.stride)),
          std::min(axis.windows, ceil_div(image_end - shift, axis.stride))};
}
/// The window whose kernel element k is element i of the image, or -1.
int64_t window_at(const MaxPoolAxis& axis, int64_t k, int64_t i) {
  const int64_t start = i - k * axis.dilation + axis.padding;
  return start >= 0 && start % axis.stride == 0 && start / axis.stride < axis.windows ? start / axis.stride : -1;
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

// --- channels-last -------------------------------------------------------------------------------

/// One row of windows of 2 x 2 elements that touch: all inside the image, none shared.
template <class T, class P>
void two_by_two_row(const MaxPoolShape& shape, const T* __restrict upper, T* __restrict out, P* __restrict places) {
  using C = Compute<T>;
  const int64_t channels = shape.channels;
  const T* lower = upper + shape.width.image * channels;
  for (int64_t w = 0; w < shape.width.windows; ++w) {
    const T* __restrict up = upper + 2 * w * channels;
    const T* __restrict low = lower + 2 * w * channels;
    T* __restrict to = out + w * channels;
    const auto largest = [&](int64_t c, Lane<C>& place) {
      C best = static_cast<C>(up[c]);
      place = 0;
      const auto offer = [&](T value, Lane<C> k) {
        const C x = static_cast<C>(value);
        const bool replaces = beats(x, best);
        best = replaces ? x : best;
        place = replaces ? k : place;
      };
      offer(up[channels + c], 1);
      offer(low[c], 2);
      offer(low[channels + c], 3);
      return best;
    };
    Lane<C> place;
    if (places == nullptr) {
      for (int64_t c = 0; c < channels; ++c) to[c] = static_cast<T>(largest(c, place));
    } else {
      P* __restrict at = places + w * channels;
      for (int64_t c = 0; c < channels; ++c) {
        Lane<C> k;
        to[c] = static_cast<T>(largest(c, k));
        at[c] = static_cast<P>(k);
      }
    }
  }
}

/// One row of windows of one image, for all channels.
template <class T, class P>
void max_row_channels_last(const MaxPoolShape& shape, int64_t row, const T* image, T* out, P* places) {
  using C = Compute<T>;
  const int64_t channels = shape.channels;
  const Range rows = elements_inside(shape.height, row);
  for (int64_t w = 0; w < shape.width.windows; ++w) {
    const Range columns = elements_inside(shape.width, w);
    for (int64_t first = 0; first < channels; first += kStripe) {
      const int64_t count = std::min(kStripe, channels - first);
      C best[kStripe];
      Lane<C> place[kStripe];
      std::fill(best, best + count, -std::numeric_limits<C>::infinity());
      std::fill(place, place + count, Lane<C>{-1});
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        const int64_t y = row * shape.height.stride - shape.height.padding + i * shape.height.dilation;
        for (int64_t j = columns.begin; j < columns.end; ++j) {
          const int64_t x = w * shape.width.stride - shape.width.padding + j * shape.width.dilation;
          const T* from = image + (y * shape.width.image + x) * channels + first;
          const Lane<C> k = static_cast<Lane<C>>(i * shape.width.kernel + j);
          for (int64_t c = 0; c < count; ++c) {
            const C value = static_cast<C>(from[c]);
            const bool replaces = beats(value, best[c]) | (place[c] < 0);
            best[c] = replaces ? value : best[c];
            place[c] = replaces ? k : place[c];
          }
        }
      }
      for (int64_t c = 0; c < count; ++c) out[w * channels + first + c] = static_cast<T>(best[c]);
      if (places == nullptr) continue;
      for (int64_t c = 0; c < count; ++c) places[w * channels + first + c] = static_cast<P>(place[c]);
    }
  }
}

/// The two rows of the image under one row of touching 2 x 2 windows.
template <class T, class P>
void two_by_two_backward_row(const MaxPoolShape& shape, const T* __restrict grad, const P* __restrict places,
                             T* __restrict upper) {
  const int64_t channels = shape.channels;
  T* lower = upper + shape.width.image * channels;
  for (int64_t w = 0; w < shape.width.windows; ++w) {
    const T* __restrict g = grad + w * channels;
    const P* __restrict at = places + w * channels;
    T* __restrict up = upper + 2 * w * channels;
    T* __restrict low = lower + 2 * w * channels;
    for (int64_t c = 0; c < channels; ++c) {
      const int32_t k = at[c];
      const T value = g[c];
      up[c] = k == 0 ? value : T(0);
      up[channels + c] = k == 1 ? value : T(0);
      low[c] = k == 2 ? value : T(0);
      low[channels + c] = k == 3 ? value : T(0);
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
      C sum[kStripe] = {};
      for (int64_t i = 0; i < shape.height.kernel; ++i) {
        const int64_t row = window_at(shape.height, i, y);
        if (row < 0) continue;
        for (int64_t j = 0; j < shape.width.kernel; ++j) {
          const int64_t column = window_at(shape.width, j, x);
          if (column < 0) continue;
          const int64_t at = (row * shape.width.windows + column) * channels + first;
          const P k = static_cast<P>(i * shape.width.kernel + j);
          for (int64_t c = 0; c < count; ++c) sum[c] += places[at + c] == k ? static_cast<C>(grad[at + c]) : C(0);
        }
      }
      for (int64_t c = 0; c < count; ++c) out[x * channels + first + c] = static_cast<T>(sum[c]);
    }
  }
}

// --- planar --------------------------------------------------------------------------------------

/// One row of windows of one plane.
template <int kStep, class T, class P>
void max_row_planar(const MaxPoolShape& shape, int64_t row, const T* plane, T* out, P* places) {
  using C = Compute<T>;
  const MaxPoolAxis& axis = shape.width;
  const int64_t step = kStep == 0 ? axis.stride : kStep;
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
        for (int64_t w = begin; w < end; ++w) {
          const C value = static_cast<C>(from[w * step + offset]);
          const bool replaces = beats(value, best[w]) | (place[w] < 0);
          best[w] = replaces ? value : best[w];
          place[w] = replaces ? k : place[w];
        }
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
  const MaxPoolAxis& axis = shape.width;
  const int64_t step = kStep == 0 ? axis.stride : kStep;
  for (int64_t first = 0; first < axis.image; first += kStripe) {
    const int64_t count = std::min(kStripe, axis.image - first);
    C sum[kStripe] = {};
    for (int64_t i = 0; i < shape.height.kernel; ++i) {
      const int64_t row = window_at(shape.height, i, y);
      if (row < 0) continue;
      for (int64_t j = 0; j < axis.kernel; ++j) {
        const Range windows = windows_with(axis, j, first, first + count);
        const T* from = grad + row * axis.windows;
        const P* at = places + row * axis.windows;
        const int64_t offset = j * axis.dilation - axis.padding - first;
        const P k = static_cast<P>(i * axis.kernel + j);
        for (int64_t w = windows.begin; w < windows.end; ++w) {
          sum[w * step + offset] += at[w] == k ? static_cast<C>(from[w]) : C(0);
        }
      }
    }
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

}  // namespace tandem::inline v0::cpu
