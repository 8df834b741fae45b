#include <tandem/tests/nn/layer_cases.h>
#include <tandem/tests/nn/nn.h>

namespace tandem::testing {

namespace {

void add_pools(LayerCases& cases) {
  const auto with_indices = [](auto& layer, const std::vector<Tensor>& in) {
    const ValuesIndices result = layer.with_indices(in[0]);
    return std::vector<Tensor>{result.values, result.indices};
  };
  const auto unpool = [](auto& layer, const std::vector<Tensor>& in) { return layer(in[0], in[1]); };
  cases.add("max_pool1d", [] { return nn::MaxPool1d(3, {.stride = 2, .padding = 1}); });
  cases.add("max_pool1d_indices", with_indices, [] { return nn::MaxPool1d(2, {.dilation = 2}); });
  cases.add("max_pool2d", [] { return nn::MaxPool2d(2, {.ceil_mode = true}); });
  cases.add("max_pool2d_indices", with_indices, [] {
    return nn::MaxPool2d({3, 2}, {.stride = Size2d{2, 1}, .padding = 1});
  });
  cases.add("avg_pool1d", [] { return nn::AvgPool1d(3, {.stride = 2, .padding = 1, .count_include_pad = false}); });
  cases.add("avg_pool2d", [] { return nn::AvgPool2d(2, {.ceil_mode = true}); });
  cases.add("avg_pool2d_divisor", [] {
    return nn::AvgPool2d({2, 3}, {.stride = 1, .padding = 1, .divisor_override = 5});
  });
  cases.add("adaptive_avg_pool1d", [] { return nn::AdaptiveAvgPool1d(4); });
  cases.add("adaptive_avg_pool2d", [] { return nn::AdaptiveAvgPool2d({std::nullopt, 3}); });
  cases.add("global_avg_pool2d", [] { return nn::AdaptiveAvgPool2d(1); });
  cases.add("adaptive_max_pool1d", [] { return nn::AdaptiveMaxPool1d(4); });
  cases.add("adaptive_max_pool2d", [] { return nn::AdaptiveMaxPool2d({3, 2}); });
  cases.add("adaptive_max_pool2d_indices", with_indices, [] { return nn::AdaptiveMaxPool2d({3, std::nullopt}); });
  cases.add("max_unpool1d", unpool, [] { return nn::MaxUnpool1d(2); });
  cases.add("max_unpool2d", unpool, [] { return nn::MaxUnpool2d(2); });
}

void add_pads(LayerCases& cases) {
  cases.add("constant_pad1d", [] { return nn::ConstantPad1d({1, 2}, 0.5); });
  cases.add("constant_pad2d", [] { return nn::ConstantPad2d({1, -1, 0, 2}, 2); });
  cases.add("zero_pad1d", [] { return nn::ZeroPad1d(1); });
  cases.add("zero_pad2d", [] { return nn::ZeroPad2d(1); });
  cases.add("reflection_pad1d", [] { return nn::ReflectionPad1d({3, 1}); });
  cases.add("reflection_pad2d", [] { return nn::ReflectionPad2d({1, 2, 0, 3}); });
  cases.add("replication_pad1d", [] { return nn::ReplicationPad1d(2); });
  cases.add("replication_pad2d", [] { return nn::ReplicationPad2d({1, 2, 0, 3}); });
  cases.add("circular_pad1d", [] { return nn::CircularPad1d({2, 6}); });
  cases.add("circular_pad2d", [] { return nn::CircularPad2d({1, 2, 0, 3}); });
}

}  // namespace

void add_resize_layers(LayerCases cases) {
  using nn::Upsample;
  add_pools(cases);
  add_pads(cases);
  cases.add("upsample", [] { return Upsample({.scale_factor = {2}}); });
  cases.add("upsample_nearest_exact", [] {
    return Upsample({.size = {7, 3}, .mode = InterpolateMode::kNearestExact});
  });
  cases.add("upsample_linear", [] { return Upsample({.scale_factor = {1.5}, .mode = InterpolateMode::kLinear}); });
  cases.add("upsample_bilinear", [] {
    return Upsample({.scale_factor = {2, 1.6}, .mode = InterpolateMode::kBilinear});
  });
  cases.add("upsample_bilinear_recomputed", [] {
    return Upsample({.scale_factor = {2, 1.6}, .mode = InterpolateMode::kBilinear, .recompute_scale_factor = true});
  });
  cases.add("upsample_bicubic", [] {
    return Upsample({.size = {3, 7}, .mode = InterpolateMode::kBicubic, .align_corners = true});
  });
  cases.add("upsampling_nearest2d", [] { return nn::UpsamplingNearest2d({.scale_factor = {2}}); });
  cases.add("upsampling_bilinear2d", [] { return nn::UpsamplingBilinear2d({.size = {6, 9}}); });
  cases.add("pixel_shuffle", [] { return nn::PixelShuffle(2); });
  cases.add("pixel_unshuffle", [] { return nn::PixelUnshuffle(2); });
  cases.add("channel_shuffle", [] { return nn::ChannelShuffle(2); });
}

}  // namespace tandem::testing
