#include <tandem/ops/elementwise/elementwise_map_cuda.h>
#include <tandem/ops/loss/loss_functions.h>

namespace tandem { inline namespace v0 { namespace cuda {

TANDEM_LOSS_KERNELS(TANDEM_UNARY_KERNELS, TANDEM_BINARY_KERNELS)

}}}  // namespace tandem::v0::cuda
