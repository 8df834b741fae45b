// Checks of image arguments. Private to data/.
#pragma once

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace data {

/// Throws DeviceError and DTypeError unless the tensor is uint8 or float32, on the CPU.
void check_on_cpu(const char* op, const Tensor& image);
/// Throws unless the image is [C, H, W], uint8 or float32, on the CPU.
void check_planes(const char* op, const Tensor& image);
/// check_planes; returns the image if the pixels of a row are contiguous, else a row-major copy.
Tensor with_contiguous_rows(const char* op, const Tensor& image);
/// The tensor if it is row-major, else a row-major copy.
Tensor row_major(const Tensor& tensor);

}}}  // namespace tandem::v0::data
