#include <tandem/nn/layers.h>
#include <tandem/tests/support/ops.h>

namespace tandem { namespace {

using testing::error_text;

Tensor two(double a, double b) { return from_vector<double>({a, b}, {2}).requires_grad_(); }

struct LogLayer : nn::Layer {
  Tensor forward(const Tensor& x) override { return log(x); }
};
struct Net : nn::Layer {
  LogLayer& logarithm = add<LogLayer>("logarithm");
  Tensor forward(const Tensor& x) override { return logarithm(x); }
};

TEST(DetectAnomaly, ForwardNamesOperationModuleAndLine) {
  const Tensor x = two(1, -1);
  Net net;
  const DetectAnomalyGuard guard;
  EXPECT_ERROR(ValueError, net(x),
               "log: the result (float64 [2] on cpu) contains NaN; log was called at anomaly_test.cc:11 in "
               "tandem::(anonymous namespace)::LogLayer::forward\n  in LogLayer 'logarithm'");
}

TEST(DetectAnomaly, BackwardNamesTheOperationAndTheLineOfItsCall) {
  const Tensor x = two(0, 1);
  const DetectAnomalyGuard guard;
  const Tensor root = sqrt(x);  // derivative inf at 0
  const Tensor y = mul(root, Scalar(0));
  EXPECT_EQ(error_text<ValueError>([&] { sum(y).backward(); }).substr(0, 128),
            "sqrt: backward returned for input 0 a gradient (float64 [2] on cpu) that contains NaN; sqrt was called at "
            "anomaly_test.cc:30 in ");
}

TEST(DetectAnomaly, OperationRecordedOutsideOfTheGuardIsNamed) {
  const Tensor x = two(0, 1);
  const Tensor y = sum(mul(sqrt(x), Scalar(0)));
  const DetectAnomalyGuard guard;
  EXPECT_ERROR(ValueError, y.backward(),
               "sqrt: backward returned for input 0 a gradient (float64 [2] on cpu) that contains NaN; call sqrt under "
               "DetectAnomalyGuard to see where");
}

TEST(DetectAnomaly, OwnFunctionIsNamed) {
  struct BadGradient : autograd::Function<BadGradient> {
    Tensor forward(const Tensor& x) { return mul(x, 2); }
    TensorList backward(const TensorList& grads) override { return {mul(grads[0], std::nan(""))}; }
  };
  const Tensor x = two(0, 1);
  const DetectAnomalyGuard guard;
  const Tensor y = BadGradient::apply(x);
  EXPECT_EQ(
      error_text<ValueError>([&] { sum(y).backward(); }).substr(0, 116),
      "BadGradient: backward returned for input 0 a gradient (float64 [2] on cpu) that contains NaN; BadGradient was "
      "called");
}

TEST(DetectAnomaly, GivenGradientWithNaNIsRejected) {
  const Tensor y = mul(two(1, 2), 2);
  const DetectAnomalyGuard guard;
  EXPECT_ERROR(ValueError, y.backward(full({2}, std::nan(""), {kFloat64})),
               "backward: the gradient (float64 [2] on cpu) contains NaN");
}

TEST(DetectAnomaly, InfinityIsAcceptedAndHalfNanIsRejected) {
  const Tensor x = full({2}, 1, {kBFloat16}).requires_grad_();
  const DetectAnomalyGuard guard;
  EXPECT_NO_THROW(mul(x, Scalar(std::numeric_limits<double>::infinity())));
  EXPECT_THROW(mul(x, Scalar(std::nan(""))), ValueError);
}

TEST(DetectAnomaly, GuardsNestAndEnd) {
  const Tensor x = two(1, -1);
  {
    const DetectAnomalyGuard guard;
    {
      const DetectAnomalyGuard off(false);
      EXPECT_NO_THROW(log(x));
    }
    EXPECT_THROW(log(x), ValueError);
    EXPECT_THROW(log(x), ValueError);  // also after an error
  }
  const Tensor y = log(x);
  EXPECT_NO_THROW(sum(y).backward());
}

}}  // namespace tandem
