// Weights and data that tools/fixtures/training_fixtures.py draws too, and the losses that it recorded.
#pragma once

#include <tandem/io/safetensors.h>
#include <tandem/tests/nn/nn.h>

namespace tandem::testing {

/// Numbers in [-1, 1), float64: a hash of the index of each element and of the seed.
inline Tensor drawn(const Shape& shape, uint32_t seed) {
  int64_t size = 1;
  for (const int64_t s : shape) size *= s;
  std::vector<double> values(static_cast<size_t>(size));
  for (uint32_t i = 0; i < values.size(); ++i) {
    uint32_t h = i + 1000003 * seed;
    for (int round = 0; round < 2; ++round) h = (h ^ (h >> 16)) * 0x45D9F3Bu;
    values[i] = (h ^ (h >> 16)) / 2147483648.0 - 1;
  }
  return from_vector(values, shape);
}

/// Images [batch, 1, 16, 16] of one disc each: 1 inside, -1 outside.
inline Tensor shapes(int64_t batch, uint32_t seed) {
  const Tensor numbers = drawn({3, batch, 1, 1}, seed) * 5;
  const Tensor grid = arange(16, kFloat64) - 8;
  const Tensor dx = grid - numbers[0], dy = grid.view(16, 1) - numbers[1], radius = numbers[2] / 2.5 + 4;
  return ((dx * dx + dy * dy < radius * radius).to(kFloat64) * 2 - 1).unsqueeze(1);
}

/// Converts the module to float64 and draws its weights. Of layers: uniform with the bound 1 / sqrt(elements per row);
/// of norms: 1 +- 0.1; biases: +- 0.1.
inline void draw_weights(nn::Module& module) {
  module.to(kFloat64);
  const NoGradGuard no_grad;
  uint32_t seed = 0;
  for (const auto& [name, parameter] : module.named_parameters()) {
    const Tensor values = drawn(parameter.shape(), seed++);
    if (parameter.dim() > 1)
      parameter.copy_(values / std::sqrt(static_cast<double>(parameter.numel() / parameter.size(0))));
    else
      parameter.copy_(values * 0.1 + (name.ends_with("weight") ? 1.0 : 0.0));
  }
}

/// Compares the first losses with PyTorch's.
inline void expect_recorded_losses(const std::vector<double>& losses, const std::string& name, double tolerance) {
  for (const auto& [key, tensor] : io::load_safetensors("tests/fixtures/nn/training.safetensors").tensors) {
    if (key != name) continue;
    const auto expected = tensor.to_vector<double>();
    ASSERT_LE(expected.size(), losses.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(losses[i], expected[i], tolerance) << name << ' ' << i;
    return;
  }
  FAIL() << "no losses of " << name;
}

}  // namespace tandem::testing
