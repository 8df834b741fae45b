// A list of parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

/// A list of parameters, named "0", "1", ... as in PyTorch:
///
///     nn::ParameterList& scales = add<nn::ParameterList>("scales");
///     for (int i = 0; i < 4; ++i) scales.append(ones({width}));
///     ...
///     for (const Tensor& scale : scales) x = x * scale;
class TANDEM_API ParameterList : public Module {
 public:
  ParameterList() = default;
  /// Appends each tensor.
  explicit ParameterList(const std::vector<Tensor>& values) {
    for (const Tensor& value : values) append(value);
  }
  /// Appends a parameter. Throws the errors of add_parameter().
  Tensor& append(Tensor value) {
    return parameters_.emplace_back(add_parameter(std::to_string(size()), std::move(value)));
  }
  int64_t size() const { return static_cast<int64_t>(parameters_.size()); }  ///< number of parameters
  /// Throws IndexError outside [0, size()).
  Tensor& operator[](int64_t index) const {
    TANDEM_CHECK(IndexError, index >= 0 && index < size(), "ParameterList: index is ", index,
                 ", expected 0 <= index < ", size());
    return parameters_[static_cast<size_t>(index)];
  }
  auto begin() const { return parameters_.begin(); }  ///< iterates over the parameters
  auto end() const { return parameters_.end(); }      ///< past the last parameter

 private:
  std::vector<std::reference_wrapper<Tensor>> parameters_;
};

}}}  // namespace tandem::v0::nn
