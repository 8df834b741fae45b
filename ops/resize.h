// Resizing of images and signals, and rearrangements of pixels and channels.
#pragma once

#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Algorithms by which interpolate computes an element from its neighbours in the input.
enum class InterpolateMode {
  kNearest,       ///< element floor(i * scale)
  kNearestExact,  ///< the nearest element, floor((i + 0.5) * scale)
  kLinear,        ///< two neighbours of a signal [N, C, L], weighted by their distance
  kBilinear,      ///< four neighbours in an image [N, C, H, W]
  kBicubic,       ///< 16 neighbours in an image, weighted by cubic convolution with a = -0.75 (Keys, 1981)
  kArea,          ///< means of regions: adaptive_avg_pool
};

/// Options of interpolate: either a size or a scale factor, one number for all dimensions or one for each.
struct InterpolateOptions {
  Shape size = {};                        ///< of the result: {L'} or {H', W'}
  std::vector<double> scale_factor = {};  ///< ratio of the sizes of result and input; the product is rounded down
  InterpolateMode mode = InterpolateMode::kNearest;  ///< see InterpolateMode
  bool align_corners = false;           ///< the centers, not the outer edges, of the corner elements coincide
  bool recompute_scale_factor = false;  ///< coordinates use the ratio of the sizes instead of scale_factor
};

/// `input` [N, C, L] or [N, C, H, W] in another size. Element i of an axis has the coordinate scale (i + 0.5) - 0.5 in
/// the input, or scale i with align_corners; scale is 1 / scale_factor if that is given and not recomputed, else the
/// ratio of the sizes (with align_corners, of the sizes - 1).
///
/// Floating (DTypeError), any strides; coordinates and sums are float32, or float64 for float64, and half types are
/// rounded once. Result and gradient are channels-last if the input is, else row-major. Saves nothing. The gradient is
/// a gather without atomic additions, so that it has the same bits in every run. Throws ShapeError if the mode does not
/// accept input's number of dimensions, or for an image without elements. Throws ValueError unless exactly one of size
/// and scale_factor is given, with one number or one number per axis; unless sizes of the result are in [1, 2^31 - 1];
/// and for align_corners in the modes kNearest, kNearestExact and kArea.
TANDEM_OP Tensor interpolate(const Tensor& input, const InterpolateOptions& options);

/// Moves channels to pixels (Shi et al., 2016): [..., C r r, H, W] becomes [..., C, H r, W r] with r = upscale_factor.
/// Element [c, y r + i, x r + j] of the result is [c r r + i r + j, y, x] of the input.
///
/// Any dtype. A copy, here and in the two functions below; it is channels-last if the input is, else row-major. They
/// save nothing. Throw ShapeError for fewer than 3 dimensions or sizes that are not divisible, ValueError for a factor
/// or number of groups below 1.
TANDEM_OP Tensor pixel_shuffle(const Tensor& input, int64_t upscale_factor);
/// The inverse of pixel_shuffle: [..., C, H r, W r] becomes [..., C r r, H, W] with r = downscale_factor.
TANDEM_OP Tensor pixel_unshuffle(const Tensor& input, int64_t downscale_factor);
/// Interleaves the channels of `groups` groups of C / groups channels of input [N, C, ...] (Zhang et al., 2018).
/// Channel i * groups + g of the result is channel i of group g.
TANDEM_OP Tensor channel_shuffle(const Tensor& input, int64_t groups);

}}  // namespace tandem::v0
