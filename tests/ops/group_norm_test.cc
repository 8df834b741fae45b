// group_norm, instance_norm and rms_norm.
#include <tandem/ops/common/common.h>
#include <tandem/tests/ops/norm_reference.h>

namespace tandem::testing { namespace {

using namespace norm;

/// Random values on the device under test.
Tensor random_here(const Shape& shape, uint64_t seed, DType dtype = kFloat32) {
  return make_tensor(random_dense(shape, seed), dtype, Layout::kContiguous, test_device());
}

Tensor values_here(const std::vector<double>& values, const Shape& shape, DType dtype = kFloat32) {
  return from_vector<double>(values, shape, {dtype, test_device()});
}

TEST(GroupNorm, ResultAndGradientKeepMemoryOrder) {
  for (const bool channels_last : {false, true}) {
    for (const int64_t groups : {1, 2, 6}) {
      const Tensor plain = random_here({2, 6, 4, 5}, 1);
      const Tensor x = (channels_last ? ops::channels_last(plain) : plain).detach().requires_grad_();
      const Tensor y = group_norm(x, groups);
      EXPECT_EQ(ops::is_channels_last(y), channels_last);
      EXPECT_EQ(y.is_contiguous(), !channels_last);
      const Tensor gradient = grad({y}, {x}, {random_here(y.shape(), 2)})[0];
      EXPECT_EQ(ops::is_channels_last(gradient), channels_last);
      EXPECT_EQ(gradient.is_contiguous(), !channels_last);
    }
  }
}

TEST(GroupNorm, LargeOffsetsDoNotLosePrecision) {
  // 10^4 plus values of deviation about 1; also channels of one group around different numbers.
  for (const bool channels_last : {false, true}) {
    for (const bool is_group : {false, true}) {
      Dense values = dense(random_tensor({3, 6, 9, 7}, 1, kFloat32, 1e4 - 1.7, 1e4 + 1.7));
      if (is_group) {
        for (int64_t i = 0; i < values.numel(); ++i) values[i] += static_cast<double>(i / 63 % 2) * 8;
      }
      const int64_t groups = is_group ? 3 : 6;
      const auto run = [&](DType dtype) {
        Tensor x = make_tensor(values, dtype, Layout::kContiguous, test_device());
        if (channels_last) x = ops::channels_last(x);
        x.requires_grad_();
        const Tensor y = group_norm(x, groups, {}, {}, kEps);
        return std::vector<Tensor>{y, grad({y}, {x}, {random_here(y.shape(), 2).to(dtype)})[0]};
      };
      const std::vector<Tensor> actual = run(kFloat32), exact = run(kFloat64);
      EXPECT_TRUE(close(actual[0], group_norm_reference(values, groups, nullptr, nullptr), 1e-6));
      EXPECT_TRUE(close(actual[1], dense(exact[1]), 1e-6));
    }
  }
}

TEST(GroupNorm, NaNSpreadsOnlyWithinItsGroup) {
  for (const bool channels_last : {false, true}) {
    Tensor x = random_here({2, 4, 3, 3}, 1);
    x.select(0, 1).select(0, 2).fill_(NAN);
    if (channels_last) x = ops::channels_last(x);
    const std::vector<double> y = group_norm(x, 2).to_vector<double>();
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i >= 6 * 9) << i;
  }
}

TEST(GroupNorm, AWeightOfZeroHasAFiniteGradient) {
  const Tensor x = random_here({2, 4, 5}, 1).requires_grad_();
  const Tensor weight = values_here({0, 1, 0, 0}, {4}).requires_grad_();
  const Tensor cotangent = random_here({2, 4, 5}, 2);
  const auto gradients = [&](const Tensor& y) { return grad({y}, {x, weight}, {cotangent}); };
  const std::vector<Tensor> actual = gradients(group_norm(x, 2, weight));
  const std::vector<Tensor> expected = gradients(group_norm(x, 2) * weight.view({4, 1}));
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(close(actual[i], dense(expected[i]), 4e-6)) << i;
}

TEST(GroupNorm, GradientsAccumulateInFilledSlots) {
  for (const bool channels_last : {false, true}) {
    for (const DType dtype : {kFloat64, kFloat32, kBFloat16}) {
      Tensor x = random_here({3, 6, 4, 5}, 1, dtype);
      if (channels_last) x = ops::channels_last(x);
      const Tensor cotangent = random_here(x.shape(), 2, dtype);
      const std::vector<Tensor> parameters = {random_here({6}, 3, dtype).requires_grad_(),
                                              random_here({6}, 4, dtype).requires_grad_()};
      // In float64 the gradients are known to more digits; added to the old contents they are rounded once.
      std::vector<Tensor> exact;
      for (const Tensor& parameter : parameters) exact.push_back(parameter.detach().to(kFloat64).requires_grad_());
      group_norm(x.to(kFloat64), 2, exact[0], exact[1]).backward(cotangent.to(kFloat64));
      for (const Tensor& parameter : parameters) parameter.set_grad(full({6}, 0.3, parameter.options()).detach());
      group_norm(x, 2, parameters[0], parameters[1]).backward(cotangent);
      for (size_t i = 0; i < 2; ++i) {
        const Tensor sum = full({6}, 0.3, parameters[i].options()).to(kFloat64) + exact[i].grad();
        if (dtype == kBFloat16) {
          EXPECT_TRUE(same_bits(parameters[i].grad(), sum.to(dtype))) << channels_last << i;
        } else {
          EXPECT_TRUE(close(parameters[i].grad(), dense(sum), dtype == kFloat64 ? 1e-14 : 1e-6)) << channels_last << i;
        }
      }
    }
  }
}

TEST(GroupNorm, HalfInputsTakeFloat32ParametersAndRoundOnce) {
  for (const DType half : {kBFloat16, kFloat16}) {
    for (const bool is_instance : {false, true}) {
      const GroupOptions o = {.groups = is_instance ? std::nullopt : std::optional<int64_t>(2)};
      const Tensor x = random_here({3, 6, 4, 5}, 1, half), cotangent = random_here({3, 6, 4, 5}, 2, half);
      const auto run = [&](DType dtype) {
        const Tensor input = x.to(dtype).detach().requires_grad_();
        const Tensor weight = random_here({6}, 3).requires_grad_(), bias = random_here({6}, 4).requires_grad_();
        const Tensor y = run_group_norm(o, input, weight, bias);
        EXPECT_EQ(y.dtype(), dtype);
        y.backward(cotangent.to(dtype));
        return std::vector<Tensor>{y.detach(), input.grad(), weight.grad(), bias.grad()};
      };
      const std::vector<Tensor> actual = run(half), exact = run(kFloat32);
      for (size_t i = 0; i < actual.size(); ++i)
        EXPECT_TRUE(close(actual[i], dense(exact[i]), i < 2 ? 0.51 * epsilon(half) : 1e-5)) << i;
    }
  }
}

TEST(GroupNorm, EmptyInputGivesEmptyResultAndZeroGradients) {
  EXPECT_EQ(group_norm(zeros({2, 0, 3}), 2).shape(), (Shape{2, 0, 3}));
  for (const Shape& shape : {Shape{0, 4, 2, 2}, Shape{0, 4}, Shape{2, 4, 0}}) {
    const TensorOptions options = {kFloat32, test_device()};
    const Tensor x = zeros(shape, options).requires_grad_(), weight = ones({4}, options).requires_grad_();
    const Tensor y = group_norm(x, 2, weight);
    EXPECT_EQ(y.shape(), shape);
    y.backward(zeros(shape, options));
    EXPECT_EQ(weight.grad().to_vector<float>(), (std::vector<float>{0, 0, 0, 0}));
  }
}

TEST(GroupNorm, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = zeros({2, 6, 3});
  EXPECT_ERROR(ValueError, group_norm(x, 0), "group_norm: num_groups is 0, expected at least 1");
  EXPECT_ERROR(ShapeError, group_norm(x, 4),
               "group_norm: num_groups is 4, it must divide the channels of input\n  input  cpu  float32 [2, 6, 3]");
  EXPECT_ERROR(ShapeError, group_norm(zeros({6}), 2),
               "group_norm: input must be [N, C] or [N, C, ...]\n  input  cpu  float32 [6]");
  EXPECT_ERROR(ShapeError, group_norm(x, 2, ones({2})),
               "group_norm: weight must have shape [6]\n"
               "  input   cpu  float32 [2, 6, 3]\n"
               "  weight  cpu  float32 [2]");
  EXPECT_ERROR(ValueError, group_norm(x, 2, {}, {}, -1), "group_norm: eps is -1, expected a finite number >= 0");
}

TEST(InstanceNorm, RunningStatisticsAreMeansOverSamples) {
  const Tensor mean = values_here({8, -4}, {2}), var = values_here({1, 16}, {2});
  // Means 2 and 4, 20 and 40; unbiased variances 1 and 4, 100 and 400.
  const Tensor x = values_here({1, 2, 3, 10, 20, 30, 2, 4, 6, 20, 40, 60}, {2, 2, 3});
  for (const bool channels_last : {false, true}) {
    const Tensor input = channels_last ? ops::channels_last(x.unsqueeze(3)) : x;
    const Tensor own_mean = mean.clone(), own_var = var.clone();
    const uint32_t version = own_mean.version();
    instance_norm(input, own_mean, own_var, {}, {}, true, 0.25);
    EXPECT_TRUE(close(own_mean, {{2}, {0.75 * 8 + 0.25 * 3, 0.75 * -4 + 0.25 * 30}}, 1e-6));
    EXPECT_TRUE(close(own_var, {{2}, {0.75 * 1 + 0.25 * 2.5, 0.75 * 16 + 0.25 * 250}}, 1e-6));
    EXPECT_EQ(own_mean.version(), version + 1);
  }
}

TEST(InstanceNorm, WithoutInputStatisticsMatchesBatchNormInEvaluation) {
  const Tensor x = random_here({3, 4, 5}, 1), mean = random_here({4}, 2), var = random_here({4}, 3).square();
  const Tensor weight = random_here({4}, 4), bias = random_here({4}, 5);
  EXPECT_TRUE(
      same_bits(instance_norm(x, mean, var, weight, bias, false), batch_norm(x, mean, var, weight, bias, false)));
}

TEST(InstanceNorm, InvalidArgumentsAreNamedInErrors) {
  EXPECT_ERROR(ShapeError, instance_norm(zeros({2, 3, 1})),
               "instance_norm: training needs at least two values per channel, got 1\n  input  cpu  float32 [2, 3, 1]");
  EXPECT_ERROR(StateError, instance_norm(zeros({2, 3, 4}), zeros({3}), {}, {}, {}, false),
               "instance_norm: without use_input_stats, running_mean and running_var must be defined");
  EXPECT_ERROR(ValueError, instance_norm(zeros({2, 3, 4}), {}, {}, {}, {}, true, 2),
               "instance_norm: momentum is 2, expected a number from 0 to 1");
}

TEST(RmsNorm, DefaultEpsDependsOnTheComputationDType) {
  const auto rms = [](double value, DType dtype) {
    return rms_norm(full({1, 4}, value, {dtype, test_device()}), {4}).to_vector<double>()[0];
  };
  for (const DType dtype : {kFloat32, kBFloat16}) {
    const double value = 0x1p-12;  // its square is half of the eps of float32
    EXPECT_NEAR(rms(value, dtype), value / std::sqrt(value * value + std::numeric_limits<float>::epsilon()),
                2 * epsilon(dtype));
  }
  const double value = 0x1p-27;
  EXPECT_NEAR(rms(value, kFloat64), value / std::sqrt(value * value + std::numeric_limits<double>::epsilon()), 1e-15);
}

TEST(RmsNorm, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = zeros({2, 4});
  EXPECT_ERROR(ShapeError, rms_norm(x, {3}),
               "rms_norm: input must end in normalized_shape [3]\n  input  cpu  float32 [2, 4]");
  EXPECT_ERROR(ShapeError, rms_norm(x, {4}, ones({2})),
               "rms_norm: weight must have shape [4]\n"
               "  input   cpu  float32 [2, 4]\n"
               "  weight  cpu  float32 [2]");
  EXPECT_ERROR(ValueError, rms_norm(x, {4}, {}, -1), "rms_norm: eps is -1, expected a finite number >= 0");
}

}}  // namespace tandem::testing
