// A sequence of layers.
#pragma once

#include <memory>
#include <utility>

#include <tandem/base/macros.h>
#include <tandem/nn/module_container.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Applies its layers, which are named "0", "1", ... as in PyTorch, one after the other:
///
///     nn::Sequential net;
///     net.append<nn::Linear>(784, 1024);
///     net.append<nn::ReLU>();
///
/// or nn::Sequential net(std::make_unique<nn::Linear>(784, 1024), std::make_unique<nn::ReLU>()). Layers with other
/// names are added by add(). Returns its input if it has no layers.
class TANDEM_API Sequential : public IndexedContainer<Layer, Layer> {
 public:
  /// Adds the layers with the names "0", "1", ...
  template <class... Layers>
  explicit Sequential(std::unique_ptr<Layers>... layers) {
    (append(std::move(layers)), ...);
  }

  Tensor forward(const Tensor& input) override;
};

}}}  // namespace tandem::v0::nn
