#include <tandem/ops/elementwise/activation_functions.h>
#include <tandem/ops/elementwise/elementwise_map.h>

namespace tandem { inline namespace v0 { namespace cpu {

TANDEM_ACTIVATION_FUNCTIONS(TANDEM_UNARY_KERNELS)
TANDEM_UNARY_KERNELS(gelu, Gelu)
TANDEM_UNARY_KERNELS(leaky_relu, LeakyRelu)
TANDEM_UNARY_KERNELS(elu, Elu)
TANDEM_UNARY_KERNELS(softplus, Softplus)

}}}  // namespace tandem::v0::cpu
