// Layers that resize images and rearrange pixels and channels.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>
#include <tandem/ops/resize.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Resizes x [N, C, L] or [N, C, H, W]: interpolate.
class TANDEM_API Upsample : public FunctionLayer {
 public:
  using Options = InterpolateOptions;  ///< of the constructor
  /// Size or scale factor, and mode: {.scale_factor = {2}, .mode = InterpolateMode::kBilinear}.
  explicit Upsample(InterpolateOptions options);
};

/// Upsample by the nearest elements.
class TANDEM_API UpsamplingNearest2d : public Upsample {
 public:
  /// Of the options, size and scale_factor are used.
  explicit UpsamplingNearest2d(const InterpolateOptions& options)
      : Upsample({.size = options.size, .scale_factor = options.scale_factor}) {}
};

/// Upsample by bilinear interpolation with align_corners.
class TANDEM_API UpsamplingBilinear2d : public Upsample {
 public:
  /// Of the options, size and scale_factor are used.
  explicit UpsamplingBilinear2d(const InterpolateOptions& options)
      : Upsample({.size = options.size,
                  .scale_factor = options.scale_factor,
                  .mode = InterpolateMode::kBilinear,
                  .align_corners = true}) {}
};

/// Moves channels to pixels: pixel_shuffle of x [..., C r r, H, W].
class TANDEM_API PixelShuffle : public FunctionLayer {
 public:
  /// The factor r.
  explicit PixelShuffle(int64_t upscale_factor);
};

/// Moves pixels to channels: pixel_unshuffle of x [..., C, H r, W r].
class TANDEM_API PixelUnshuffle : public FunctionLayer {
 public:
  /// The factor r.
  explicit PixelUnshuffle(int64_t downscale_factor);
};

/// Interleaves groups of channels: channel_shuffle of x [N, C, ...].
class TANDEM_API ChannelShuffle : public FunctionLayer {
 public:
  /// Number of groups.
  explicit ChannelShuffle(int64_t groups);
};

}}}  // namespace tandem::v0::nn
