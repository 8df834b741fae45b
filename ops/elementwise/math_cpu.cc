#include <tandem/ops/elementwise/elementwise_map.h>
#include <tandem/ops/elementwise/math_functions.h>

namespace tandem { inline namespace v0 { namespace cpu {

TANDEM_MATH_FUNCTIONS(TANDEM_UNARY_KERNELS)
TANDEM_STEP_FUNCTIONS(TANDEM_UNARY_KERNELS)
TANDEM_UNARY_KERNEL(rare, RareFunction)
TANDEM_UNARY_KERNELS(pow, PowScalar)
TANDEM_BINARY_KERNELS(pow, Pow)
TANDEM_UNARY_KERNELS(clamp, Clamp)

}}}  // namespace tandem::v0::cpu
