#include <tandem/tensor/factories.h>

#include <algorithm>
#include <cstring>

#include <tandem/tensor/cuda_primitives.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 {

namespace {

void check_requires_grad(const TensorOptions& options) {
  TANDEM_CHECK(DTypeError, !options.requires_grad || is_floating_point(options.dtype),
               "requires_grad: only floating-point tensors can require gradients, got ", options.dtype);
}

/// A 1-dim CPU tensor of the dtype of T.
template <class T, class Values>
Tensor from_values(const Values& values) {
  Tensor result = empty({static_cast<int64_t>(values.size())}, {dtype_of<T>()});
  std::copy(values.begin(), values.end(), result.data<T>());
  return result;
}

}  // namespace

Tensor empty(const Shape& shape, TensorOptions options) {
  check_requires_grad(options);
  const int64_t num_bytes = num_elements(shape) * size_of(options.dtype);
  Tensor result(make_ref<TensorImpl>(Storage::allocate(options.device, num_bytes), options.dtype, shape,
                                     row_major_strides(shape), 0));
  result.impl().requires_grad = options.requires_grad;
  return result;
}

Tensor empty_preserving_layout(const Tensor& like, DType dtype) {
  const TensorImpl& impl = like.impl();
  const TensorOptions options = {dtype, like.device()};
  if (impl.is_row_major || !is_dense(impl.shape, impl.strides)) return empty(impl.shape, options);
  return Tensor(make_ref<TensorImpl>(Storage::allocate(options.device, impl.num_elements * size_of(dtype)), dtype,
                                     impl.shape, impl.strides, 0));
}

namespace {

Tensor filled(const char* op, const Shape& shape, Scalar value, TensorOptions options) {
  check_fits(op, "value", value, options.dtype);
  Tensor result = empty(shape, options);
  primitives::fill(result, value);
  return result;
}

}  // namespace

Tensor full(const Shape& shape, Scalar value, TensorOptions options) { return filled("full", shape, value, options); }

Tensor zeros(const Shape& shape, TensorOptions options) { return full(shape, 0, options); }
Tensor ones(const Shape& shape, TensorOptions options) { return full(shape, 1, options); }

Tensor empty_like(const Tensor& tensor) { return empty(tensor.shape(), tensor.options()); }
Tensor zeros_like(const Tensor& tensor) { return zeros(tensor.shape(), tensor.options()); }
Tensor ones_like(const Tensor& tensor) { return ones(tensor.shape(), tensor.options()); }

Tensor arange(int64_t begin, int64_t end, int64_t step, Device device) {
  TANDEM_CHECK(ValueError, step != 0, "arange: step is 0");
  TANDEM_CHECK(ValueError, step > 0 ? begin <= end : begin >= end, "arange: end ", end,
               " cannot be reached from begin ", begin, " with step ", step);
  // uint64_t represents the distance between any two int64_t.
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(end) - static_cast<uint64_t>(begin)
                                     : static_cast<uint64_t>(begin) - static_cast<uint64_t>(end);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : -static_cast<uint64_t>(step);
  const uint64_t count = distance / stride + (distance % stride != 0);
  TANDEM_CHECK(ShapeError, count <= static_cast<uint64_t>(INT64_MAX / 8), "arange: ", count,
               " elements do not fit in memory");
  const Tensor result = empty({static_cast<int64_t>(count)}, {kInt64, device});
  if (!device.is_cpu()) {
    cuda::fill_range(result, begin, step);
    return result;
  }
  int64_t* out = result.data<int64_t>();
  uint64_t value = static_cast<uint64_t>(begin);
  for (uint64_t i = 0; i < count; ++i, value += static_cast<uint64_t>(step)) out[i] = static_cast<int64_t>(value);
  return result;
}

Tensor tensor(std::initializer_list<double> values) { return from_values<float>(values); }
Tensor tensor(std::initializer_list<float> values) { return from_values<float>(values); }
Tensor tensor(std::initializer_list<int> values) { return from_values<int64_t>(values); }
Tensor tensor(std::initializer_list<int64_t> values) { return from_values<int64_t>(values); }
Tensor tensor(std::initializer_list<bool> values) { return from_values<bool>(values); }

Tensor scalar_tensor(Scalar value, TensorOptions options) { return filled("scalar_tensor", {}, value, options); }

template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape, TensorOptions options) {
  check_requires_grad(options);
  TANDEM_CHECK(ShapeError, num_elements(shape) == static_cast<int64_t>(values.size()), "from_vector: ", values.size(),
               " values do not fill shape ", shape);
  const Tensor source = from_values<T>(values);
  Tensor result = empty(shape, options);
  primitives::copy(make_view(source.storage(), source.dtype(), shape, row_major_strides(shape), 0), result);
  return result;
}

template TANDEM_API Tensor from_vector(const std::vector<bool>&, const Shape&, TensorOptions);
template TANDEM_API Tensor from_vector(const std::vector<uint8_t>&, const Shape&, TensorOptions);
template TANDEM_API Tensor from_vector(const std::vector<int32_t>&, const Shape&, TensorOptions);
template TANDEM_API Tensor from_vector(const std::vector<int64_t>&, const Shape&, TensorOptions);
template TANDEM_API Tensor from_vector(const std::vector<Half>&, const Shape&, TensorOptions);
template TANDEM_API Tensor from_vector(const std::vector<BFloat16>&, const Shape&, TensorOptions);
template TANDEM_API Tensor from_vector(const std::vector<float>&, const Shape&, TensorOptions);
template TANDEM_API Tensor from_vector(const std::vector<double>&, const Shape&, TensorOptions);

}}  // namespace tandem::v0
