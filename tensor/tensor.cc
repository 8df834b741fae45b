#include <tandem/tensor/tensor.h>

#include <algorithm>
#include <ostream>

#include <tandem/base/host_memory.h>
#include <tandem/base/math.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 {

namespace {

/// A CPU tensor on memory of the caller.
template <class T>
Tensor borrow(T* data, const Shape& shape, int64_t count) {
  const RefPtr<Storage> storage = Storage::adopt(Device(), data, count * static_cast<int64_t>(sizeof(T)), {});
  return Tensor(make_ref<TensorImpl>(storage, dtype_of<T>(), shape, row_major_strides(shape), 0));
}

}  // namespace

TensorImpl::TensorImpl(RefPtr<Storage> memory, DType type, const Shape& sizes, const Shape& steps, int64_t start)
    : storage(std::move(memory)), dtype(type), offset(start), shape(sizes), strides(steps) {
  int64_t count = 1;
  bool row_major = true;
  for (size_t i = shape.size(); i-- > 0;) {
    row_major &= shape[i] == 1 || strides[i] == count;
    count *= shape[i];
  }
  num_elements = count;
  is_row_major = row_major || count == 0;
}

void Tensor::throw_undefined() { throw StateError(with_module_scope("an undefined tensor was used")); }

int64_t Tensor::size(int64_t d) const {
  const int64_t wrapped = wrap_dim("size", d, dim());
  TANDEM_CHECK(IndexError, dim() > 0, "size: dimension ", d, " of a tensor without dimensions");
  return shape()[static_cast<size_t>(wrapped)];
}

template <class T>
T Tensor::item() const {
  TANDEM_CHECK(ShapeError, numel() == 1, "item: expected a tensor with one element, got ", describe(*this));
  T value;
  if (dtype() == dtype_of<T>() && device().is_cpu()) {
    value = *data<T>();
  } else {
    primitives::copy(Tensor(make_ref<TensorImpl>(storage(), dtype(), Shape(), Shape(), impl().offset)),
                     borrow(&value, Shape(), 1));
  }
  return value;
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const size_t count = static_cast<size_t>(numel());
  const int64_t num_bytes = saturating_mul(numel(), sizeof(T));
  if constexpr (std::is_same_v<T, bool>) {  // std::vector<bool> has no contiguous elements
    const auto values = with_host_memory("to_vector", num_bytes, [&] { return std::make_unique<bool[]>(count); });
    primitives::copy(*this, borrow(values.get(), shape(), numel()));
    return std::vector<bool>(values.get(), values.get() + count);
  } else {
    std::vector<T> values = with_host_memory("to_vector", num_bytes, [&] { return std::vector<T>(count); });
    primitives::copy(*this, borrow(values.data(), shape(), numel()));
    return values;
  }
}

// clang rejects [[gnu::visibility]] (TANDEM_API) in explicit instantiations.
#define TANDEM_INSTANTIATE(name, type, text)                                       \
  template __attribute__((visibility("default"))) type Tensor::item<type>() const; \
  template __attribute__((visibility("default"))) std::vector<type> Tensor::to_vector<type>() const;
TANDEM_DTYPES(TANDEM_INSTANTIATE)
#undef TANDEM_INSTANTIATE

Tensor make_view(const RefPtr<Storage>& storage, DType dtype, const Shape& shape, const Shape& strides,
                 int64_t offset) {
  TANDEM_CHECK(StateError, storage, "make_view: storage is null");
  TANDEM_CHECK(ShapeError, shape.size() == strides.size(), "make_view: shape ", shape, " and strides ", strides,
               " have different lengths");
  const int64_t count = num_elements(shape);
  int64_t last = offset;  // largest element index
  bool fits = offset >= 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t extent = 0;
    fits = fits && strides[i] >= 0 &&
           !__builtin_mul_overflow(std::max<int64_t>(shape[i] - 1, 0), strides[i], &extent) &&
           !__builtin_add_overflow(last, extent, &last);
  }
  const int64_t capacity = storage->num_bytes() / size_of(dtype);
  TANDEM_CHECK(IndexError, fits && (count == 0 ? offset <= capacity : last < capacity), "make_view: ", dtype, " ",
               shape, " with strides ", strides, " from element ", offset, " is outside of a storage of ",
               storage->num_bytes(), " bytes");
  return Tensor(make_ref<TensorImpl>(storage, dtype, shape, strides, offset));
}

void take_memory(const Tensor& tensor, const Tensor& value) {
  TensorImpl& impl = tensor.impl();
  impl.storage = value.storage();
  impl.dtype = value.dtype();
  impl.offset = 0;
  impl.shape = value.shape();
  impl.strides = value.strides();
  impl.num_elements = value.numel();
  impl.is_row_major = true;
  impl.is_view = false;
  impl.history_version = impl.storage->version();
}

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return str(tensor.dtype(), " ", tensor.shape(), " on ", tensor.device());
}

}}  // namespace tandem::v0
