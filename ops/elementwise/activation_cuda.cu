#include <tandem/ops/elementwise/activation_functions.h>
#include <tandem/ops/elementwise/elementwise_map_cuda.h>

namespace tandem { inline namespace v0 { namespace cuda {

TANDEM_ACTIVATION_FUNCTIONS(TANDEM_UNARY_KERNELS)
TANDEM_UNARY_KERNELS(gelu, Gelu)

}}}  // namespace tandem::v0::cuda
