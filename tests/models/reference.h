// Results of torchvision, transformers and PyTorch, and the weights that tools/fixtures/model_fixtures.py draws too.
#pragma once

#include <string>

#include <tandem/nn/module.h>
#include <tandem/tensor/state.h>
#include <tandem/tensor/tensor.h>

namespace tandem::testing {

/// Draws float64 values of the tensors of a state, by their names (tied ones by the first): matrices and filters
/// uniform with the bound sqrt(3 / elements per row); weights of norms and variances 1 +- 0.1; other vectors +- 0.1.
void draw_state(const State& state);

/// Converts the module to float64 and evaluation mode, and draws its state.
void draw_module(nn::Module& module);

/// int64 numbers in [0, vocabulary).
Tensor drawn_tokens(const Shape& shape, int64_t vocabulary, uint32_t seed);

/// A recorded tensor.
Tensor recorded(const std::string& name);

/// Recorded text.
std::string recorded_text(const std::string& name);

/// One line "KEY SIZExSIZE" per tensor, in the order of the names.
std::string state_text(const State& state);

/// Expects equal shapes, and differences below `tolerance` times the largest expected magnitude.
void expect_close(const Tensor& actual, const Tensor& expected, double tolerance);

}  // namespace tandem::testing
