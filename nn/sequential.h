// A sequence of layers.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Applies its layers, which are named "0", "1", ... as in PyTorch, one after the other:
///
///     nn::Sequential net;
///     net.append<nn::Linear>(784, 1024);
///     net.append<nn::ReLU>();
///
/// or nn::Sequential net(std::make_unique<nn::Linear>(784, 1024), std::make_unique<nn::ReLU>()). Returns its input if
/// it has no layers.
class TANDEM_API Sequential : public Layer {
 public:
  /// Makes the layers the parts "0", "1", ...
  template <class... Layers>
  explicit Sequential(std::unique_ptr<Layers>... layers) {
    (append(std::move(layers)), ...);
  }

  /// Appends a layer T(args...).
  template <class T, class... Args>
  T& append(Args&&... args) {
    return append(std::make_unique<T>(std::forward<Args>(args)...));
  }
  template <class T>
  T& append(std::unique_ptr<T> layer) {
    T& result = add_module(std::to_string(layers_.size()), std::move(layer));
    layers_.push_back(&result);
    return result;
  }

  Tensor forward(const Tensor& input) override;
  int64_t size() const { return static_cast<int64_t>(layers_.size()); }  ///< number of layers
  /// Throws IndexError outside [0, size()).
  Layer& operator[](int64_t index) const;

 private:
  std::vector<Layer*> layers_;
};

}}}  // namespace tandem::v0::nn
