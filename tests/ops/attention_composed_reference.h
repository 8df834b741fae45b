// Comparisons of attention with operations that it is composed of.
#pragma once

#include <tandem/tests/ops/attention_reference.h>

namespace tandem::testing { namespace attention {

/// Attention composed of recorded operations, to which gradients are compared.
inline Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v, double scale, const Tensor& added) {
  return matmul(softmax(add(mul(matmul(q, k.transpose(-2, -1)), scale), added), -1), v);
}

/// [T, S] of zeros, -infinity above the diagonal.
inline Tensor added_causal_mask(int64_t queries, int64_t keys) {
  Dense mask = dense_zeros({queries, keys});
  for (int64_t t = 0; t < queries; ++t) {
    for (int64_t s = 0; s < keys; ++s) mask[t * keys + s] = causal_mask(t, s);
  }
  return make_tensor(mask, kFloat64);
}

/// A leaf with the values of `tensor`, in its memory order.
inline Tensor leaf(const Tensor& tensor) { return tensor.detach().requires_grad_(); }

/// random_tensor on the device under test.
inline Tensor random_here(const Shape& shape, uint64_t seed, DType dtype = kFloat32) {
  return random_tensor(shape, seed, dtype).to(test_device());
}

/// Compares value and gradients of `actual` on the device under test with `expected` on the CPU, on the same values in
/// float64.
inline void expect_same(const std::function<Tensor(const std::vector<Tensor>&)>& actual,
                        const std::function<Tensor(const std::vector<Tensor>&)>& expected, std::vector<Tensor> inputs,
                        double terms) {
  std::vector<Tensor> exact;
  for (Tensor& input : inputs) {
    exact.push_back(leaf(make_tensor(dense(input), kFloat64)));
    input = leaf(input);
  }
  const DType dtype = inputs[0].dtype();
  const Tensor out = actual(inputs), exact_out = expected(exact);
  const double tolerance = 8 * epsilon(dtype) * std::sqrt(terms);
  EXPECT_TRUE(close(out, dense(exact_out), tolerance));
  const Tensor cotangent = random_tensor(out.shape(), 9, dtype, -1, 1).to(test_device());
  out.backward(cotangent);
  exact_out.backward(make_tensor(dense(cotangent), kFloat64));
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(close(inputs[i].grad(), dense(exact[i].grad()), 2 * tolerance)) << "gradient " << i;
  }
}

}}  // namespace tandem::testing::attention
