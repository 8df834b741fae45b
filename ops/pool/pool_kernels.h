// Kernels of pooling. Images are [N, C, H, W] in one of two memory orders: row-major ("planar"), or N, H, W, C
// (channels-last). Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

/// The windows of max pooling along one axis: element k of window o is element o * stride - padding + k * dilation of
/// the image, if that exists. Index: int64_t, or uint32_t in GPU kernels; Divisor: the type of the sizes that are
/// divisors.
template <class Index, class Divisor>
struct BasicMaxPoolAxis {
  Index image;
  Index windows;
  Index kernel;
  Divisor stride;
  Index padding;
  Divisor dilation;
};
using MaxPoolAxis = BasicMaxPoolAxis<int64_t, int64_t>;

struct MaxPoolShape {
  int64_t batch;
  int64_t channels;
  MaxPoolAxis height;
  MaxPoolAxis width;
  bool channels_last;

  int64_t kernel_elements() const { return height.kernel * width.kernel; }
};

/// The windows of average pooling along one axis: window o covers [begin(o), end(o)) of the image and is divided by
/// size(o). begin and end ascend, so the windows over element i are [first(i), last(i)). Index and Divisor: as above.
template <class Index, class Divisor>
struct BasicAvgPoolAxis {
  Divisor image = 0;
  Divisor windows = 0;
  Index kernel = 0;  ///< 0: adaptive; window o of n covers [floor(o * image / n), ceil((o + 1) * image / n))
  Divisor stride = 1;
  Index padding = 0;
  bool count_padding = false;
  int64_t divisor = 0;  ///< of every window; 0: by the options above

  TANDEM_HOST_DEVICE Index begin(Index o) const {
    if (kernel == 0) return o * image / windows;
    return o * stride > padding ? o * stride - padding : 0;
  }
  TANDEM_HOST_DEVICE Index end(Index o) const {
    if (kernel == 0) return ((o + 1) * image + windows - 1) / windows;
    const Index whole = o * stride + kernel - padding;
    return whole < image ? whole : image;
  }
  TANDEM_HOST_DEVICE int64_t size(Index o) const {
    if (divisor != 0) return divisor;
    if (kernel == 0 || !count_padding) return end(o) - begin(o);
    const Index to_end = image + 2 * padding - o * stride;  // of the padded image
    return kernel < to_end ? kernel : to_end;
  }
  TANDEM_HOST_DEVICE Index first(Index i) const {
    if (kernel == 0) return i * windows / image;
    // Window o - 1 is the last one that ends before i.
    const Index o = i + padding < kernel ? 0 : (i + padding - kernel) / stride + 1;
    return o < windows ? o : windows;
  }
  TANDEM_HOST_DEVICE Index last(Index i) const {
    if (kernel == 0) return ((i + 1) * windows + image - 1) / image;
    const Index o = (i + padding) / stride + 1;
    return o < windows ? o : windows;
  }
};
using AvgPoolAxis = BasicAvgPoolAxis<int64_t, int64_t>;

/// The values of AvgPoolAxis in arrays, which CPU kernels read instead of dividing.
struct AvgPoolTable {
  int64_t image;
  int64_t windows;
  const int64_t* begin;
  const int64_t* end;
  const int64_t* size;
  const int64_t* first;
  const int64_t* last;
};

/// Axis: AvgPoolAxis or AvgPoolTable.
template <class Axis>
struct AvgPoolShape {
  int64_t batch;
  int64_t channels;
  Axis height;
  Axis width;
  bool channels_last;
};

/// The windows of average pooling in both forms: GPU kernels read `computed`, CPU kernels `tables` (null pointers on
/// GPUs).
struct AvgPoolWindows {
  AvgPoolShape<AvgPoolAxis> computed;
  AvgPoolShape<AvgPoolTable> tables;
};

/// The dtype of `indices` below.
constexpr DType index_dtype(int64_t kernel_elements) { return kernel_elements < 256 ? kUInt8 : kInt32; }

// clang-format off
TANDEM_KERNELS(
/// out = maximum of each window; indices (unless null) = index of the maximum in its window, row-major in the kernel,
/// of index_dtype; all bits set for a window without elements, whose maximum is -inf.
void max_pool(const KernelContext& context, DType dtype, const MaxPoolShape& shape, const void* in, void* out,
              void* indices);
/// grad_in = the sum of grad_out over the windows of which the element is the largest.
void max_pool_backward(const KernelContext& context, DType dtype, const MaxPoolShape& shape, const void* grad_out,
                       const void* indices, void* grad_in);
/// out = the elements of `in` at `indices`; 0 for windows without elements.
void take_at(const KernelContext& context, DType dtype, const MaxPoolShape& shape, const void* in, const void* indices,
             void* out);
/// out = the index in its image of the element that `indices` name, y * width + x; -1 for windows without elements.
void flat_indices(const KernelContext& context, const MaxPoolShape& shape, const void* indices, int64_t* out);
/// out = mean of each window.
void avg_pool(const KernelContext& context, DType dtype, const AvgPoolWindows& windows, const void* in, void* out);
/// grad_in = sum over the windows that cover an element of grad_out / size.
void avg_pool_backward(const KernelContext& context, DType dtype, const AvgPoolWindows& windows, const void* grad_out,
                       void* grad_in);
)
// clang-format on

}}  // namespace tandem::v0
