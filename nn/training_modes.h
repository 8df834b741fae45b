// Restores the modes of modules. Private to the library.
#pragma once

#include <utility>
#include <vector>

#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Sets the mode of a module and of the modules below; the destructor restores the previous mode of each module.
class TrainingModes {
 public:
  TrainingModes(Module& module, bool training) {
    for (Module* one : module.modules()) modes_.emplace_back(one, one->is_training());
    module.train(training);
  }
  ~TrainingModes() {
    for (const auto& [module, training] : modes_) module->train(training);  // parents come before their children
  }
  TrainingModes(const TrainingModes&) = delete;
  TrainingModes& operator=(const TrainingModes&) = delete;

 private:
  std::vector<std::pair<Module*, bool>> modes_;
};

}}}  // namespace tandem::v0::nn
