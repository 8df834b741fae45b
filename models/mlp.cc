#include <tandem/models/mlp.h>

#include <string>

namespace tandem { inline namespace v0 { namespace models {

Mlp::Mlp(const MlpOptions& options) {
  int64_t features = options.in_features;
  const auto append = [&](int64_t out_features, bool relu) {
    layers.push_back(&add<nn::Linear>("fc" + std::to_string(layers.size() + 1), features, out_features,
                                      nn::LinearOptions{.relu = relu}));
    features = out_features;
  };
  for (const int64_t width : options.hidden) append(width, true);
  append(options.num_classes, false);
}

Tensor Mlp::forward(const Tensor& x) {
  Tensor h = x.flatten(1);
  for (nn::Linear* layer : layers) h = (*layer)(h);
  return h;
}

}}}  // namespace tandem::v0::models
