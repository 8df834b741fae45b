// Functions of images: resizing and changes of color, as torchvision.transforms.functional.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace data {

/// Filters of resize_image.
enum class Interpolation {
  kBilinear,  ///< a triangle of radius 1
  kBicubic,  ///< R. Keys, "Cubic convolution interpolation for digital image processing", 1981, with a = -1/2; radius 2
};

/// Resizes an image [C, H, W] of uint8 or float32 to [C, height, width] with antialiasing, as Pillow's Image.resize. A
/// pixel of the result is the mean of the pixels around its position, weighted by the filter. The filter's radius is
/// multiplied by the scale if the image becomes smaller. Rows are resized first, then columns; uint8 values are rounded
/// after each pass and are equal to those of Pillow 9.5 to 12.2 (13.0 gives other values for some sizes). Throws
/// ValueError unless both sizes are from 1 to 65535; ShapeError for an image without pixels or another number of
/// dimensions; DTypeError; DeviceError unless the image is on the CPU.
TANDEM_API Tensor resize_image(const Tensor& image, int64_t height, int64_t width,
                               Interpolation interpolation = Interpolation::kBilinear);

/// The window of `height` rows from `top` and `width` columns from `left`, with zeros where it extends beyond the image
/// (torchvision's crop). As for all functions of this header, images are [C, H, W], uint8 or float32, on the CPU; the
/// functions throw ShapeError, DTypeError and DeviceError for other images. Throws ValueError for a negative size.
TANDEM_API Tensor crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width);
/// The image with left and right exchanged.
TANDEM_API Tensor hflip(const Tensor& image);
/// The image with top and bottom exchanged.
TANDEM_API Tensor vflip(const Tensor& image);

/// factor * image, clamped to the range of the dtype: uint8 (results are truncated) or float32 in [0, 1]. This and the
/// following functions are torchvision's. They throw ValueError for a factor that is negative or not finite.
TANDEM_API Tensor adjust_brightness(const Tensor& image, double factor);
/// factor * image + (1 - factor) * (mean of the gray values), clamped; C is 1 or 3. The gray value is 0.2989 R + 0.587
/// G + 0.114 B.
TANDEM_API Tensor adjust_contrast(const Tensor& image, double factor);
/// factor * image + (1 - factor) * (gray values), clamped; C is 3.
TANDEM_API Tensor adjust_saturation(const Tensor& image, double factor);
/// Adds `factor` turns to the hue of each pixel in the HSV color space; C is 3. Throws ValueError for a factor outside
/// [-0.5, 0.5].
TANDEM_API Tensor adjust_hue(const Tensor& image, double factor);

}}}  // namespace tandem::v0::data
