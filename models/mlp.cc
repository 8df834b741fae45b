#include <tandem/models/mlp.h>

#include <string>

namespace tandem { inline namespace v0 { namespace models {

Mlp::Mlp(const MlpOptions& options) {
  int64_t features = options.in_features;
  const auto append = [&](int64_t out_features, nn::Activation activation) {
    layers.push_back(
        &add<nn::Linear>("fc" + std::to_string(layers.size() + 1), features, out_features, {.activation = activation}));
    features = out_features;
  };
  for (const int64_t width : options.hidden) append(width, nn::Activation::kRelu);
  append(options.num_classes, nn::Activation::kNone);
}

Tensor Mlp::forward(const Tensor& x) {
  Tensor h = x.flatten(1);
  for (nn::Linear* layer : layers) h = (*layer)(h);
  return h;
}

}}}  // namespace tandem::v0::models
