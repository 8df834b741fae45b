// The training steps that benchmarks time: network, data of fixed shape, optimizer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tandem/tandem.h>

namespace tandem::benchmarks {

/// One training step on the same random batch again and again.
struct TrainingCase {
  std::string name;
  int64_t items_per_step = 0;
  std::shared_ptr<nn::Module> model;
  /// Output of the network: what a DistributedDataParallel would call.
  std::function<Tensor()> loss;
  std::unique_ptr<optim::Optimizer> optimizer;

  void step() {
    optimizer->zero_grad();
    loss().backward();
    optimizer->step();
  }
};

/// Names that make_case accepts.
const std::vector<std::string>& case_names();
/// Builds a case on the CPU.  Throws ValueError for an unknown name.
TrainingCase make_case(const std::string& name);

}  // namespace tandem::benchmarks
