#include <tandem/nn/conv.h>
#include <tandem/tests/nn/layer_cases.h>

namespace tandem::testing {

void add_conv_layers(LayerCases cases) {
  using nn::Conv1d, nn::Conv2d, nn::ConvTranspose1d, nn::ConvTranspose2d;
  cases.add("conv1d", [] { return Conv1d(4, 3, 3); });
  cases.add("conv1d_options",
            [] { return Conv1d(4, 6, 2, {.stride = 2, .padding = 1, .dilation = 2, .groups = 2, .bias = false}); });
  cases.add("conv1d_same", [] { return Conv1d(4, 2, 4, {.padding = kSame}); });
  cases.add("conv1d_unbatched", [] { return Conv1d(4, 2, 3, {.padding = 1}); });
  cases.add("conv2d", [] { return Conv2d(4, 3, 3); });
  cases.add("conv2d_options", [] {
    return Conv2d(4, 2, {2, 3}, {.stride = {1, 2}, .padding = {2, 1}, .dilation = {2, 1}, .groups = 2});
  });
  cases.add("conv2d_depthwise", [] { return Conv2d(4, 8, 3, {.padding = 1, .groups = 4, .bias = false}); });
  cases.add("conv2d_same", [] { return Conv2d(4, 2, {2, 3}, {.padding = kSame, .dilation = {1, 2}}); });
  cases.add("conv2d_unbatched", [] { return Conv2d(4, 2, 2); });
  cases.add("conv1d_reflect", [] { return Conv1d(4, 2, 3, {.padding = 2, .padding_mode = PadMode::kReflect}); });
  cases.add("conv2d_replicate", [] {
    return Conv2d(4, 2, 3, {.padding = {1, 2}, .padding_mode = PadMode::kReplicate});
  });
  cases.add("conv2d_circular", [] {
    return Conv2d(4, 2, {2, 3}, {.padding = kSame, .padding_mode = PadMode::kCircular});
  });
  cases.add("conv_transpose1d", [] { return ConvTranspose1d(4, 3, 3); });
  cases.add("conv_transpose1d_options", [] {
    return ConvTranspose1d(4, 2, 3,
                           {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2, .bias = false, .dilation = 2});
  });
  cases.add("conv_transpose2d", [] { return ConvTranspose2d(4, 2, 4, {.stride = 2, .padding = 1}); });
  cases.add("conv_transpose2d_options", [] {
    return ConvTranspose2d(
        4, 4, {2, 3}, {.stride = {3, 2}, .padding = {1, 0}, .output_padding = {1, 1}, .groups = 4, .dilation = {1, 2}});
  });
  cases.add(
      "conv_transpose2d_output_size",
      [](ConvTranspose2d& layer, const std::vector<Tensor>& in) {
        return layer(in[0], {8, 5});
      },
      [] { return ConvTranspose2d(4, 2, 3, {.stride = 2}); });
}

}  // namespace tandem::testing
