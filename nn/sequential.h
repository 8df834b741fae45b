// A sequence of layers.
#pragma once

#include <utility>

#include <tandem/base/macros.h>
#include <tandem/nn/module_container.h>

namespace tandem { inline namespace v0 { namespace nn {

/// A layer with a second input, such as the embedding of a time step or of a class. Derived classes override the first
/// forward().
class TANDEM_API ConditionalLayer : public Layer {
 public:
  /// The layer's function.
  virtual Tensor forward(const Tensor& input, const Tensor& condition) = 0;
  Tensor forward(const Tensor& input) final;  ///< throws ValueError, because the condition is missing
  /// Calls forward(input, condition) in a ModuleScope of this module.
  Tensor operator()(const Tensor& input, const Tensor& condition) {
    return call(input, [&](const Tensor& value) { return forward(value, condition); });
  }
};

/// Applies its layers, which are named "0", "1", ... as in PyTorch, one after the other:
///
///     nn::Sequential net(nn::Linear(784, 1024), nn::ReLU(), [](const Tensor& x) { return log_softmax(x, 1); });
///     net.append<nn::Linear>(1024, 10, {.bias = false});
///
/// Layers with other names are added by add(). net(x, condition) also passes the condition to each ConditionalLayer and
/// Sequential in it. Returns its input if it has no layers.
class TANDEM_API Sequential : public IndexedContainer<Layer, Layer> {
 public:
  /// Adds the layers with the names "0", "1", ..., as append(): by value, by std::unique_ptr, or functions of a tensor.
  template <class... Layers>
  explicit Sequential(Layers&&... layers) {
    (append(std::forward<Layers>(layers)), ...);
  }

  Tensor forward(const Tensor& input) override { return run(input, nullptr); }
  using Layer::operator();
  /// With the second input of its conditional layers.
  Tensor operator()(const Tensor& input, const Tensor& condition) {
    return call(input, [&](const Tensor& value) { return run(value, &condition); });
  }

 private:
  Tensor run(const Tensor& input, const Tensor* condition);
};

}}}  // namespace tandem::v0::nn
