// What autocast does at the front of each operation: one table of all of them, by their policy.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/engine.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/attention.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/math.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/norm.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/softmax.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/support/op_case.h>

namespace tandem::testing { namespace {

using Tensors = std::vector<Tensor>;

struct OperatorCase {
  std::string name;
  CastPolicy policy;
  std::vector<Shape> inputs;
  std::function<Tensor(const Tensors&)> run;
  double terms = 1;  ///< numbers summed for one result
  double low = 0.5;  ///< values are uniform in [low, 2)
};

constexpr CastPolicy kLow = CastPolicy::kLowPrecision;
constexpr CastPolicy kFull = CastPolicy::kFloat32;
constexpr CastPolicy kWide = CastPolicy::kWidest;

Tensor labels() { return tensor({2, 0, 4}); }

/// A bias that scores are added to, in float32, as a model would keep it.
Tensor scores_bias() { return random_tensor({4, 5}, 9); }

const std::vector<OperatorCase>& operators() {
  static const std::vector<OperatorCase> table = {
      // Products, convolutions, attention.
      {"matmul", kLow, {{3, 7}, {7, 5}}, [](const Tensors& in) { return matmul(in[0], in[1]); }, 7},
      {"matmul batched", kLow, {{2, 3, 7}, {7, 5}}, [](const Tensors& in) { return matmul(in[0], in[1]); }, 7},
      {"bmm", kLow, {{2, 3, 7}, {2, 7, 5}}, [](const Tensors& in) { return bmm(in[0], in[1]); }, 7},
      {"addmm", kLow, {{5}, {3, 7}, {7, 5}}, [](const Tensors& in) { return addmm(in[0], in[1], in[2], 0.5, 1.5); }, 8},
      {"linear", kLow, {{3, 7}, {5, 7}, {5}}, [](const Tensors& in) { return linear(in[0], in[1], in[2]); }, 8},
      {"linear without bias", kLow, {{3, 7}, {5, 7}}, [](const Tensors& in) { return linear(in[0], in[1]); }, 7},
      {"linear_relu",
       kLow,
       {{3, 7}, {5, 7}, {5}},
       [](const Tensors& in) { return linear_relu(in[0], in[1], in[2]); },
       8},
      {"conv2d",
       kLow,
       {{2, 4, 5, 5}, {6, 2, 3, 3}, {6}},
       [](const Tensors& in) { return conv2d(in[0], in[1], in[2], {.stride = 2, .padding = 1, .groups = 2}); },
       19},
      {"conv2d_relu",
       kLow,
       {{2, 3, 5, 5}, {4, 3, 3, 3}, {4}},
       [](const Tensors& in) { return conv2d_relu(in[0], in[1], in[2], {.padding = 1}); },
       28},
      {"scaled_dot_product_attention",
       kLow,
       {{2, 4, 3}, {2, 5, 3}, {2, 5, 6}},
       [](const Tensors& in) { return scaled_dot_product_attention(in[0], in[1], in[2]); },
       25},
      {"scaled_dot_product_attention added mask",
       kLow,
       {{2, 4, 3}, {2, 5, 3}, {2, 5, 6}},
       [mask = scores_bias()](const Tensors& in) {
         return scaled_dot_product_attention(in[0], in[1], in[2], {.attn_mask = mask});
       },
       25},
      {"qkv_attention",
       kLow,
       {{2, 4, 12}},
       [](const Tensors& in) { return qkv_attention(in[0], 2, {.is_causal = true}); },
       16},
      // Norms, losses, and what else needs range or precision.
      {"batch_norm",
       kFull,
       {{4, 3, 2, 2}, {3}, {3}},
       [](const Tensors& in) { return batch_norm(in[0], {}, {}, in[1], in[2], true, 0.1, 1e-2); },
       16},
      {"batch_norm_relu",
       kFull,
       {{4, 3, 2, 2}, {3}, {3}},
       [](const Tensors& in) { return batch_norm_relu(in[0], {}, {}, in[1], in[2], true, 0.1, 1e-2); },
       16},
      {"batch_norm_add_relu",
       kFull,
       {{4, 3, 2, 2}, {4, 3, 2, 2}, {3}, {3}},
       [](const Tensors& in) { return batch_norm_add_relu(in[0], in[1], {}, {}, in[2], in[3], true, 0.1, 1e-2); },
       16},
      {"layer_norm",
       kFull,
       {{3, 7}, {7}, {7}},
       [](const Tensors& in) { return layer_norm(in[0], {7}, in[1], in[2], 1e-2); },
       7},
      {"softmax", kFull, {{3, 7}}, [](const Tensors& in) { return softmax(in[0], 1); }, 7},
      {"log_softmax", kFull, {{3, 7}}, [](const Tensors& in) { return log_softmax(in[0], 1); }, 7},
      {"cross_entropy", kFull, {{3, 5}}, [](const Tensors& in) { return cross_entropy(in[0], labels()); }, 5},
      {"nll_loss", kFull, {{3, 5}}, [](const Tensors& in) { return nll_loss(in[0], labels()); }, 3},
      {"mse_loss", kFull, {{3, 5}, {3, 5}}, [](const Tensors& in) { return mse_loss(in[0], in[1]); }, 15},
      {"sum", kFull, {{3, 7}}, [](const Tensors& in) { return in[0].sum({1}); }, 7},
      {"mean", kFull, {{3, 7}}, [](const Tensors& in) { return in[0].mean({1}); }, 7},
      {"var", kFull, {{3, 7}}, [](const Tensors& in) { return in[0].var({1}); }, 7},
      {"exp", kFull, {{3, 7}}, [](const Tensors& in) { return in[0].exp(); }},
      {"log", kFull, {{3, 7}}, [](const Tensors& in) { return in[0].log(); }},
      {"rsqrt", kFull, {{3, 7}}, [](const Tensors& in) { return rsqrt(in[0]); }},
      {"pow number", kFull, {{3, 7}}, [](const Tensors& in) { return in[0].pow(1.5); }},
      {"pow tensor", kFull, {{3, 7}, {7}}, [](const Tensors& in) { return pow(in[0], in[1]); }},
      // Elementwise.
      {"add", kWide, {{3, 7}, {7}}, [](const Tensors& in) { return in[0] + in[1]; }},
      {"sub", kWide, {{3, 7}, {7}}, [](const Tensors& in) { return in[0] - in[1]; }},
      {"mul", kWide, {{3, 7}, {7}}, [](const Tensors& in) { return in[0] * in[1]; }},
      {"div", kWide, {{3, 7}, {7}}, [](const Tensors& in) { return in[0] / in[1]; }},
      {"neg", kWide, {{3, 7}}, [](const Tensors& in) { return -in[0]; }},
      {"relu", kWide, {{3, 7}}, [](const Tensors& in) { return in[0].relu(); }, 1, -2},
      {"gelu", kWide, {{3, 7}}, [](const Tensors& in) { return gelu(in[0], GeluApproximation::kTanh); }, 1, -2},
      {"silu", kWide, {{3, 7}}, [](const Tensors& in) { return silu(in[0]); }, 1, -2},
      {"tanh", kWide, {{3, 7}}, [](const Tensors& in) { return in[0].tanh(); }, 1, -2},
      {"sigmoid", kWide, {{3, 7}}, [](const Tensors& in) { return in[0].sigmoid(); }, 1, -2},
      {"sqrt", kWide, {{3, 7}}, [](const Tensors& in) { return in[0].sqrt(); }},
      {"clamp", kWide, {{3, 7}}, [](const Tensors& in) { return clamp(in[0], 0.75, 1.5); }},
  };
  return table;
}

Tensors inputs_of(const OperatorCase& front, DType dtype) {
  Tensors inputs;
  for (size_t i = 0; i < front.inputs.size(); ++i) {
    inputs.push_back(random_tensor(front.inputs[i], 20 + i, dtype, front.low, 2));
  }
  return inputs;
}

Tensors converted(const Tensors& tensors, DType dtype) {
  Tensors result;
  for (const Tensor& tensor : tensors) result.push_back(tensor.detach().to(dtype));
  return result;
}

Tensor run_under(DType low_precision, const OperatorCase& front, const Tensors& inputs) {
  const Autocast autocast(low_precision);
  return front.run(inputs);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && primitives::bytes_equal(a, b);
}

const DType kHalfTypes[] = {kBFloat16, kFloat16};

TEST(Autocast, Float32OperandsAreCastByPolicy) {
  for (DType half : kHalfTypes) {
    for (const OperatorCase& front : operators()) {
      SCOPED_TRACE(str(front.name, " ", half));
      const Tensors inputs = inputs_of(front, kFloat32);
      const Tensor out = run_under(half, front, inputs);
      // The operation on operands that were cast by hand.
      const Tensor by_hand = front.run(front.policy == kLow ? converted(inputs, half) : inputs);
      EXPECT_EQ(out.dtype(), front.policy == kLow ? half : kFloat32);
      EXPECT_TRUE(same_bits(out, by_hand));
    }
  }
}

TEST(Autocast, HalfOperandsAreCastByPolicy) {
  for (DType half : kHalfTypes) {
    for (const OperatorCase& front : operators()) {
      SCOPED_TRACE(str(front.name, " ", half));
      const Tensors inputs = inputs_of(front, half);
      const Tensor out = run_under(half, front, inputs);
      const Tensor by_hand = front.run(front.policy == kFull ? converted(inputs, kFloat32) : inputs);
      EXPECT_EQ(out.dtype(), front.policy == kFull ? kFloat32 : half);
      EXPECT_TRUE(same_bits(out, by_hand));
    }
  }
}

TEST(Autocast, MixedOperandsAreCastByPolicy) {
  // A float32 parameter beside the half output of a layer, either way round.
  for (DType half : kHalfTypes) {
    for (const OperatorCase& front : operators()) {
      for (size_t odd = 0; front.inputs.size() > 1 && odd < front.inputs.size(); ++odd) {
        SCOPED_TRACE(str(front.name, " ", half, " float32 operand ", odd));
        Tensors inputs = inputs_of(front, half);
        inputs[odd] = inputs[odd].to(kFloat32);
        const DType wanted = front.policy == kLow ? half : kFloat32;
        const Tensor out = run_under(half, front, inputs);
        EXPECT_EQ(out.dtype(), wanted);
        EXPECT_TRUE(same_bits(out, front.run(converted(inputs, wanted))));
      }
    }
  }
}

TEST(Autocast, Float64OperandsAreNotCast) {
  for (const OperatorCase& front : operators()) {
    if (front.name == "scaled_dot_product_attention added mask") continue;  // whose mask is float32 here
    SCOPED_TRACE(front.name);
    const Tensors inputs = inputs_of(front, kFloat64);
    EXPECT_TRUE(same_bits(run_under(kBFloat16, front, inputs), front.run(inputs)));
  }
}

TEST(Autocast, GradientsOfFloat32ParametersAreFloat32) {
  for (DType half : kHalfTypes) {
    for (const OperatorCase& front : operators()) {
      SCOPED_TRACE(str(front.name, " ", half));
      Tensors exact = inputs_of(front, kFloat64), inputs = inputs_of(front, kFloat32);
      for (Tensor& input : inputs) input.set_requires_grad();
      for (Tensor& input : exact) input.set_requires_grad();
      const Tensor out = run_under(half, front, inputs);
      Tensor want;
      if (front.name == "scaled_dot_product_attention added mask") {
        want = scaled_dot_product_attention(exact[0], exact[1], exact[2], {.attn_mask = scores_bias().to(kFloat64)});
      } else {
        want = front.run(exact);
      }
      const Dense cotangent = random_dense(out.shape(), 7, -1, 1);
      out.backward(make_tensor(cotangent, out.dtype()));  // autocast is over: casts were recorded
      want.backward(make_tensor(cotangent, kFloat64));
      const double tolerance = 8 * epsilon(front.policy == kLow ? half : kFloat32) * std::sqrt(8 * front.terms);
      for (size_t i = 0; i < inputs.size(); ++i) {
        ASSERT_TRUE(inputs[i].grad().defined()) << i;
        EXPECT_EQ(inputs[i].grad().dtype(), kFloat32) << i;
        EXPECT_TRUE(close(inputs[i].grad(), dense(exact[i].grad()), tolerance)) << i;
      }
    }
  }
}

TEST(Autocast, BackwardInsideScopeGivesEqualBits) {
  for (DType dtype : {kFloat32, kBFloat16, kFloat16}) {
    for (const OperatorCase& front : operators()) {
      SCOPED_TRACE(str(front.name, " ", dtype));
      std::vector<Tensors> gradients;
      for (const bool inside : {false, true}) {
        Tensors inputs = inputs_of(front, dtype);
        for (Tensor& input : inputs) input.set_requires_grad();
        Tensor out;
        {
          const Autocast autocast(kBFloat16);
          out = front.run(inputs);
          if (inside) out.backward(ones_like(out));
        }
        if (!inside) out.backward(ones_like(out));
        Tensors& own = gradients.emplace_back();
        for (const Tensor& input : inputs) own.push_back(input.grad());
      }
      for (size_t i = 0; i < gradients[0].size(); ++i) EXPECT_TRUE(same_bits(gradients[0][i], gradients[1][i])) << i;
    }
  }
}

TEST(Autocast, RunningStatisticsStayFloat32) {
  const Tensor mean = zeros({3}), variance = ones({3});
  const Tensor x = random_tensor({4, 3, 2, 2}, 1, kBFloat16);
  {
    const Autocast autocast(kBFloat16);
    EXPECT_EQ(batch_norm(x, mean, variance, ones({3}), zeros({3}), true, 0.5).dtype(), kFloat32);
  }
  EXPECT_EQ(mean.dtype(), kFloat32);
  EXPECT_TRUE(close(mean, dense(mul(x.to(kFloat32).mean({0, 2, 3}), 0.5)), 1e-6));
}

// --- half types without autocast -----------------------------------------------------------------

TEST(HalfTypes, ProductsConvolutionsAndAttentionComputeInFloat32) {
  for (DType half : kHalfTypes) {
    for (const OperatorCase& front : operators()) {
      if (front.policy != kLow || front.name == "scaled_dot_product_attention added mask") continue;
      SCOPED_TRACE(str(front.name, " ", half));
      Tensors inputs = inputs_of(front, half), exact = converted(inputs, kFloat64);
      for (Tensor& input : inputs) input.set_requires_grad();
      for (Tensor& input : exact) input.set_requires_grad();
      const Tensor out = front.run(inputs), want = front.run(exact);
      EXPECT_EQ(out.dtype(), half);
      // One rounding of a result formed in float32: half a unit in the last place, and float32's own error.
      EXPECT_TRUE(close(out, dense(want), 0.51 * epsilon(half)));
      const Dense cotangent = dense(make_tensor(random_dense(out.shape(), 7, -1, 1), half));
      out.backward(make_tensor(cotangent, half));
      want.backward(make_tensor(cotangent, kFloat64));
      for (size_t i = 0; i < inputs.size(); ++i) {
        EXPECT_EQ(inputs[i].grad().dtype(), half) << i;
        EXPECT_TRUE(close(inputs[i].grad(), dense(exact[i].grad()), 2 * epsilon(half) * std::sqrt(front.terms))) << i;
      }
    }
  }
}

TEST(HalfTypes, LongSumsAccumulateInFloat32) {
  // One after the other in float16, 4096 ones stop at 2048; in bfloat16 at 256.
  for (DType half : kHalfTypes) {
    SCOPED_TRACE(to_string(half));
    const auto ones_of = [half](const Shape& shape) { return ones(shape, {half}); };
    const auto expect_all = [](const Tensor& out, double value) {
      for (double v : out.to_vector<double>()) EXPECT_EQ(v, value);
    };
    expect_all(matmul(ones_of({3, 4096}), ones_of({4096, 2})), 4096);
    expect_all(matmul(ones_of({2, 3, 4096}), ones_of({2, 4096, 2})), 4096);
    expect_all(bmm(ones_of({2, 3, 4096}), ones_of({2, 4096, 2})), 4096);
    expect_all(addmm(ones_of({2}), ones_of({3, 4096}), ones_of({4096, 2}), 0), 4096);
    expect_all(linear(ones_of({3, 4096}), ones_of({2, 4096})), 4096);
    expect_all(linear_relu(ones_of({3, 4096}), ones_of({2, 4096})), 4096);
    expect_all(conv2d(ones_of({1, 512, 4, 4}), ones_of({2, 512, 2, 4})), 4096);
    expect_all(conv2d_relu(ones_of({1, 512, 4, 4}), ones_of({2, 512, 2, 4})), 4096);
    expect_all(scaled_dot_product_attention(ones_of({2, 4}), ones_of({4096, 4}), ones_of({4096, 3})), 1);
    // And the gradients: 4096 rows meet in one weight.
    Tensor weight = ones_of({2, 3}).set_requires_grad(), bias = ones_of({2}).set_requires_grad();
    linear(ones_of({4096, 3}), weight, bias).backward(ones_of({4096, 2}));
    expect_all(weight.grad(), 4096);
    expect_all(bias.grad(), 4096);
    Tensor kernel = ones_of({2, 1, 1, 1}).set_requires_grad(), shift = ones_of({2}).set_requires_grad();
    conv2d(ones_of({4, 1, 32, 32}), kernel, shift).backward(ones_of({4, 2, 32, 32}));
    expect_all(kernel.grad(), 4096);
    expect_all(shift.grad(), 4096);
  }
}

}}  // namespace tandem::testing
