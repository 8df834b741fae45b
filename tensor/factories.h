// Tensor factories.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// A tensor with undefined contents. Throws ShapeError for negative or overflowing sizes, DTypeError for requires_grad
/// with a dtype that is not floating, OutOfMemory, DeviceError. The other factories throw these errors too.
TANDEM_API Tensor empty(const Shape& shape, TensorOptions options = {});
/// A tensor of zeros.
TANDEM_API Tensor zeros(const Shape& shape, TensorOptions options = {});
/// A tensor of ones.
TANDEM_API Tensor ones(const Shape& shape, TensorOptions options = {});
/// A tensor filled with `value`; a fraction is truncated for an integer dtype. Also throws ValueError for a value
/// outside the range of an integer dtype (300 or -1 in uint8, NaN).
TANDEM_API Tensor full(const Shape& shape, Scalar value, TensorOptions options = {});

// A dtype or a device may be passed in place of TensorOptions: `zeros(3, kInt64)`, `zeros(3, kCUDA)`.

/// A dtype, a device, or the name of a device.
template <class T>
concept TensorOption = std::same_as<T, DType> || std::convertible_to<T, Device>;

namespace detail {
/// `defaults` with this dtype or device.
inline TensorOptions with(DType dtype, TensorOptions defaults = {}) { return defaults.dtype = dtype, defaults; }
inline TensorOptions with(const Device& device, TensorOptions defaults = {}) {
  return defaults.device = device, defaults;
}
}  // namespace detail

Tensor empty(const Shape& shape, TensorOption auto option) { return empty(shape, detail::with(option)); }  ///< empty
Tensor zeros(const Shape& shape, TensorOption auto option) { return zeros(shape, detail::with(option)); }  ///< zeros
Tensor ones(const Shape& shape, TensorOption auto option) { return ones(shape, detail::with(option)); }    ///< ones
/// empty, zeros and ones with sizes as several numbers: zeros(2, 3).
Tensor empty(IntegerType auto n, IntegerType auto m, IntegerType auto... l) { return empty(Shape::list(n, m, l...)); }
Tensor zeros(IntegerType auto n, IntegerType auto m, IntegerType auto... l) { return zeros(Shape::list(n, m, l...)); }
Tensor ones(IntegerType auto n, IntegerType auto m, IntegerType auto... l) { return ones(Shape::list(n, m, l...)); }
/// full, with a dtype or a device in place of TensorOptions.
Tensor full(const Shape& shape, Scalar value, TensorOption auto option) {
  return full(shape, value, detail::with(option));
}

TANDEM_API Tensor empty_like(const Tensor& tensor);  ///< row-major, same shape, dtype, device
/// A tensor with undefined contents, the shape and device of `like` and the given dtype, as torch.empty_like with
/// preserve_format: if `like` is dense, the result has its strides (a transposed matrix stays transposed, channels-last
/// stays channels-last), else it is row-major.
TANDEM_API Tensor empty_preserving_layout(const Tensor& like, DType dtype);
TANDEM_API Tensor zeros_like(const Tensor& tensor);               ///< zeros; row-major, same shape, dtype, device
TANDEM_API Tensor ones_like(const Tensor& tensor);                ///< ones; row-major, same shape, dtype, device
TANDEM_API Tensor full_like(const Tensor& tensor, Scalar value);  ///< filled; row-major, same shape, dtype, device

/// [ceil((end - start) / step)]: start, start + step, ... int64 if all are integers, else float32, computed in float64
/// and rounded once. Throws ValueError if step is 0 or has the wrong sign, or if a number is not finite.
TANDEM_API Tensor arange(Scalar start, Scalar end, Scalar step = 1, Device device = {});
/// arange with the dtype of the options.
TANDEM_API Tensor arange(Scalar start, Scalar end, Scalar step, TensorOptions options);
/// arange from 0.
TANDEM_API inline Tensor arange(Scalar end) { return arange(0, end); }
TANDEM_API inline Tensor arange(Scalar end, TensorOptions options) { return arange(0, end, 1, options); }
/// arange of a dtype.
Tensor arange(Scalar end, std::same_as<DType> auto dtype) { return arange(0, end, 1, {dtype}); }
Tensor arange(Scalar start, Scalar end, std::same_as<DType> auto dtype) { return arange(start, end, 1, {dtype}); }
Tensor arange(Scalar start, Scalar end, Scalar step, std::same_as<DType> auto dtype) {
  return arange(start, end, step, TensorOptions{dtype});
}
/// [steps]: numbers from start to end, both included, equally spaced; one step gives start. Computed in float64 from
/// the nearer end and rounded once. Throws ValueError for a negative number of steps.
TANDEM_API Tensor linspace(Scalar start, Scalar end, int64_t steps, TensorOptions options = {});
Tensor linspace(Scalar start, Scalar end, int64_t steps, TensorOption auto option) {
  return linspace(start, end, steps, detail::with(option));
}
/// [n, m]: 1 where the row is the column, else 0.
TANDEM_API Tensor eye(int64_t n, int64_t m, TensorOptions options = {});
TANDEM_API inline Tensor eye(int64_t n, TensorOptions options = {}) { return eye(n, n, options); }
Tensor eye(int64_t n, int64_t m, TensorOption auto option) { return eye(n, m, detail::with(option)); }  ///< eye
Tensor eye(int64_t n, TensorOption auto option) { return eye(n, n, detail::with(option)); }             ///< eye

/// Numbers in nested lists of equal lengths: 1, {1, 2} or {{1, 2}, {3, 4}}. An argument of `tensor`.
struct TANDEM_API NestedList {
  /// One number.
  template <class T>
  requires std::is_arithmetic_v<T> NestedList(T value) : values{Scalar(value)} {}
  /// Throws ShapeError unless all elements have the same shape.
  NestedList(std::initializer_list<NestedList> list);

  Shape shape;                 ///< of the tensor
  std::vector<Scalar> values;  ///< row-major
};
/// A CPU tensor of the values: float32 if a value is floating or there are no values, else int64 if a value is an
/// integer, else bool.
TANDEM_API Tensor tensor(const NestedList& values);
/// A tensor of the values with a dtype and device. Throws as full.
TANDEM_API Tensor tensor(const NestedList& values, TensorOptions options);
Tensor tensor(const NestedList& values, std::same_as<DType> auto dtype) { return tensor(values, {dtype}); }  ///< tensor
/// A row-major tensor on the caller's memory, without a copy. `deleter` (may be empty) is called with `data` when the
/// tensor and all its views have been destroyed; without a deleter the memory must outlive them. CPU devices only
/// (DeviceError).
TANDEM_API Tensor from_blob(void* data, const Shape& shape, std::function<void(void*)> deleter,
                            TensorOptions options = {});
TANDEM_API inline Tensor from_blob(void* data, const Shape& shape, TensorOptions options = {}) {
  return from_blob(data, shape, nullptr, options);
}
Tensor from_blob(void* data, const Shape& shape, TensorOption auto option) {
  return from_blob(data, shape, nullptr, detail::with(option));
}
/// A 0-dim tensor. Throws as full.
TANDEM_API Tensor scalar_tensor(Scalar value, TensorOptions options);
Tensor scalar_tensor(Scalar value, TensorOption auto option) { return scalar_tensor(value, detail::with(option)); }
/// Row-major copy of `values` with the given shape, dtype and device. Throws ShapeError if the number of values differs
/// from the number of elements.
template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape, TensorOptions options = {dtype_of<T>()});
template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape, TensorOption auto option) {
  return from_vector(values, shape, detail::with(option, {dtype_of<T>()}));
}

}}  // namespace tandem::v0
