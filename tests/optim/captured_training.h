// Small models that are trained on a GPU, for tests of cuda::Graph.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <tandem/ops/elementwise.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/random.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/clip_grad.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/factories.h>

namespace tandem::testing {

inline const Device kGpu("cuda:0");

/// A model with its data and optimizer. Two objects made by the same function start with the same values.
struct Training {
  std::vector<Tensor> parameters;
  std::vector<Tensor> buffers;
  Tensor input, labels;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::function<Tensor(const Training&)> forward;
  double max_norm = 0;  ///< of the gradients; 0: they are not clipped
  Tensor loss, norm;

  void step() {
    optimizer->zero_grad();
    loss = cross_entropy(forward(*this), labels);
    loss.backward();
    if (max_norm > 0) norm = optim::clip_grad_norm_(parameters, max_norm);
    optimizer->step();
  }
  /// The batch and the learning rate of step i.
  void prepare(int64_t i) const {
    Generator generator(static_cast<uint64_t>(100 + i));
    if (is_floating_point(input.dtype())) {
      input.copy_(rand(input.shape(), {input.dtype(), kGpu}, &generator));
    } else {
      input.copy_(randint(0, 7, input.shape(), {kInt64, kGpu}, &generator));
    }
    labels.copy_(randint(0, 5, labels.shape(), {kInt64, kGpu}, &generator));
    optimizer->set_lr(0.01 / static_cast<double>(i + 1));
  }
};

inline Tensor parameter(const Shape& shape, Generator& generator) {
  Tensor made = randn(shape, {kFloat32, kGpu}, &generator);
  made.mul_(0.2);
  made.requires_grad_();
  return made;
}

inline Training perceptron() {
  Generator generator(1);
  Training made;
  for (const Shape& shape : {Shape{16, 12}, Shape{16}, Shape{5, 16}, Shape{5}})
    made.parameters.push_back(parameter(shape, generator));
  made.input = empty({9, 12}, {kFloat32, kGpu});
  made.labels = empty({9}, {kInt64, kGpu});
  made.forward = [](const Training& t) {
    const Tensor hidden = dropout(linear_relu(t.input, t.parameters[0], t.parameters[1]), 0.4, true);
    return linear(hidden, t.parameters[2], t.parameters[3]);
  };
  return made;
}

inline std::unique_ptr<optim::Optimizer> two_groups(const Training& training) {
  const auto middle = training.parameters.begin() + 2;
  return std::make_unique<optim::AdamW>(std::vector<optim::ParameterGroup<optim::AdamWOptions>>{
      {.parameters = {training.parameters.begin(), middle}, .options = {.lr = 0.01, .weight_decay = 0.1}},
      {.parameters = {middle, training.parameters.end()}, .options = {.lr = 0.01, .weight_decay = 0}}});
}

inline std::unique_ptr<optim::Optimizer> with_momentum(const Training& training) {
  return std::make_unique<optim::SGD>(
      training.parameters, optim::SGDOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
}

using MakeOptimizer = std::unique_ptr<optim::Optimizer> (*)(const Training&);

}  // namespace tandem::testing
