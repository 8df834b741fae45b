// A list of modules.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

/// A list of modules of type T, named "0", "1", ... as in PyTorch, which the model calls itself:
///
///     nn::ModuleList<Block>& blocks = add<nn::ModuleList<Block>>("blocks");
///     ...
///     for (Block* block : blocks) x = (*block)(x, mask);
template <class T = Layer>
class ModuleList : public Module {
 public:
  /// Appends a module U(args...).
  template <class U = T, class... Args>
  U& append(Args&&... args) {
    return append(std::make_unique<U>(std::forward<Args>(args)...));
  }
  template <class U>
  U& append(std::unique_ptr<U> module) {
    U& result = add_module(std::to_string(modules_.size()), std::move(module));
    modules_.push_back(&result);
    return result;
  }

  int64_t size() const { return static_cast<int64_t>(modules_.size()); }  ///< number of modules
  /// Throws IndexError outside [0, size()).
  T& operator[](int64_t index) const {
    TANDEM_CHECK(IndexError, index >= 0 && index < size(), "ModuleList: index is ", index, ", expected 0 <= index < ",
                 size());
    return *modules_[static_cast<size_t>(index)];
  }
  auto begin() const { return modules_.begin(); }  ///< iterates over pointers to the modules
  auto end() const { return modules_.end(); }      ///< behind the last module

 private:
  std::vector<T*> modules_;
};

}}}  // namespace tandem::v0::nn
