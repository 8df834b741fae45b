#include <tandem/ops/elementwise/elementwise_map.h>
#include <tandem/ops/elementwise/pair_functions.h>

namespace tandem { inline namespace v0 { namespace cpu {

TANDEM_PAIR_KERNELS(TANDEM_BINARY_KERNELS)
TANDEM_TRIPLE_KERNELS(TANDEM_TERNARY_KERNELS)

}}}  // namespace tandem::v0::cpu
