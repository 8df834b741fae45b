#include <tandem/ops/index/bounds_check.h>

#include <tandem/ops/index/bounds_check_kernels.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace ops {

namespace {

/// "3" of one dimension, "[1, 0, 2]" of several: where element i of a row-major tensor of `shape` lies.
std::string position_text(const Shape& shape, int64_t i) {
  Shape position = shape;
  for (size_t d = shape.size(); d-- > 0;) {
    position[d] = i % shape[d];
    i /= shape[d];
  }
  return shape.size() == 1 ? str(position[0]) : str(position);
}

}  // namespace

void check_index_range(const char* op, const char* what, const KernelContext& context, const Tensor& index,
                       int64_t size) {
  const int64_t n = index.num_elements();
  const int64_t* values = index.data<int64_t>();
#ifdef TANDEM_WITH_CUDA
  if (!context.device.is_cpu()) {
    if (size > 0) return cuda::report_bad_index(context, op, what, n, size, values);
    // Not even 0 is there for kernels to take.
    const Tensor here = empty(index.shape(), {kInt64});
    primitives::copy(index, here);
    return check_index_range(op, what, CpuContext(Device()), here, size);
  }
#endif
  const CpuContext checked(context);
  for (int64_t i = 0; i < n; ++i) {
    TANDEM_CHECK(IndexError, values[i] >= 0 && values[i] < size, op, ": ", what, " ", values[i], " at position ",
                 position_text(index.shape(), i), " is outside [0, ", size, ")");
  }
}

}}}  // namespace tandem::v0::ops
