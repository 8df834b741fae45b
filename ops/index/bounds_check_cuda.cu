#include <tandem/ops/index/bounds_check_kernels.h>
#include <tandem/tensor/cuda/device_error.h>
#include <tandem/tensor/cuda/strided.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

struct CheckIndex {
  DeviceErrorRecord* place;
  const char* op;
  const char* what;
  int64_t size;
  const int64_t* index;
  __device__ void operator()(int64_t i) const {
    if (index[i] < 0 || index[i] >= size) report_device_error(place, op, what, index[i], i, size);
  }
};

}  // namespace

void report_bad_index(const KernelContext& context, const char* op, const char* what, int64_t n, int64_t size,
                      const int64_t* index) {
  for_each_index(context, n, CheckIndex{device_error_record(context.device), op, what, size, index});
}

}}}  // namespace tandem::v0::cuda
