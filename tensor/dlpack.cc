#include <tandem/tensor/dlpack.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include <tandem/base/math.h>
#include <tandem/tensor/cuda.h>

// DLPack's binary interface (https://dmlc.github.io/dlpack/latest/c_api.html), in which DLDevice and DLDataType are
// structures of their own.
struct DLTensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t dtype_code;
  uint8_t dtype_bits;
  uint16_t dtype_lanes;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
struct DLManagedTensorVersioned {
  uint32_t major_version;
  uint32_t minor_version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};
static_assert(sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64 && sizeof(DLManagedTensorVersioned) == 80);

namespace tandem { inline namespace v0 {

namespace {

constexpr uint32_t kMajorVersion = 1;
constexpr uint64_t kReadOnly = 1;  // a bit of `flags`
enum : int32_t { kDlCpu = 1, kDlCuda = 2, kDlCudaHost = 3 };
constexpr std::array<const char*, 7> kCodeNames = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};

constexpr uint8_t code_of(DType dtype) {
  return dtype == kBool ? 6 : dtype == kUInt8 ? 1 : dtype == kBFloat16 ? 4 : is_floating_point(dtype) ? 2 : 0;
}

DType imported_dtype(const DLTensor& source) {
  for (int i = 0; i <= static_cast<int>(kFloat64); ++i) {
    const auto dtype = static_cast<DType>(i);
    if (code_of(dtype) == source.dtype_code && size_of(dtype) * 8 == source.dtype_bits && source.dtype_lanes == 1)
      return dtype;
  }
  const std::string name = source.dtype_code < kCodeNames.size() ? kCodeNames[source.dtype_code]
                                                                 : str("code ", +source.dtype_code, " of bits ");
  throw DTypeError(str("from_dlpack: tandem does not support the dtype ", name, +source.dtype_bits,
                       source.dtype_lanes == 1 ? "" : str(" with ", source.dtype_lanes, " lanes"),
                       "; convert it before the export"));
}

Device imported_device(const DLTensor& source) {
  if (source.device_type == kDlCpu || source.device_type == kDlCudaHost) return {};
  TANDEM_CHECK(DeviceError, source.device_type == kDlCuda, "from_dlpack: device type ", source.device_type,
               " is not CPU (1), CUDA (2) or CUDA's host memory (3); copy the tensor to the CPU before the export");
  const Device device = Device::cuda(source.device_id);
  cuda::check_device(device);
  return device;
}

template <class Managed>
Tensor import_tensor(Managed* managed) {
  const DLTensor& source = managed->dl_tensor;
  const DType dtype = imported_dtype(source);
  const Device device = imported_device(source);
  TANDEM_CHECK(ShapeError, source.ndim == 0 || (source.ndim > 0 && source.shape != nullptr), "from_dlpack: ndim is ",
               source.ndim, source.shape == nullptr ? ", and the shape is null" : "");
  const Shape shape(source.shape, source.shape + source.ndim);
  const int64_t count = num_elements(shape);
  Shape strides = row_major_strides(shape);
  int64_t last = 0;  // largest element index
  for (size_t d = 0; count > 0 && d < shape.size(); ++d) {
    // Libraries export any stride for a dimension of size 1.
    if (source.strides != nullptr && shape[d] > 1) strides[d] = source.strides[d];
    TANDEM_CHECK(ValueError, strides[d] >= 0, "from_dlpack: dimension ", d, " has the negative stride ", strides[d],
                 ", which tandem does not support; export a contiguous copy");
    last = saturating_add(last, saturating_mul(shape[d] - 1, strides[d]));
  }
  const int64_t num_bytes = count == 0 ? 0 : saturating_mul(saturating_add(last, 1), size_of(dtype));
  TANDEM_CHECK(ValueError, num_bytes < INT64_MAX, "from_dlpack: shape ", shape, " with strides ", strides,
               " exceeds the address space");
  const uintptr_t address = reinterpret_cast<uintptr_t>(source.data) + source.byte_offset;
  const bool is_aligned = address % static_cast<size_t>(size_of(dtype)) == 0;
  TANDEM_CHECK(ValueError, count == 0 || (source.data != nullptr && is_aligned), "from_dlpack: the data is ",
               source.data == nullptr ? "null" : str("not aligned to ", dtype, "; export a copy"));

  const auto owned = std::make_shared<Managed*>();  // null until nothing can throw: before, the caller owns it
  const auto release = [owned] {
    if (*owned != nullptr && (*owned)->deleter != nullptr) (*owned)->deleter(*owned);
  };
  Tensor result =
      make_view(Storage::adopt(device, reinterpret_cast<void*>(address), num_bytes, release), dtype, shape, strides, 0);
  *owned = managed;
  return result;
}

template <class Managed>
Managed* export_tensor(const char* op, const Tensor& tensor) {
  TANDEM_CHECK(StateError, !tensor.requires_grad(), op,
               ": the tensor requires grad, and other libraries do not record; export x.detach()");
  struct Export {
    Managed managed = {};
    Tensor tensor;  // an object of its own, to which no other handle refers: `managed` has pointers to its shape
  };
  // Strides of dimensions of size 1 are set, because consumers compare them with row-major ones.
  const Shape strides = tensor.is_contiguous() ? row_major_strides(tensor.shape()) : tensor.strides();
  auto result = std::make_unique<Export>();
  result->tensor = make_view(tensor.storage(), tensor.dtype(), tensor.shape(), strides, tensor.impl().offset);
  TensorImpl& impl = result->tensor.impl();
  Managed& managed = result->managed;
  // The offset is added to the pointer, because not all consumers read byte_offset.
  managed.dl_tensor = {.data = impl.num_elements == 0 ? nullptr : tensor.data_ptr(),
                       .device_type = tensor.device().is_cpu() ? kDlCpu : kDlCuda,
                       .device_id = tensor.device().is_cpu() ? 0 : tensor.device().index,
                       .ndim = static_cast<int32_t>(tensor.dim()),
                       .dtype_code = code_of(tensor.dtype()),
                       .dtype_bits = static_cast<uint8_t>(size_of(tensor.dtype()) * 8),
                       .dtype_lanes = 1,
                       .shape = impl.shape.data(),
                       .strides = impl.strides.data(),
                       .byte_offset = 0};
  if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) managed.major_version = kMajorVersion;
  managed.manager_ctx = result.get();
  managed.deleter = [](Managed* self) { delete static_cast<Export*>(self->manager_ctx); };
  return &result.release()->managed;
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& tensor) {
  return export_tensor<DLManagedTensorVersioned>("to_dlpack", tensor);
}

DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor) {
  return export_tensor<DLManagedTensor>("to_dlpack_unversioned", tensor);
}

Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  TANDEM_CHECK(ValueError, managed != nullptr, "from_dlpack: the argument is null");
  TANDEM_CHECK(ValueError, managed->major_version == kMajorVersion, "from_dlpack: DLPack version ",
               managed->major_version, ".", managed->minor_version, ", expected 1.x; ask the producer for version 1.0");
  TANDEM_CHECK(ValueError, (managed->flags & kReadOnly) == 0,
               "from_dlpack: the memory is read-only, tandem's tensors are writable; export a copy");
  return import_tensor(managed);
}

Tensor from_dlpack(DLManagedTensor* managed) {
  TANDEM_CHECK(ValueError, managed != nullptr, "from_dlpack: the argument is null");
  return import_tensor(managed);
}

}}  // namespace tandem::v0
