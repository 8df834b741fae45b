// A multilayer perceptron.
#pragma once

#include <cstdint>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace models {

/// Sizes of Mlp; by default for images of 28x28.
struct MlpOptions {
  int64_t in_features = 784;                   ///< elements of a sample
  std::vector<int64_t> hidden = {1024, 1024};  ///< widths of the hidden layers
  int64_t num_classes = 10;                    ///< number of logits
};

/// x [N, ...] -> logits [N, num_classes]: x is flattened to [N, in_features], and passes linear layers with ReLU
/// between them.
///
/// Keys fc1.weight, fc1.bias, fc2.weight and so on. Initial values are those of nn::Linear.
class TANDEM_API Mlp : public nn::Layer {
 public:
  /// Throws ValueError unless all sizes are at least 1.
  explicit Mlp(const MlpOptions& options = {});
  Tensor forward(const Tensor& x) override;

  std::vector<nn::Linear*> layers;  ///< fc1, fc2, ...; all except the last with fused ReLU
};

}}}  // namespace tandem::v0::models
