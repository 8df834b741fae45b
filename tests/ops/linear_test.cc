// linear and its fused forms.
#include <tandem/autograd/checkpoint.h>
#include <tandem/ops/matmul/matmul_kernels.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

TEST(LinearRelu, NaNPropagatesAndZeroResultsMaskGradients) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Tensor x = tensor({1.0, nan, -1.0}).view({3, 1}).to(test_device()).requires_grad_();
  const Tensor weight = tensor({2.0}).view({1, 1}).to(test_device());
  const Tensor y = linear_relu(x, weight);
  EXPECT_EQ(y.to_vector<float>()[0], 2.0f);
  EXPECT_TRUE(std::isnan(y.to_vector<float>()[1]));
  EXPECT_EQ(y.to_vector<float>()[2], 0.0f);
  y.backward(tensor({3.0, 5.0, 7.0}).view({3, 1}).to(test_device()));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{6, 10, 0}));
}

using LinearFunction = Tensor (*)(const Tensor& x, const Tensor& weight, const Tensor& bias);

Tensor linear_gelu_tanh(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return linear_gelu(x, weight, bias, GeluApproximation::kTanh);
}

TEST(LinearGelu, IsGeluOfLinearOnCpus) {
  const Tensor x = random_tensor({7, 24}, 1), weight = random_tensor({16, 24}, 2), bias = random_tensor({16}, 3);
  for (const auto form : {GeluApproximation::kNone, GeluApproximation::kTanh}) {
    EXPECT_TRUE(primitives::bytes_equal(linear_gelu(x, weight, bias, form), gelu(linear(x, weight, bias), form)));
  }
}

TEST(LinearRelu, OneFeatureHasNoDimension) {
  const Tensor x = random_tensor({7, 24}, 1).to(test_device()), weight = random_tensor({24}, 2).to(test_device());
  const Tensor bias = full({}, 0.5, {kFloat32, test_device()});
  EXPECT_TRUE(primitives::bytes_equal(linear_relu(x, weight, bias), relu(linear(x, weight, bias))));
}

TEST(LinearGelu, OneFeatureHasNoDimension) {
  for (const DType dtype : {kFloat32, kBFloat16}) {
    const Tensor x = random_tensor({7, 24}, 1, dtype).to(test_device());
    const Tensor weight = random_tensor({24}, 2, dtype).to(test_device()).requires_grad_();
    EXPECT_TRUE(primitives::bytes_equal(linear_gelu_tanh(x, weight, {}).detach(),
                                        gelu(linear(x, weight), GeluApproximation::kTanh).detach()));
  }
}

// The fused operation of half types on GPUs, with rows that are and are not aligned.
TEST(LinearGelu, GradientsOfHalfTypesEqualThoseOfTheComposition) {
  for (const DType half : {kBFloat16, kFloat16}) {
    for (const Shape& sizes : {Shape{70, 24, 40}, Shape{9, 7, 5}, Shape{600, 8, 264}, Shape{0, 8, 8}}) {
      for (const bool has_bias : {true, false}) {
        SCOPED_TRACE(str(half, " ", sizes, has_bias ? " bias" : ""));
        const Tensor values[] = {random_tensor({sizes[0], sizes[1]}, 1, half),
                                 random_tensor({sizes[2], sizes[1]}, 2, half), random_tensor({sizes[2]}, 3, half)};
        const Tensor grad = random_tensor({sizes[0], sizes[2]}, 4, half);
        const auto run = [&](DType dtype, const auto& function) {
          std::vector<Tensor> in;
          for (const Tensor& value : values) {
            in.push_back(value.to(dtype).to(test_device()).clone().requires_grad_());
          }
          const Tensor y = function(in[0], in[1], has_bias ? in[2] : Tensor());
          y.backward(grad.to(dtype).to(test_device()));
          std::vector<Tensor> results = {y, in[0].grad(), in[1].grad()};
          if (has_bias) results.push_back(in[2].grad());
          return results;
        };
        const auto actual = run(half, linear_gelu_tanh);
        const auto exact = run(kFloat64, [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
          return gelu(linear(x, weight, bias), GeluApproximation::kTanh);
        });
        const double terms[] = {static_cast<double>(sizes[1]), static_cast<double>(sizes[2]),
                                static_cast<double>(sizes[0]), static_cast<double>(sizes[0])};
        for (size_t i = 0; i < actual.size(); ++i) {
          EXPECT_TRUE(close(actual[i], dense(exact[i]), 4 * epsilon(half) * std::sqrt(terms[i] + 1))) << i;
        }
      }
    }
  }
}

TEST(LinearGelu, HasSecondDerivatives) {
  const Tensor values[] = {random_tensor({6, 8}, 1, kBFloat16), random_tensor({16, 8}, 2, kBFloat16),
                           random_tensor({16}, 3, kBFloat16)};
  const auto run = [&](DType dtype) {
    std::vector<Tensor> in;
    for (const Tensor& value : values) in.push_back(value.to(dtype).to(test_device()).clone().requires_grad_());
    const Tensor y = linear_gelu_tanh(in[0], in[1], in[2]);
    // This gradient of x depends on x by the second derivative of gelu only.
    const std::vector<Tensor> first = grad({sum(y)}, {in[0]}, {}, {.create_graph = true});
    return grad({sum(mul(first[0], first[0]))}, {in[0], in[1], in[2]});
  };
  const std::vector<Tensor> actual = run(kBFloat16), exact = run(kFloat64);
  for (size_t i = 0; i < actual.size(); ++i) {
    double largest = 0;
    for (const double value : exact[i].to_vector<double>()) largest = std::max(largest, std::abs(value));
    EXPECT_TRUE(close(actual[i].to(kFloat64) / largest, dense(exact[i] / largest), 8 * epsilon(kBFloat16))) << i;
  }
}

TEST(LinearGelu, CheckpointRecomputesTheSameGradients) {
  std::vector<std::vector<Tensor>> gradients;
  for (const bool in_checkpoint : {false, true}) {
    const Tensor x = random_tensor({6, 8}, 1, kBFloat16).to(test_device()).requires_grad_(),
                 weight = random_tensor({16, 8}, 2, kBFloat16).to(test_device()).requires_grad_(),
                 bias = random_tensor({16}, 3, kBFloat16).to(test_device()).requires_grad_();
    const auto run = [&] { return linear_gelu_tanh(x, weight, bias); };
    std::optional<autograd::CheckpointScope> checkpoint;
    if (in_checkpoint) checkpoint.emplace([&] { run(); }, std::vector<Tensor>{x, weight, bias});
    const Tensor y = run();
    checkpoint.reset();
    y.backward(random_tensor({6, 16}, 4, kBFloat16).to(test_device()));
    gradients.push_back({x.grad(), weight.grad(), bias.grad()});
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(primitives::bytes_equal(gradients[0][i], gradients[1][i])) << i;
}

// A weight that needs no gradient, whose operation is composed, and no recording at all.
TEST(LinearGelu, FrozenWeightsAndInferenceGiveTheSameResult) {
  const Tensor x = random_tensor({6, 8}, 1, kBFloat16).to(test_device()),
               weight = random_tensor({16, 8}, 2, kBFloat16).to(test_device());
  const Tensor input = x.clone().requires_grad_(), trained = weight.clone().requires_grad_();
  const Tensor frozen = linear_gelu_tanh(input, weight, {}), recorded = linear_gelu_tanh(input, trained, {});
  Tensor inferred;
  {
    const NoGradGuard no_grad;
    inferred = linear_gelu_tanh(input, trained, {});
  }
  EXPECT_FALSE(inferred.requires_grad());
  EXPECT_TRUE(primitives::bytes_equal(inferred, recorded.detach()));
  EXPECT_TRUE(close(frozen, dense(recorded.to(kFloat64)), 4 * epsilon(kBFloat16)));
  const Tensor ones_of_y = ones(recorded.shape(), recorded.options());
  frozen.backward(ones_of_y);
  const Tensor expected = input.grad().clone();
  input.zero_grad();
  recorded.backward(ones_of_y);
  EXPECT_TRUE(close(input.grad(), dense(expected.to(kFloat64)), 16 * epsilon(kBFloat16)));
}

TEST(Linear, GradientsAccumulateInTheSlot) {
  for (const LinearFunction function : {LinearFunction(linear), LinearFunction(linear_relu), linear_gelu_tanh}) {
    // On GPUs in bfloat16, with float32 gradients.
    const bool on_gpu = !test_device().is_cpu();
    const auto tensor_of = [&](Shape shape, uint64_t seed) { return random_tensor(shape, seed).to(test_device()); };
    const Tensor x = tensor_of({33, 32}, 1), cotangent = tensor_of({33, 72}, 2);
    Tensor weight = tensor_of({72, 32}, 3), bias = tensor_of({72}, 4);
    weight.requires_grad_();
    bias.requires_grad_();
    auto backward = [&] {
      std::optional<Autocast> autocast;
      if (on_gpu) autocast.emplace(kBFloat16);
      const Tensor y = function(x, weight, bias);
      autocast.reset();
      y.backward(cotangent.to(y.dtype()));
    };
    backward();
    const Dense weight_once = dense(weight.grad()), bias_once = dense(bias.grad());
    const void* slot = weight.grad().data_ptr();
    backward();
    EXPECT_EQ(weight.grad().data_ptr(), slot);
    auto twice = [](Dense values) {
      for (double& value : values.values) value *= 2;
      return values;
    };
    EXPECT_TRUE(close(weight.grad(), twice(weight_once), 1e-5));
    EXPECT_TRUE(close(bias.grad(), twice(bias_once), 1e-5));
    weight.zero_grad();
    bias.zero_grad();
    backward();
    EXPECT_TRUE(close(weight.grad(), weight_once, 0));
    EXPECT_TRUE(close(bias.grad(), bias_once, 0));
  }
}

TEST(Linear, TiedWeightGetsBothGradients) {
  const Tensor x = random_tensor({5, 4}, 1, kFloat64), cotangent = random_tensor({5, 4}, 2, kFloat64);
  Tensor weight = random_tensor({4, 4}, 3, kFloat64).requires_grad_();
  autograd::gradcheck([](const std::vector<Tensor>& in) { return linear(linear(in[0], in[1]), in[1]); }, {x, weight});
}

TEST(Linear, InvalidArgumentsAreNamedInErrors) {
  EXPECT_ERROR(ShapeError, linear(empty({2, 3}), empty({5, 4}), empty({5})),
               "linear: the last dimension of x must have size 4\n"
               "  x       cpu  float32 [2, 3]\n"
               "  weight  cpu  float32 [5, 4]\n"
               "  bias    cpu  float32 [5]");
  EXPECT_ERROR(ShapeError, linear_relu(empty({2, 4}), empty({5, 4}), empty({1})),
               "linear_relu: bias must have shape [5]\n"
               "  x       cpu  float32 [2, 4]\n"
               "  weight  cpu  float32 [5, 4]\n"
               "  bias    cpu  float32 [1]");
  EXPECT_ERROR(ShapeError, linear(empty({2, 4}), empty({1, 5, 4})),
               "linear: weight must have 2 dimensions, [out, in]\n"
               "  x       cpu  float32 [2, 4]\n"
               "  weight  cpu  float32 [1, 5, 4]");
}

TEST(LinearBias, GradientIsTheSumOfTheRows) {
  // GPUs sum many rows in parts, narrow rows with other threads, and rows of 16-byte multiples by wide accesses.
  const Shape sizes[] = {{1, 1}, {7, 3}, {33, 64}, {600, 8}, {700, 264}, {1100, 33}, {17000, 1}, {0, 5}};
  for (const Shape& size : sizes) {
    for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
      for (const bool relu : {false, true}) {
        SCOPED_TRACE(str(size, " ", dtype, relu ? " relu" : ""));
        const int64_t rows = size[0], cols = size[1];
        const Dense gradient = random_dense(size, 1), inputs = random_dense({rows, 1}, 2);
        const Tensor x = make_tensor(inputs, dtype, Layout::kContiguous, test_device());
        const Tensor weight = ones({cols, 1}, x.options()),
                     grad = make_tensor(gradient, dtype, Layout::kContiguous, test_device());
        const Tensor bias = zeros({cols}, x.options()).requires_grad_();
        for (int accumulated = 1; accumulated <= 2; ++accumulated) {
          (relu ? linear_relu(x, weight, bias) : linear(x, weight, bias)).backward(grad);
          Dense expected = dense_zeros({cols});
          const Dense seen = dense(grad), values = dense(x);
          for (int64_t i = 0; i < rows * cols; ++i) {
            if (!relu || values[i / cols] > 0) expected[i % cols] += accumulated * seen[i];
          }
          const double own = dtype == kFloat64 ? 32 : 4;  // the expected sum is rounded in float64 too
          const double tolerance = own * epsilon(dtype) * std::sqrt(static_cast<double>(std::max<int64_t>(1, rows)));
          EXPECT_TRUE(close(bias.grad(), expected, tolerance)) << accumulated;
        }
      }
    }
  }
}

// Where products of the half type have float32 results (on GPUs, and on some CPUs for bfloat16), the gradients of
// float32 parameters under autocast are not rounded to it.
TEST(Linear, ParameterGradientsUnderAutocastAreFloat32) {
  constexpr int64_t kRows = 300, kIn = 24, kOut = 40;
  for (const DType half : {kBFloat16, kFloat16}) {
    for (const bool relu : {false, true}) {
      SCOPED_TRACE(str(half, relu ? " relu" : ""));
      const auto run = [&](DType dtype, const Dense& x_values, const Dense& gradient, bool autocast) {
        const Tensor x = make_tensor(x_values, dtype, Layout::kContiguous, test_device());
        const Tensor weight = random_tensor({kOut, kIn}, 3, half).to(dtype).to(test_device()).requires_grad_();
        const Tensor bias = random_tensor({kOut}, 4, half).to(dtype).to(test_device()).requires_grad_();
        for (int accumulated = 0; accumulated < 2; ++accumulated) {
          Tensor y;
          {
            std::optional<Autocast> scope;
            if (autocast) scope.emplace(half);
            y = relu ? linear_relu(x, weight, bias) : linear(x, weight, bias);
          }
          y.backward(make_tensor(gradient, y.dtype(), Layout::kContiguous, test_device()));
        }
        return std::vector<Tensor>{weight.grad(), bias.grad()};
      };
      const Dense x = dense(random_tensor({kRows, kIn}, 1, half)),
                  gradient = dense(random_tensor({kRows, kOut}, 2, half));
      const std::vector<Tensor> actual = run(kFloat32, x, gradient, true), exact = run(kFloat64, x, gradient, false);
      for (size_t i = 0; i < actual.size(); ++i) {
        EXPECT_EQ(actual[i].dtype(), kFloat32);
        const bool is_exact = !test_device().is_cpu() || has_half_gemm(half, kOut, kIn, kRows, /*rounds=*/false);
        const double tolerance = is_exact ? 4e-6 : 4 * epsilon(half);
        EXPECT_TRUE(close(actual[i], dense(exact[i]), tolerance * std::sqrt(static_cast<double>(kRows)))) << i;
      }
    }
  }
}

}}  // namespace tandem::testing
