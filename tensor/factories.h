// Tensor factories.
#pragma once

#include <initializer_list>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Uninitialized. Throws ShapeError for negative or overflowing sizes, DTypeError for requires_grad with a dtype that
/// is not floating, OutOfMemory, DeviceError. The other factories throw these too.
TANDEM_API Tensor empty(const Shape& shape, TensorOptions options = {});
/// A tensor of zeros.
TANDEM_API Tensor zeros(const Shape& shape, TensorOptions options = {});
/// A tensor of ones.
TANDEM_API Tensor ones(const Shape& shape, TensorOptions options = {});
/// Also throws ValueError for a value outside the range of an integer dtype (300 or -1 in uint8, NaN); a fraction is
/// truncated.
TANDEM_API Tensor full(const Shape& shape, Scalar value, TensorOptions options = {});
TANDEM_API Tensor empty_like(const Tensor& tensor);  ///< row-major, same shape, dtype, device
/// Uninitialized, with the shape and device of `like` and the given dtype, as torch.empty_like with preserve_format: if
/// `like` is dense, the result has its strides (a transposed matrix stays transposed, channels-last stays
/// channels-last), else it is row-major.
TANDEM_API Tensor empty_preserving_layout(const Tensor& like, DType dtype);
TANDEM_API Tensor zeros_like(const Tensor& tensor);  ///< zeros; row-major, same shape, dtype, device
TANDEM_API Tensor ones_like(const Tensor& tensor);   ///< ones; row-major, same shape, dtype, device
/// int64 [ceil((end - begin) / step)]: begin, begin + step, ...  Throws ValueError if step is 0 or leads away from end.
TANDEM_API Tensor arange(int64_t begin, int64_t end, int64_t step = 1, Device device = {});
/// 0, 1, .. end - 1.
TANDEM_API inline Tensor arange(int64_t end) { return arange(0, end); }

/// A 1-dim CPU tensor of the values: float32 for floating values, int64 for integers, bool for bools.
TANDEM_API Tensor tensor(std::initializer_list<double> values);
TANDEM_API Tensor tensor(std::initializer_list<float> values);
TANDEM_API Tensor tensor(std::initializer_list<int> values);
TANDEM_API Tensor tensor(std::initializer_list<int64_t> values);
TANDEM_API Tensor tensor(std::initializer_list<bool> values);
/// A 0-dim tensor. Throws as full.
TANDEM_API Tensor scalar_tensor(Scalar value, TensorOptions options);
/// Row-major copy of `values` with the given shape, dtype and device. Throws ShapeError if the number of values differs
/// from the number of elements.
template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape, TensorOptions options = {dtype_of<T>()});

}}  // namespace tandem::v0
