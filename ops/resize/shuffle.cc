#include <tandem/ops/resize.h>

#include <algorithm>
#include <limits>

#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using namespace ops;

namespace {

Tensor empty_like_order(const Shape& shape, const Tensor& input) {
  const bool channels_last = is_channels_last(input) && !input.is_contiguous();
  return channels_last ? empty_channels_last(shape, input.options()) : empty(shape, input.options());
}

/// Throws unless the input has three dimensions and the factor is in [1, 2^31 - 1], so that its square exists.
void check_shuffle(const char* op, const Tensor& input, const char* name, int64_t factor) {
  check_input(op, input, input.dim() >= 3, "input must have at least three dimensions");
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  check_input<ValueError>(op, input, factor >= 1 && factor <= kMax, name, " is ", factor, ", must be in [1, ", kMax,
                          "]");
}

void check_divisible(const char* op, const Tensor& input, int64_t dim, int64_t divisor) {
  check_input(op, input, divisor > 0 && input.size(dim) % divisor == 0, "dimension ", dim + input.dim(), " of size ",
              input.size(dim), " is not divisible by ", divisor);
}

/// Two views [..., C, r, r, H, W] of one permutation of elements: of channels, and of pixels.
Tensor blocks_in_channels(const Tensor& tensor, int64_t r) {
  return unflatten(tensor, -3, {tensor.size(-3) / (r * r), r, r});
}
Tensor blocks_in_pixels(const Tensor& tensor, int64_t r) {
  const Tensor rows = unflatten(tensor, -2, {tensor.size(-2) / r, r});
  const Tensor blocks = unflatten(rows, -1, {tensor.size(-1) / r, r});  // [..., C, H, r, W, r]
  Shape dims;
  for (int64_t d = 0; d < blocks.dim() - 4; ++d) dims.push_back(d);
  for (const int64_t d : {-3, -1, -4, -2}) dims.push_back(d);
  return permute(blocks, dims);
}

}  // namespace

Tensor pixel_shuffle(const Tensor& input, int64_t upscale_factor) {
  const Call call("pixel_shuffle", {{"input", input}});
  const int64_t r = upscale_factor;
  check_shuffle("pixel_shuffle", input, "upscale_factor", r);
  check_divisible("pixel_shuffle", input, -3, r * r);
  Shape shape = input.shape();
  const size_t dims = shape.size();
  shape[dims - 3] /= r * r;
  for (const size_t d : {dims - 2, dims - 1}) shape[d] = num_elements({shape[d], r});  // checks for overflow
  const Tensor out = empty_like_order(shape, input);
  {
    const NoGradGuard no_grad;
    primitives::copy(blocks_in_channels(input, r), blocks_in_pixels(out, r));
  }
  record_gradient("pixel_shuffle", out, {&input}, [r](const Tensor& grad) { return pixel_unshuffle(grad, r); });
  return out;
}

Tensor pixel_unshuffle(const Tensor& input, int64_t downscale_factor) {
  const Call call("pixel_unshuffle", {{"input", input}});
  const int64_t r = downscale_factor;
  check_shuffle("pixel_unshuffle", input, "downscale_factor", r);
  check_divisible("pixel_unshuffle", input, -2, r);
  check_divisible("pixel_unshuffle", input, -1, r);
  Shape shape = input.shape();
  const size_t dims = shape.size();
  shape[dims - 3] = num_elements({shape[dims - 3], r * r});  // checks for overflow
  shape[dims - 2] /= r;
  shape[dims - 1] /= r;
  const Tensor out = empty_like_order(shape, input);
  {
    const NoGradGuard no_grad;
    primitives::copy(blocks_in_pixels(input, r), blocks_in_channels(out, r));
  }
  record_gradient("pixel_unshuffle", out, {&input}, [r](const Tensor& grad) { return pixel_shuffle(grad, r); });
  return out;
}

Tensor channel_shuffle(const Tensor& input, int64_t groups) {
  const Call call("channel_shuffle", {{"input", input}});
  check_shuffle("channel_shuffle", input, "groups", groups);
  check_divisible("channel_shuffle", input, 1 - input.dim(), groups);
  const int64_t each = input.size(1) / groups;
  const Tensor out = empty_like_order(input.shape(), input);
  {
    const NoGradGuard no_grad;
    primitives::copy(transpose(unflatten(input, 1, {groups, each}), 1, 2), unflatten(out, 1, {each, groups}));
  }
  record_gradient("channel_shuffle", out, {&input}, [inverse = std::max<int64_t>(each, 1)](const Tensor& grad) {
    return channel_shuffle(grad, inverse);
  });
  return out;
}

}}  // namespace tandem::v0
