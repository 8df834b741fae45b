// Optimizers whose model is converted to another dtype.

#include <tandem/nn/layers.h>
#include <tandem/optim/adam.h>
#include <tandem/tests/support/ops.h>

namespace tandem { namespace {

using testing::error_text;

/// Makes a step with the gradient of a sum.
void step(nn::Linear& layer, optim::Optimizer& optimizer) {
  optimizer.zero_grad();
  sum(layer(ones({1, 2}, {layer.weight.dtype()}))).backward();
  optimizer.step();
}

TEST(ConvertedModel, StateOfAnotherDtypeIsRejected) {
  nn::Linear layer(2, 2);
  optim::Adam adam(layer.parameters());
  step(layer, adam);
  layer.to(kFloat64);
  EXPECT_ERROR(
      DTypeError, step(layer, adam),
      "Adam: parameter 0 ('weight') is float64, its exp_avg float32; create the optimizer after converting the model");
}

TEST(ConvertedModel, MasterOfAParameterThatBecameFloat32IsRejected) {
  nn::Linear layer(2, 2);
  layer.to(kBFloat16);
  optim::Adam adam(layer.parameters());
  step(layer, adam);
  layer.to(kFloat32);
  EXPECT_ERROR(
      DTypeError, step(layer, adam),
      "Adam: parameter 0 ('weight') is float32, but has a master; create the optimizer after converting the model");
}

TEST(ConvertedModel, ParameterThatBecomesBFloat16GetsAMaster) {
  nn::Linear layer(2, 2);
  optim::Adam adam(layer.parameters(), {.lr = 1e-4});
  step(layer, adam);
  layer.to(kBFloat16);
  step(layer, adam);
  EXPECT_EQ(adam.state_dict().get<Tensor>("state.0.master").dtype(), kFloat32);
}

}}  // namespace tandem
