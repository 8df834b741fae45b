// CPU kernels of avg_pool2d and adaptive_avg_pool2d; loop order and order of additions as in max_pool_cpu.cc.
#include <algorithm>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/common/simd.h>
#include <tandem/ops/pool/pool_kernels.h>
#include <tandem/ops/softmax/row_math.h>

namespace tandem { inline namespace v0 { namespace cpu {
namespace {

using PoolShape = AvgPoolShape<AvgPoolTable>;

constexpr int64_t kGrainElements = 1 << 14;

/// Calls f(image, row) for all rows of all images, in pieces of rows with `row_elements` elements each.
template <class F>
void for_rows(int64_t images, int64_t rows, int64_t row_elements, F f) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, row_elements));
  parallel_for(images * rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i / rows, i % rows);
  });
}

template <class C, class T>
C sum_of(const T* x, int64_t n) {
  if (n >= 2 * kRowLanes) return row_sum<C>(n, [&](int64_t i) { return static_cast<C>(x[i]); });
  C sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<C>(x[i]);
  return sum;
}

/// One row of windows of an image, for all channels.
template <class T>
void mean_row_channels_last(const PoolShape& shape, int64_t row, const T* image, T* out) {
  using C = RowCompute<T>;
  const int64_t channels = shape.channels;
  for (int64_t w = 0; w < shape.width.windows; ++w) {
    const C size = static_cast<C>(shape.height.size[row] * shape.width.size[w]);
    const int64_t left = shape.width.begin[w], right = shape.width.end[w];
    for_vecs<C>(channels, [&]<class V>(int64_t c) {
      V sum = {};
      for (int64_t y = shape.height.begin[row]; y < shape.height.end[row]; ++y) {
        V line = {};  // sums per line keep large windows precise
        for (int64_t x = left; x < right; ++x) line += load_as<V>(image + (y * shape.width.image + x) * channels + c);
        sum += line;
      }
      store_as<V>(out + w * channels + c, sum / size);
    });
  }
}

template <class T>
void mean_row_planar(const PoolShape& shape, int64_t row, const T* plane, T* out) {
  using C = RowCompute<T>;
  for (int64_t w = 0; w < shape.width.windows; ++w) {
    const int64_t begin = shape.width.begin[w], length = shape.width.end[w] - begin;
    C sum = 0;
    for (int64_t y = shape.height.begin[row]; y < shape.height.end[row]; ++y) {
      sum += sum_of<C>(plane + y * shape.width.image + begin, length);
    }
    out[w] = static_cast<T>(sum / static_cast<C>(shape.height.size[row] * shape.width.size[w]));
  }
}

/// One row of the gradient of an image.
template <class T>
void backward_row_channels_last(const PoolShape& shape, int64_t y, const T* grad, T* out) {
  using C = RowCompute<T>;
  const int64_t channels = shape.channels;
  for (int64_t x = 0; x < shape.width.image; ++x) {
    for_vecs<C>(channels, [&]<class V>(int64_t c) {
      V sum = {};
      for (int64_t row = shape.height.first[y]; row < shape.height.last[y]; ++row) {
        for (int64_t w = shape.width.first[x]; w < shape.width.last[x]; ++w) {
          const C scale = C(1) / static_cast<C>(shape.height.size[row] * shape.width.size[w]);
          sum += load_as<V>(grad + (row * shape.width.windows + w) * channels + c) * scale;
        }
      }
      store_as<V>(out + x * channels + c, sum);
    });
  }
}

template <class T>
void backward_row_planar(const PoolShape& shape, int64_t y, const T* grad, T* out) {
  using C = RowCompute<T>;
  for (int64_t x = 0; x < shape.width.image; ++x) {
    C sum = 0;
    for (int64_t row = shape.height.first[y]; row < shape.height.last[y]; ++row) {
      for (int64_t w = shape.width.first[x]; w < shape.width.last[x]; ++w) {
        const C scale = C(1) / static_cast<C>(shape.height.size[row] * shape.width.size[w]);
        sum += static_cast<C>(grad[row * shape.width.windows + w]) * scale;
      }
    }
    out[x] = static_cast<T>(sum);
  }
}

}  // namespace

void avg_pool(const KernelContext&, DType dtype, const AvgPoolWindows& windows, const void* in, void* out) {
  const PoolShape& shape = windows.tables;
  const int64_t images = shape.channels_last ? shape.batch : shape.batch * shape.channels;
  const int64_t pixel = shape.channels_last ? shape.channels : 1;
  const int64_t rows = shape.height.windows, row_elements = shape.width.windows * pixel;
  const int64_t image_row = shape.width.image * pixel, image_elements = shape.height.image * image_row;
  const int64_t read_elements = image_row * (shape.height.image / std::max<int64_t>(1, rows) + 1);
  visit_floating_dtype(dtype, [&]<class T>() {
    for_rows(images, rows, read_elements, [&](int64_t image, int64_t row) {
      const T* from = static_cast<const T*>(in) + image * image_elements;
      T* to = static_cast<T*>(out) + (image * rows + row) * row_elements;
      shape.channels_last ? mean_row_channels_last(shape, row, from, to) : mean_row_planar(shape, row, from, to);
    });
  });
}

void avg_pool_backward(const KernelContext&, DType dtype, const AvgPoolWindows& windows, const void* grad_out,
                       void* grad_in) {
  const PoolShape& shape = windows.tables;
  const int64_t images = shape.channels_last ? shape.batch : shape.batch * shape.channels;
  const int64_t pixel = shape.channels_last ? shape.channels : 1;
  const int64_t rows = shape.height.image, row_elements = shape.width.image * pixel;
  const int64_t windows_elements = shape.height.windows * shape.width.windows * pixel;
  visit_floating_dtype(dtype, [&]<class T>() {
    for_rows(images, rows, row_elements, [&](int64_t image, int64_t y) {
      const T* from = static_cast<const T*>(grad_out) + image * windows_elements;
      T* to = static_cast<T*>(grad_in) + (image * rows + y) * row_elements;
      shape.channels_last ? backward_row_channels_last(shape, y, from, to) : backward_row_planar(shape, y, from, to);
    });
  });
}

}}}  // namespace tandem::v0::cpu
