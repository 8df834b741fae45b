// Training cases that benchmarks time: a model, one batch of random data and an optimizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/tandem.h>

namespace tandem::benchmarks {

/// A training case. All steps use the same random batch.
struct TrainingCase {
  int64_t items_per_step = 0;
  std::shared_ptr<nn::Layer> model;
  Tensor input;
  Tensor target;  ///< class of each row of the model's output; or, if floating-point, of the output's shape
  std::unique_ptr<optim::Optimizer> optimizer;
  /// Learning rate of steps whose losses are compared with PyTorch's. Smaller than the optimizer's for models whose
  /// losses diverge within a few steps between any two summation orders.
  double compared_lr = 0;
  /// Dtype of autocast; nullopt: no autocast, float32.
  std::optional<DType> autocast_dtype = {};

  /// Runs forward and returns the loss: cross entropy of classes, else the mean squared error.
  Tensor loss() {
    std::optional<Autocast> autocast;
    if (autocast_dtype) autocast.emplace(*autocast_dtype);
    const Tensor scores = (*model)(input);
    if (is_floating_point(target.dtype())) return mse_loss(scores, target);
    return cross_entropy(scores.reshape({-1, scores.size(-1)}), target);
  }

  /// Runs zero_grad, forward, backward and the optimizer's step; returns the loss.
  Tensor step() {
    optimizer->zero_grad();
    const Tensor result = loss();
    result.backward();
    optimizer->step();
    return result;
  }
};

/// Names that make_case accepts.
const std::vector<std::string>& case_names();
/// Creates a case on the CPU. Throws ValueError for an unknown name.
TrainingCase make_case(const std::string& name);
/// Moves a case to a device, before its first step.
void move_case(TrainingCase& training, Device device);

/// Creates a chain of communication hooks from "fp16", "bf16" and "power_sgd" (from the first step on); "none" adds
/// none.
distributed::CommHooks make_hooks(const std::vector<std::string>& names);

/// Writes weights, buffers and data to a safetensors file with the names "model.<key>", "input" and "target".
void save_case(const TrainingCase& training, const std::string& path);
/// Reads a file of save_case(). Throws StateError if keys, shapes or dtypes are not the case's.
void load_case(TrainingCase& training, const std::string& path);

}  // namespace tandem::benchmarks
