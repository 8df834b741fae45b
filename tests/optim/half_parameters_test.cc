// float16 and bfloat16 parameters, whose float32 masters the optimizers keep.

#include <tandem/optim/clip_grad.h>
#include <tandem/optim/grad_scaler.h>
#include <tandem/tests/optim/gradients.h>
#include <tandem/tests/optim/optimizers.h>

namespace tandem::testing { namespace {

template <class Cases>
struct HalfParameters : ::testing::Test {};
TYPED_TEST_SUITE(HalfParameters, AllOptimizers, OptimizerName);

/// sin(i + phase), rounded to dtype.
Tensor waves(int64_t n, int phase, DType dtype) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(std::sin(static_cast<float>(i % 500) + static_cast<float>(phase)));
  const Tensor result = empty({n}, {dtype, test_device()});
  primitives::copy(from_vector<float>(values, {n}, {kFloat32, test_device()}), result);
  return result;
}

/// The values rounded to dtype.
std::vector<float> rounded(const Tensor& tensor, DType dtype) {
  const Tensor result = empty(tensor.shape(), {dtype, tensor.device()});
  primitives::copy(tensor.detach(), result);
  return result.to_vector<float>();
}

/// A 16-bit parameter and a float32 parameter with the same values, each with an optimizer of the same options.
template <class Cases>
struct Pair {
  Pair(int64_t n, DType dtype, const typename Cases::Options& options)
      : half(waves(n, 0, dtype)), wide(empty({n}, {kFloat32, test_device()})) {
    primitives::copy(half, wide);
    half.requires_grad_();
    wide.requires_grad_();
    optimizer.emplace(std::vector<Tensor>{half}, options);
    reference.emplace(std::vector<Tensor>{wide}, options);
  }

  /// Takes a step of both with the same gradients.
  void step(int phase) {
    const Tensor gradient = waves(half.numel(), phase, half.dtype());
    set_gradient(half, gradient);
    set_gradient(wide, gradient);
    optimizer->step();
    reference->step();
  }

  void expect_equal(const std::string& what) const {
    EXPECT_EQ(half.to_vector<float>(), rounded(wide, half.dtype())) << what;
    EXPECT_EQ(optimizer->state_dict().template get<Tensor>("state.0.master").template to_vector<float>(),
              wide.to_vector<float>())
        << what;
  }

  Tensor half, wide;
  std::optional<typename Cases::Optimizer> optimizer, reference;
};

constexpr DType kHalfTypes[] = {kFloat16, kBFloat16};

TYPED_TEST(HalfParameters, AreTheRoundedParametersOfAFloat32Optimizer) {
  for (const DType dtype : kHalfTypes) {
    for (const auto& options : TypeParam::options()) {
      for (const int64_t n : {1, 1023, 33000}) {
        Pair<TypeParam> pair(n, dtype, options);
        for (int phase = 1; phase < 5; ++phase) pair.step(phase);
        pair.expect_equal(str(dtype, " ", n));
      }
    }
  }
}

TYPED_TEST(HalfParameters, SmallUpdatesAccumulateInTheMaster) {
  for (const DType dtype : kHalfTypes) {
    typename TypeParam::Options options;
    options.lr = 1e-5;
    Pair<TypeParam> pair(40, dtype, options);
    for (int step = 0; step < 40; ++step) pair.step(1);
    pair.expect_equal(str(dtype));
    EXPECT_NE(pair.wide.template to_vector<float>(), waves(40, 0, dtype).to_vector<float>());
  }
}

TYPED_TEST(HalfParameters, ValuesSetByOthersReplaceTheMaster) {
  for (const DType dtype : kHalfTypes) {
    Pair<TypeParam> pair(40, dtype, TypeParam::options().back());
    pair.step(1);
    const Tensor others = waves(40, 9, dtype);
    primitives::copy(others, pair.half.detach());
    primitives::copy(others, pair.wide.detach());
    pair.step(2);
    pair.expect_equal(str(dtype));
  }
}

TYPED_TEST(HalfParameters, LoadedStateContinuesWithTheSameBits) {
  for (const DType dtype : kHalfTypes) {
    Pair<TypeParam> pair(40, dtype, TypeParam::options().back());
    for (int phase = 1; phase < 4; ++phase) pair.step(phase);
    Pair<TypeParam> resumed(40, dtype, {});
    primitives::copy(pair.half.detach(), resumed.half.detach());
    resumed.optimizer->load_state_dict(pair.optimizer->state_dict());
    for (int phase = 4; phase < 6; ++phase) {
      pair.step(phase);
      set_gradient(resumed.half, waves(40, phase, dtype));
      resumed.optimizer->step();
    }
    EXPECT_EQ(resumed.half.template to_vector<float>(), pair.half.template to_vector<float>());
    EXPECT_EQ(resumed.optimizer->state_dict().template get<Tensor>("state.0.master").template to_vector<float>(),
              pair.wide.template to_vector<float>());
  }
}

TYPED_TEST(HalfParameters, StateIsFloat32) {
  Pair<TypeParam> pair(3, kBFloat16, TypeParam::options().back());
  pair.step(1);
  State state = pair.optimizer->state_dict();
  for (const auto& [path, tensor] : state.tensors()) EXPECT_EQ(tensor.dtype(), kFloat32) << path;
  state.set("state.0.master", zeros({3}, {kBFloat16}));
  EXPECT_NE(error_text<StateError>([&] {
              pair.optimizer->load_state_dict(state);
            }).find("\n  different   state.0.master: float32 [3] expected, bfloat16 [3] in the state"),
            std::string::npos);
}

TYPED_TEST(HalfParameters, GradScalerRejectsFloat16AndClippingWorksInFloat32) {
  for (const DType dtype : kHalfTypes) {
    Pair<TypeParam> pair(40, dtype, TypeParam::options().back());
    optim::GradScaler scaler({.init_scale = 4});
    set_gradient(pair.half, waves(40, 1, dtype));
    set_gradient(pair.wide, waves(40, 1, dtype));
    const double norm = optim::clip_grad_norm_({pair.half}, 2).template item<double>();
    EXPECT_EQ(norm, optim::clip_grad_norm_({pair.wide}, 2).template item<double>());
    EXPECT_EQ(pair.half.grad().template to_vector<float>(), rounded(pair.wide.grad(), dtype));
    set_gradient(pair.wide, pair.half.grad());
    if (dtype == kFloat16) {
      const auto before = pair.half.grad().template to_vector<float>();
      EXPECT_ERROR(DTypeError, scaler.step(*pair.optimizer),
                   "GradScaler: the gradient of parameter 0 is float16, in which unscaled gradients underflow; keep "
                   "parameters in float32 and use Autocast");
      EXPECT_EQ(pair.half.grad().template to_vector<float>(), before);
      continue;
    }
    scaler.unscale_(*pair.optimizer);
    EXPECT_EQ(pair.half.grad().template to_vector<float>()[7], 0.25f * pair.wide.grad().template to_vector<float>()[7]);
    EXPECT_TRUE(scaler.step(*pair.optimizer));
    scaler.update();
    const auto before = pair.half.template to_vector<float>();
    set_gradient(pair.half, full({40}, std::numeric_limits<double>::infinity()));
    EXPECT_FALSE(scaler.step(*pair.optimizer));
    EXPECT_EQ(pair.half.template to_vector<float>(), before);
  }
}

}}  // namespace tandem::testing
