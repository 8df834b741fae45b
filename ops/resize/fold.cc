#include <tandem/base/math.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/index.h>
#include <tandem/ops/pad.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 {

using ops::operand_error;
using ops::Operands;

namespace {

void check_options(const char* op, Size2d kernel, const FoldOptions& options) {
  const auto is_positive = [](Size2d size) { return size.height >= 1 && size.width >= 1; };
  TANDEM_CHECK(ValueError,
               is_positive(kernel) && is_positive(options.dilation) && is_positive(options.stride) &&
                   options.padding.height >= 0 && options.padding.width >= 0,
               op, ": kernel_size ", kernel, ", dilation ", options.dilation, " and stride ", options.stride,
               " must be at least 1, and padding ", options.padding, " at least 0");
}

/// The windows of images without padding, [N, C, kh, kw, rows, columns]: a view.
Tensor windows(const char* op, const Tensor& images, Size2d kernel, const FoldOptions& options) {
  const int64_t height = saturating_add(saturating_mul(options.dilation.height, kernel.height - 1), 1);
  const int64_t width = saturating_add(saturating_mul(options.dilation.width, kernel.width - 1), 1);
  TANDEM_CHECK(ShapeError, images.size(2) >= height && images.size(3) >= width, op, ": no window of ", height, " x ",
               width, " fits into ", images.size(2), " x ", images.size(3));
  return images.unfold(2, height, options.stride.height)
      .unfold(3, width, options.stride.width)
      .slice(4, 0, height, options.dilation.height)
      .slice(5, 0, width, options.dilation.width)
      .permute(0, 1, 4, 5, 2, 3);
}

}  // namespace

Tensor unfold(const Tensor& input, Size2d kernel_size, FoldOptions options) {
  const ops::Call call("unfold", {{"input", input}});
  check_options("unfold", kernel_size, options);
  call.require(input.dim() == 3 || input.dim() == 4, "input must be [N, C, H, W] or [C, H, W]");
  const Size2d sides = options.padding;
  const Tensor images =
      pad(input.dim() == 3 ? input.unsqueeze(0) : input, {sides.width, sides.width, sides.height, sides.height});
  const Tensor columns = windows("unfold", images, kernel_size, options).flatten(4).flatten(1, 3);
  return input.dim() == 3 ? columns.squeeze(0) : columns;
}

Tensor fold(const Tensor& input, Size2d output_size, Size2d kernel_size, FoldOptions options) {
  const ops::Call call("fold", {{"input", input}});
  check_options("fold", kernel_size, options);
  const Size2d sides = options.padding;
  const int64_t height = saturating_add(output_size.height, saturating_mul(2, sides.height));
  const int64_t width = saturating_add(output_size.width, saturating_mul(2, sides.width));
  const int64_t taps = saturating_mul(kernel_size.height, kernel_size.width);
  const Tensor numbers = arange(0, num_elements({height, width}), 1, input.device()).view(1, 1, height, width);
  const Tensor places = windows("fold", numbers, kernel_size, options).flatten();
  call.require((input.dim() == 2 || input.dim() == 3) && input.size(-2) % taps == 0 &&
                   saturating_mul(taps, input.size(-1)) == places.numel(),
               "input must be [N, C * ", taps, ", ", places.numel() / taps, "]");
  const int64_t n = input.dim() == 3 ? input.size(0) : 1, c = input.size(-2) / taps;
  const Tensor sums =
      index_add(zeros({n, c, height * width}, input.options()), 2, places, input.reshape({n, c, places.numel()}));
  const Tensor images = sums.view(n, c, height, width)
                            .narrow(2, sides.height, output_size.height)
                            .narrow(3, sides.width, output_size.width);
  return (input.dim() == 3 ? images : images.squeeze(0)).contiguous();
}

}}  // namespace tandem::v0
