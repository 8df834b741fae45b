// Kernels of the pools.  Images are [N, C, H, W] in one of two orders of memory: row-major ("planar"), or N, H, W, C
// (channels-last).  Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem::inline v0 {

/// The windows of a maximum along one axis: element k of window o is the image's o * stride - padding + k * dilation, if it has one.
struct MaxPoolAxis {
  int64_t image;
  int64_t windows;
  int64_t kernel;
  int64_t stride;
  int64_t padding;
  int64_t dilation;
};

struct MaxPoolShape {
  int64_t batch;
  int64_t channels;
  MaxPoolAxis height;
  MaxPoolAxis width;
  bool channels_last;

  int64_t kernel_elements() const { return height.kernel * width.kernel; }
};

/// The windows of a mean along one axis: window o covers [begin[o], end[o]) of the image and counts as `size[o]`.  Both begin and
/// end ascend, so that the windows over element i are [first[i], last[i]).
struct AvgPoolAxis {
  int64_t image;
  int64_t windows;
  const int64_t* begin;
  const int64_t* end;
  const int64_t* size;
  const int64_t* first;
  const int64_t* last;
};

struct AvgPoolShape {
  int64_t batch;
  int64_t channels;
  AvgPoolAxis height;
  AvgPoolAxis width;
  bool channels_last;
};

namespace cpu {

/// The dtype of `places` below.
constexpr DType place_dtype(int64_t kernel_elements) { return kernel_elements < 256 ? kUInt8 : kInt32; }

/// out = maximum of each window; places (unless null) = which element of its window that is, row-major in the kernel, of
/// place_dtype; all bits set for a window without elements, whose maximum is -inf.
void max_pool(const KernelContext& context, DType dtype, const MaxPoolShape& shape, const void* in, void* out,
              void* places);
/// grad_in = sum over the windows whose largest element it is of grad_out.
void max_pool_backward(const KernelContext& context, DType dtype, const MaxPoolShape& shape, const void* grad_out,
                       const void* places, void* grad_in);
/// out = the elements of `in` at `places`, 0 where there is none.
void take_places(const KernelContext& context, DType dtype, const MaxPoolShape& shape, const void* in,
                 const void* places, void* out);

/// out = mean of each window.
void avg_pool(const KernelContext& context, DType dtype, const AvgPoolShape& shape, const void* in, void* out);
/// grad_in = sum over the windows that cover it of grad_out / size.
void avg_pool_backward(const KernelContext& context, DType dtype, const AvgPoolShape& shape, const void* grad_out,
                       void* grad_in);

}  // namespace cpu
}  // namespace tandem::inline v0
