#include <tandem/ops/elementwise/elementwise_map_cuda.h>
#include <tandem/ops/elementwise/pair_functions.h>

namespace tandem { inline namespace v0 { namespace cuda {

TANDEM_PAIR_KERNELS(TANDEM_BINARY_KERNELS)
TANDEM_TRIPLE_KERNELS(TANDEM_TERNARY_KERNELS)

}}}  // namespace tandem::v0::cuda
