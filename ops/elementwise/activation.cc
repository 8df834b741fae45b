#include <tandem/ops/activation.h>

#include <tandem/ops/elementwise/activation_functions.h>
#include <tandem/ops/elementwise/elementwise_op.h>

namespace tandem { inline namespace v0 {

TANDEM_ACTIVATION_FUNCTIONS(TANDEM_DEFINE_UNARY)

Tensor gelu(Tensor input, GeluApproximation approximation) {
  return ops::unary(functions::Gelu{{}, approximation}, std::move(input));
}

Tensor Tensor::tanh() const { return tandem::tanh(*this); }
Tensor Tensor::sigmoid() const { return tandem::sigmoid(*this); }

}}  // namespace tandem::v0
