#include <tandem/tests/support/ops.h>

namespace tandem { namespace {

using Inputs = std::vector<Tensor>;

Tensor leaf_of(std::vector<double> values) {
  const auto n = static_cast<int64_t>(values.size());
  return from_vector(values, {n}).requires_grad_();
}

/// y = x^2 whose backward multiplies by `wrong` instead of 2.
struct SquareNode final : autograd::Node {
  autograd::SavedTensor input{*this, "input"};
  double wrong = 2;
  TensorList backward(autograd::BackwardContext& context) override {
    return {mul(mul(context.grad(), input.get()), Scalar(wrong))};
  }
};

Tensor square(const Tensor& x, double factor) {
  Tensor y;
  {
    NoGradGuard no_grad;
    y = mul(x, x);
  }
  if (auto* node = autograd::record<SquareNode>("square", y, x)) {
    node->input.save(x);
    node->wrong = factor;
  }
  return y;
}

TEST(Gradcheck, CorrectGradientsAreAccepted) {
  autograd::gradcheck([](const Inputs& in) { return mul(exp(in[0]), in[1]); },
                      {leaf_of({0.3, -1.2}), leaf_of({0.7, 2.1})});
  autograd::gradgradcheck([](const Inputs& in) { return mul(exp(in[0]), in[1]); },
                          {leaf_of({0.3, -1.2}), leaf_of({0.7, 2.1})});
}

TEST(Gradcheck, WrongGradientFactorIsDetected) {
  EXPECT_NO_THROW(tandem::gradcheck([](const Inputs& in) { return square(in[0], 2); }, {leaf_of({0.3, -1.2})}));
  EXPECT_THROW(autograd::gradcheck([](const Inputs& in) { return square(in[0], 2.001); }, {leaf_of({0.3, -1.2})}),
               StateError);
}

TEST(Gradcheck, MissingGradientIsDetected) {
  EXPECT_THROW(autograd::gradcheck([](const Inputs& in) { return mul(in[0].detach(), in[0]); }, {leaf_of({0.3})}),
               StateError);
}

TEST(Gradcheck, NaNGradientIsRejected) {
  EXPECT_THROW(autograd::gradcheck([](const Inputs& in) { return square(in[0], std::nan("")); }, {leaf_of({0.3})}),
               StateError);
}

TEST(Gradcheck, WrongSecondDerivativeIsDetected) {
  // The first derivative is correct, but detached, so its derivative is lost.
  struct HalfNode final : autograd::Node {
    autograd::SavedTensor input{*this, "input"};
    TensorList backward(autograd::BackwardContext& context) override {
      return {mul(mul(context.grad(), input.get().detach()), Scalar(2))};
    }
  };
  const auto f = [](const Inputs& in) {
    Tensor y;
    {
      NoGradGuard no_grad;
      y = mul(in[0], in[0]);
    }
    if (auto* node = autograd::record<HalfNode>("half", y, in[0])) node->input.save(in[0]);
    return y;
  };
  EXPECT_NO_THROW(autograd::gradcheck(f, {leaf_of({0.3})}));
  EXPECT_THROW(autograd::gradgradcheck(f, {leaf_of({0.3})}), StateError);
}

TEST(Gradcheck, WrongGradientUnderCreateGraphIsDetected) {
  // Correct without create_graph; with it wrong, though consistent with its own derivative.
  struct TwoWaysNode final : autograd::Node {
    autograd::SavedTensor input{*this, "input"};
    TensorList backward(autograd::BackwardContext& context) override {
      return {mul(mul(context.grad(), input.get()), Scalar(context.create_graph() ? 3.0 : 2.0))};
    }
  };
  const auto f = [](const Inputs& in) {
    Tensor y;
    {
      NoGradGuard no_grad;
      y = mul(in[0], in[0]);
    }
    if (auto* node = autograd::record<TwoWaysNode>("two_ways", y, in[0])) node->input.save(in[0]);
    return y;
  };
  EXPECT_NO_THROW(autograd::gradcheck(f, {leaf_of({0.5})}));
  try {
    autograd::gradgradcheck(f, {leaf_of({0.5})}, {.seed = 3});
    FAIL() << "nothing was thrown";
  } catch (const StateError& error) {
    EXPECT_EQ(
        std::string(error.what()).rfind("gradgradcheck: input 0, element 0: backward under create_graph gives ", 0), 0u)
        << error.what();
  }
}

TEST(Gradcheck, Float32InputIsRejected) {
  EXPECT_THROW(autograd::gradcheck([](const Inputs& in) { return exp(in[0]); }, {zeros({2}).requires_grad_()}),
               DTypeError);
}

}}  // namespace tandem
