#include <tandem/models/lenet.h>

#include <tandem/ops/pool.h>

namespace tandem { inline namespace v0 { namespace models {

namespace {
constexpr nn::Conv2dOptions kWithRelu = {.activation = nn::Activation::kRelu};
}

LeNet::LeNet(const LeNetOptions& options)
    : conv1(add<nn::Conv2d>("conv1", options.in_channels, 32, 5, kWithRelu)),
      conv2(add<nn::Conv2d>("conv2", 32, 64, 5, kWithRelu)),
      fc1(add<nn::Linear>("fc1", 64 * 4 * 4, 128, {.activation = nn::Activation::kRelu})),
      fc2(add<nn::Linear>("fc2", 128, options.num_classes)) {}

Tensor LeNet::forward(const Tensor& images) {
  Tensor h = max_pool2d(conv1(images), 2);  // 28 -> 24 -> 12
  h = max_pool2d(conv2(h), 2);              // 12 -> 8 -> 4
  return fc2(fc1(h.flatten(1)));
}

}}}  // namespace tandem::v0::models
