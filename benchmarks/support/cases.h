// The training steps that benchmarks time: network, data of fixed shape, optimizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/tandem.h>

namespace tandem::benchmarks {

/// One training step on the same random batch again and again.
struct TrainingCase {
  int64_t items_per_step = 0;
  std::shared_ptr<nn::Layer> model;
  Tensor input;
  Tensor target;  ///< class of each row of the network's output
  std::unique_ptr<optim::Optimizer> optimizer;
  /// Learning rate of steps whose losses are compared with another program's.  Where it is less than the optimizer's, the
  /// optimizer's makes any two orders of summation grow apart within a few steps.
  double compared_lr = 0;
  /// Of products and convolutions, by autocast; none: float32.
  std::optional<DType> product_dtype = {};

  /// The forward part of a step.
  Tensor loss() {
    std::optional<Autocast> autocast;
    if (product_dtype) autocast.emplace(*product_dtype);
    const Tensor scores = (*model)(input);
    return cross_entropy(scores.reshape({-1, scores.size(-1)}), target);
  }

  /// One step; returns its loss.
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
/// Builds a case on the CPU.  Throws ValueError for an unknown name.
TrainingCase make_case(const std::string& name);
/// Moves a case that has made no step.
void move_case(TrainingCase& training, Device device);

/// Gradient hooks, one after the other: "fp16", "bf16", "power_sgd" from the first step on; "none" is none.
distributed::CommHooks hooks_named(const std::vector<std::string>& names);

/// Writes weights, buffers and data to a safetensors file: "model.<key>", "input", "target".
void save_case(const TrainingCase& training, const std::string& path);
/// Takes them from there.  Throws StateError for keys or shapes that are not the case's.
void load_case(TrainingCase& training, const std::string& path);

}  // namespace tandem::benchmarks
