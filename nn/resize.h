// Layers that resize images and rearrange pixels and channels.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>
#include <tandem/ops/resize.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Resizes x [N, C, L] or [N, C, H, W]: interpolate.
class TANDEM_API Upsample : public Layer {
 public:
  using Options = InterpolateOptions;  ///< of the constructor
  /// Size or scale factor, and mode: {.scale_factor = {2}, .mode = InterpolateMode::kBilinear}.
  explicit Upsample(InterpolateOptions options) : options_(std::move(options)) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  InterpolateOptions options_;
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
class TANDEM_API PixelShuffle : public Layer {
 public:
  /// The factor r.
  explicit PixelShuffle(int64_t upscale_factor) : upscale_factor_(upscale_factor) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  int64_t upscale_factor_;
};

/// Moves pixels to channels: pixel_unshuffle of x [..., C, H r, W r].
class TANDEM_API PixelUnshuffle : public Layer {
 public:
  /// The factor r.
  explicit PixelUnshuffle(int64_t downscale_factor) : downscale_factor_(downscale_factor) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  int64_t downscale_factor_;
};

/// Interleaves groups of channels: channel_shuffle of x [N, C, ...].
class TANDEM_API ChannelShuffle : public Layer {
 public:
  /// Number of groups.
  explicit ChannelShuffle(int64_t groups) : groups_(groups) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  int64_t groups_;
};

}}}  // namespace tandem::v0::nn
