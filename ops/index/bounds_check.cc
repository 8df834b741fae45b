#include <tandem/ops/index/bounds_check.h>

#include <tandem/ops/index/bounds_check_kernels.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace ops {

void check_index_bounds(const char* op, const char* what, const KernelContext& context, const Tensor& index,
                        int64_t size, std::optional<int64_t> ignored) {
  if (context.device.is_cpu() || size > 0) {
    TANDEM_KERNEL(context, check_indices, op, what, index.shape(), size, ignored, index.data<int64_t>());
    return;
  }
  // GPU kernels continue with index 0 after an invalid one, which does not exist here: check on the host.
  const Tensor host_index = empty(index.shape(), {kInt64});
  primitives::copy(index, host_index);
  cpu::check_indices(kernel_context(Device()), op, what, index.shape(), size, ignored, host_index.data<int64_t>());
}

}}}  // namespace tandem::v0::ops
