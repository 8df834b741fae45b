#include <tandem/nn/norm.h>
#include <tandem/tests/nn/layer_cases.h>

namespace tandem::testing {

void add_norm_layers(LayerCases cases) {
  cases.add("batch_norm1d", [] { return nn::BatchNorm1d(4); });
  cases.add("batch_norm1d_signal", [] { return nn::BatchNorm1d(4, {.eps = 0.1, .momentum = 0.3}); });
  cases.add("batch_norm1d_cumulative", [] { return nn::BatchNorm1d(4, {.momentum = std::nullopt, .affine = false}); });
  cases.add("batch_norm2d", [] { return nn::BatchNorm2d(4); });
  cases.add("batch_norm2d_untracked", [] { return nn::BatchNorm2d(4, {.track_running_stats = false}); });
  cases.add("instance_norm1d", [] { return nn::InstanceNorm1d(4); });
  cases.add("instance_norm1d_unbatched", [] { return nn::InstanceNorm1d(4, {.affine = true}); });
  cases.add("instance_norm2d", [] { return nn::InstanceNorm2d(4, {.eps = 0.1, .affine = true}); });
  cases.add("instance_norm2d_tracked",
            [] { return nn::InstanceNorm2d(4, {.momentum = 0.4, .affine = true, .track_running_stats = true}); });
  cases.add("group_norm", [] { return nn::GroupNorm(2, 4); });
  cases.add("group_norm_rows", [] { return nn::GroupNorm(2, 4, {.eps = 0.1, .affine = false}); });
  cases.add("group_norm_all", [] { return nn::GroupNorm(1, 4); });
  cases.add("group_norm_channels", [] { return nn::GroupNorm(4, 4); });
  cases.add("layer_norm", [] { return nn::LayerNorm(4); });
  cases.add("layer_norm_shape", [] { return nn::LayerNorm({5, 4}, {.eps = 0.1}); });
  cases.add("layer_norm_no_bias", [] { return nn::LayerNorm(4, {.bias = false}); });
  cases.add("layer_norm_plain", [] { return nn::LayerNorm(4, {.affine = false}); });
  cases.add("rms_norm", [] { return nn::RMSNorm(4); });
  cases.add("rms_norm_shape", [] { return nn::RMSNorm({5, 4}, {.eps = 0.1}); });
  cases.add("rms_norm_plain", [] { return nn::RMSNorm(4, {.elementwise_affine = false}); });
}

}  // namespace tandem::testing
