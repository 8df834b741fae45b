#include <tandem/tensor/factories.h>

#include <algorithm>
#include <cmath>
#include <utility>

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

Tensor full_like(const Tensor& tensor, Scalar value) {
  return filled("full_like", tensor.shape(), value, tensor.options());
}

namespace {

/// Throws ValueError unless a range from start to end with this step exists.
template <class T>
void check_range(T start, T end, T step) {
  TANDEM_CHECK(ValueError, step != 0, "arange: step is 0");
  TANDEM_CHECK(ValueError, step > 0 ? start <= end : start >= end, "arange: end ", end,
               " cannot be reached from begin ", start, " with step ", step);
}

template <class T>
int64_t checked_count(T count) {
  TANDEM_CHECK(ShapeError, count <= static_cast<T>(INT64_MAX / 8), "arange: ", count, " elements do not fit in memory");
  return static_cast<int64_t>(count);
}

Tensor integer_range(int64_t begin, int64_t end, int64_t step, Device device) {
  check_range(begin, end, step);
  // uint64_t represents the distance between any two int64_t.
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(end) - static_cast<uint64_t>(begin)
                                     : static_cast<uint64_t>(begin) - static_cast<uint64_t>(end);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : -static_cast<uint64_t>(step);
  const int64_t count = checked_count(distance / stride + (distance % stride != 0));
  const Tensor result = empty({count}, {kInt64, device});
  if (!device.is_cpu()) {
    cuda::fill_range(result, begin, step);
    return result;
  }
  int64_t* out = result.data<int64_t>();
  uint64_t value = static_cast<uint64_t>(begin);
  for (int64_t i = 0; i < count; ++i, value += static_cast<uint64_t>(step)) out[i] = static_cast<int64_t>(value);
  return result;
}

/// Elements [first, last) of a float64 tensor: out[i] = base + (i - origin) * step.
void fill_linear(const Tensor& out, int64_t first, int64_t last, double base, int64_t origin, double step) {
  if (first == last) return;
  const Tensor part = make_view(out.storage(), kFloat64, {last - first}, {1}, first);
  if (!out.device().is_cpu()) return cuda::fill_linear(part, base, first - origin, step);
  double* to = part.data<double>();
  for (int64_t i = first; i < last; ++i) to[i - first] = base + static_cast<double>(i - origin) * step;
}

/// `values` with these options.
Tensor converted(const Tensor& values, TensorOptions options) {
  if (options.dtype == values.dtype() && options.device == values.device() && !options.requires_grad) return values;
  Tensor result = empty(values.shape(), options);
  primitives::copy(values, result);
  return result;
}

bool is_floating(Scalar number) { return number.dtype() == kFloat64; }

}  // namespace

Tensor arange(Scalar start, Scalar end, Scalar step, TensorOptions options) {
  if (!is_floating(start) && !is_floating(end) && !is_floating(step)) {
    return converted(integer_range(start.to_int(), end.to_int(), step.to_int(), options.device), options);
  }
  const double from = start.to_double(), to = end.to_double(), by = step.to_double();
  TANDEM_CHECK(ValueError, std::isfinite(from) && std::isfinite(to) && std::isfinite(by), "arange: start ", from,
               ", end ", to, " and step ", by, " must be finite");
  check_range(from, to, by);
  const Tensor values = empty({checked_count(std::ceil((to - from) / by))}, {kFloat64, options.device});
  fill_linear(values, 0, values.numel(), from, 0, by);
  return converted(values, options);
}

Tensor arange(Scalar start, Scalar end, Scalar step, Device device) {
  const bool floating = is_floating(start) || is_floating(end) || is_floating(step);
  return arange(start, end, step, TensorOptions{floating ? kFloat32 : kInt64, device});
}

Tensor linspace(Scalar start, Scalar end, int64_t steps, TensorOptions options) {
  TANDEM_CHECK(ValueError, steps >= 0, "linspace: steps is ", steps, ", expected at least 0");
  const Tensor values = empty({steps}, {kFloat64, options.device});
  const double from = start.to_double(), to = end.to_double();
  const double step = steps > 1 ? (to - from) / static_cast<double>(steps - 1) : 0;
  const int64_t middle = (steps + 1) / 2;
  fill_linear(values, 0, middle, from, 0, step);
  fill_linear(values, middle, steps, to, steps - 1, step);
  return converted(values, options);
}

Tensor eye(int64_t n, int64_t m, TensorOptions options) {
  Tensor result = zeros({n, m}, options);
  const int64_t size = std::min(n, m);
  if (size > 0) primitives::fill(make_view(result.storage(), result.dtype(), {size}, {m + 1}, 0), 1);
  return result;
}

NestedList::NestedList(std::initializer_list<NestedList> list) : shape{static_cast<int64_t>(list.size())} {
  for (const NestedList& element : list) {
    const Shape& first = list.begin()->shape;
    TANDEM_CHECK(ShapeError, element.shape == first, "tensor: elements of one list have the shapes ", first, " and ",
                 element.shape, "; all must have the same");
    values.insert(values.end(), element.values.begin(), element.values.end());
  }
  if (list.size() == 0) return;
  for (const int64_t size : list.begin()->shape) shape.push_back(size);
}

Tensor tensor(const NestedList& values, TensorOptions options) {
  for (const Scalar value : values.values) check_fits("tensor", "value", value, options.dtype);
  const Tensor host = empty(values.shape, {options.dtype, options.device.is_cpu() ? options.device : Device()});
  visit_dtype(options.dtype, [&]<class T>() {
    std::transform(values.values.begin(), values.values.end(), host.data<T>(), [](Scalar v) { return v.to<T>(); });
  });
  return converted(host, options);
}

Tensor tensor(const NestedList& values) {
  DType dtype = values.values.empty() ? kFloat32 : kBool;
  for (const Scalar value : values.values) {
    if (value.dtype() == kFloat64) dtype = kFloat32;
    if (value.dtype() == kInt64 && dtype == kBool) dtype = kInt64;
  }
  return tensor(values, {dtype});
}

Tensor from_blob(void* data, const Shape& shape, std::function<void(void*)> deleter, TensorOptions options) {
  check_requires_grad(options);
  TANDEM_CHECK(DeviceError, options.device.is_cpu(), "from_blob: device is ", options.device,
               ", expected a CPU device");
  const int64_t num_bytes = num_elements(shape) * size_of(options.dtype);
  std::function<void()> release;
  if (deleter) release = [data, deleter = std::move(deleter)] { deleter(data); };
  Tensor result(make_ref<TensorImpl>(Storage::adopt(options.device, data, num_bytes, std::move(release)), options.dtype,
                                     shape, row_major_strides(shape), 0));
  result.impl().requires_grad = options.requires_grad;
  return result;
}

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

// clang rejects [[gnu::visibility]] (TANDEM_API) in explicit instantiations.
#define TANDEM_FROM_VECTOR(name, type, text)                                                                 \
  template __attribute__((visibility("default"))) Tensor from_vector(const std::vector<type>&, const Shape&, \
                                                                     TensorOptions);
TANDEM_DTYPES(TANDEM_FROM_VECTOR)

}}  // namespace tandem::v0
