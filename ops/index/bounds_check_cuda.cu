#include <tandem/ops/index/bounds_check_kernels.h>
#include <tandem/tensor/cuda/device_error.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

struct CheckIndex {
  DeviceErrorRecord* record;
  const char* op;
  const char* what;
  int64_t size;
  bool ignores;
  int64_t ignored;
  const int64_t* index;
  __device__ void operator()(int64_t i) const {
    if (ignores && index[i] == ignored) return;
    if (index[i] < 0 || index[i] >= size) report_device_error(record, op, what, index[i], i, size);
  }
};

struct WrapIndex {
  DeviceErrorRecord* record;
  const char* op;
  const char* what;
  int64_t size;
  const int64_t* index;
  int64_t* out;
  __device__ void operator()(int64_t i) const {
    const bool valid = index[i] >= -size && index[i] < size;
    if (!valid) report_device_error(record, op, what, index[i], i, size, -size);
    out[i] = valid ? index[i] + (index[i] < 0 ? size : 0) : 0;
  }
};

}  // namespace

void check_indices(const KernelContext& context, const char* op, const char* what, const Shape& shape, int64_t size,
                   std::optional<int64_t> ignored, const int64_t* index) {
  for_each_index(
      context, num_elements(shape),
      CheckIndex{device_error_record(context.device), op, what, size, ignored.has_value(), ignored.value_or(0), index});
}

void wrap_indices(const KernelContext& context, const char* op, const char* what, const Shape& shape, int64_t size,
                  const int64_t* index, int64_t* out) {
  for_each_index(context, num_elements(shape),
                 WrapIndex{device_error_record(context.device), op, what, size, index, out});
}

}}}  // namespace tandem::v0::cuda
