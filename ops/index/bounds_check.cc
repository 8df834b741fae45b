#include <tandem/ops/index/bounds_check.h>

#include <tandem/ops/index/bounds_check_kernels.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace ops {

namespace {

/// GPU kernels continue with index 0 after an invalid one. If the size is 0, it does not exist: throws here.
void check_empty_range(const char* op, const char* what, const KernelContext& context, const Tensor& index,
                       int64_t size, std::optional<int64_t> ignored = {}) {
  if (context.device.is_cpu() || size > 0) return;
  const Tensor host_index = empty(index.shape(), {kInt64});
  primitives::copy(index, host_index);
  cpu::check_indices(kernel_context(Device()), op, what, index.shape(), size, ignored, host_index.data<int64_t>());
}

}  // namespace

void check_index_bounds(const char* op, const char* what, const KernelContext& context, const Tensor& index,
                        int64_t size, std::optional<int64_t> ignored) {
  check_empty_range(op, what, context, index, size, ignored);
  TANDEM_KERNEL(context, check_indices, op, what, index.shape(), size, ignored, index.data<int64_t>());
}

Tensor wrap_index(const char* op, const char* what, const KernelContext& context, const Tensor& index, int64_t size) {
  check_empty_range(op, what, context, index, size);
  Tensor out = empty_like(index);
  TANDEM_KERNEL(context, wrap_indices, op, what, index.shape(), size, index.data<int64_t>(), out.data<int64_t>());
  return out;
}

}}}  // namespace tandem::v0::ops
