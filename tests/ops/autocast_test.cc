// Autocast and half types, in addition to the checks of each operation in op_checks_test.cc.
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

const DType kHalfTypes[] = {kBFloat16, kFloat16};

/// Attention with a bias that a model keeps in float32.
Tensor attend(const Tensors& x, const Tensor& bias) {
  return scaled_dot_product_attention(x[0], x[1], x[2], {.attn_mask = bias});
}

Tensors attention_inputs(DType dtype) {
  return {random_tensor({2, 4, 3}, 20, dtype, 0.5, 2), random_tensor({2, 5, 3}, 21, dtype, 0.5, 2),
          random_tensor({2, 5, 6}, 22, dtype, 0.5, 2)};
}

TEST(Autocast, AttentionBiasStaysFloat32) {
  const Tensor bias = random_tensor({4, 5}, 9);
  for (const DType half : kHalfTypes) {
    for (int odd = -2; odd < 3; ++odd) {  // -2: all float32, -1: all half, otherwise one operand float32
      SCOPED_TRACE(str(half, " ", odd));
      Tensors inputs = attention_inputs(odd == -2 ? kFloat32 : half);
      if (odd >= 0) inputs[static_cast<size_t>(odd)] = inputs[static_cast<size_t>(odd)].to(kFloat32);
      Tensor out;
      {
        const Autocast autocast(half);
        out = attend(inputs, bias);
      }
      for (Tensor& input : inputs) input = input.to(half);
      EXPECT_EQ(out.dtype(), half);
      EXPECT_TRUE(same_bits(out, attend(inputs, bias)));
    }
  }
}

TEST(Autocast, GradientsOfAttentionWithBiasAreFloat32) {
  const Tensor bias = random_tensor({4, 5}, 9);
  for (const DType half : kHalfTypes) {
    SCOPED_TRACE(to_string(half));
    Tensors inputs = attention_inputs(kFloat32), exact = attention_inputs(kFloat64);
    for (Tensor& input : inputs) input.requires_grad_();
    for (Tensor& input : exact) input.requires_grad_();
    Tensor out;
    {
      const Autocast autocast(half);
      out = attend(inputs, bias);
    }
    const Tensor expected = attend(exact, bias.to(kFloat64));
    const Dense cotangent = random_dense(out.shape(), 7, -1, 1);
    out.backward(make_tensor(cotangent, out.dtype()));
    expected.backward(make_tensor(cotangent, kFloat64));
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(inputs[i].grad().dtype(), kFloat32) << i;
      EXPECT_TRUE(close(inputs[i].grad(), dense(exact[i].grad()), 8 * epsilon(half) * std::sqrt(8 * 25.0))) << i;
    }
  }
}

// The sum of a float32 and a half tensor of equal shapes is one kernel.
TEST(Autocast, SumsOfMixedDTypesMatchSumsAfterConversion) {
  for (const DType half : kHalfTypes) {
    for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 5, 8}}) {
      for (const bool half_is_first : {false, true}) {
        SCOPED_TRACE(str(half, " ", shape, " ", half_is_first));
        Tensor wide = random_tensor(shape, 1).to(test_device()).requires_grad_(),
               low = random_tensor(shape, 2, half).to(test_device()).requires_grad_();
        const Tensor cotangent = random_tensor(shape, 3).to(test_device());
        Tensor sum;
        {
          const Autocast autocast(half);
          sum = half_is_first ? low + wide : wide + low;
        }
        EXPECT_TRUE(same_bits(sum, wide.detach() + low.detach().to(kFloat32)));
        const auto grads = grad({sum}, {wide, low}, {cotangent});
        EXPECT_TRUE(same_bits(grads[0], cotangent));
        EXPECT_TRUE(same_bits(grads[1], cotangent.to(half)));
      }
    }
    const Tensor wide = random_tensor({4, 6}, 1).to(test_device()), low = random_tensor({6}, 2, half).to(test_device());
    const Tensor expected = wide + low.to(kFloat32), scaled = add(wide[0], low.to(kFloat32), 2);
    const Autocast autocast(half);
    EXPECT_TRUE(same_bits(wide + low, expected));
    EXPECT_TRUE(same_bits(add(wide[0], low, 2), scaled));
  }
}

TEST(Autocast, RunningStatisticsStayFloat32) {
  const Tensor mean = zeros({3}), variance = ones({3});
  const Tensor x = random_tensor({4, 3, 2, 2}, 1, kBFloat16);
  {
    const Autocast autocast(kBFloat16);
    EXPECT_EQ(batch_norm(x, mean, variance, ones({3}), zeros({3}), true, 0.5).dtype(), kBFloat16);
  }
  EXPECT_EQ(mean.dtype(), kFloat32);
  EXPECT_TRUE(close(mean, dense(mul(x.to(kFloat32).mean({0, 2, 3}), 0.5)), 1e-6));
}

TEST(HalfTypes, LongSumsAccumulateInFloat32) {
  // Added sequentially in float16, 4096 ones give 2048; in bfloat16 256.
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
    // The gradient of the weight sums 4096 rows.
    Tensor weight = ones_of({2, 3}).requires_grad_(), bias = ones_of({2}).requires_grad_();
    linear(ones_of({4096, 3}), weight, bias).backward(ones_of({4096, 2}));
    expect_all(weight.grad(), 4096);
    expect_all(bias.grad(), 4096);
    Tensor kernel = ones_of({2, 1, 1, 1}).requires_grad_(), shift = ones_of({2}).requires_grad_();
    conv2d(ones_of({4, 1, 32, 32}), kernel, shift).backward(ones_of({4, 2, 32, 32}));
    expect_all(kernel.grad(), 4096);
    expect_all(shift.grad(), 4096);
  }
}

}}  // namespace tandem::testing
