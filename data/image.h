// Images: reading and writing PNG and JPEG files, grids of images.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace data {

/// Channels of a decoded image, as torchvision.io.ImageReadMode.
enum class ImageReadMode {
  kUnchanged,  ///< as stored: gray; gray and alpha; RGB; RGB and alpha. A palette and CMYK are converted to RGB
  kGray,       ///< one channel: the Y of a JPEG file, which is by a few levels not the gray of its rounded RGB pixels,
               ///< Pillow's convert("L"); (19595 R + 38470 G + 7471 B + 2^15) / 2^16 of other colors
  kRgb,        ///< three channels; alpha is dropped
};

/// Decodes the bytes of a PNG or JPEG file to uint8 [C, H, W], as torchvision.io.decode_image and Pillow. The first
/// bytes determine the format. Samples of 16 bits lose their lower byte; gamma, color profiles and EXIF orientation are
/// ignored.
///
/// Throws IoError "decode_image: ..." for other formats, for incomplete data (a PNG file may lack its last chunk, IEND,
/// which is empty), for data that violates the format, for a wrong checksum of any chunk of a PNG file, for images of
/// more than 2^28 pixels, and for images whose size is impossible for the number of bytes: one byte of a PNG file
/// encodes at most 1032 bytes of pixels, one byte of a JPEG file at most 2048 pixels. So the size of the file bounds
/// the memory of decoding, to at most 66048 times the size (a palette image of one bit per pixel). Also throws for JPEG
/// files with more than 100 scans, or with more than 2^32 / (number of pixels) scans. JPEG files have no checksums: as
/// in Pillow and torchvision, pixels that are damaged or missing before the end marker are decoded to other values,
/// without an error.
TANDEM_API Tensor decode_image(std::string_view bytes, ImageReadMode mode = ImageReadMode::kUnchanged);

/// decode_image of a file. Error texts begin with "read_image: 'PATH'". Throws IoError if the file cannot be read.
TANDEM_API Tensor read_image(const std::string& path, ImageReadMode mode = ImageReadMode::kUnchanged);

/// The bytes of a PNG file of `image` [C, H, W], where C is 1 (gray) or 3 (RGB): uint8, or float32 with values in [0,
/// 1], which are rounded to 255ths; values outside are clamped, and NaN becomes 0. The result is a pure function of the
/// pixels. Throws DTypeError, ShapeError, or DeviceError unless the image is on the CPU; ValueError for more than 2^28
/// pixels; IoError for a side above 10^6.
TANDEM_API std::string encode_png(const Tensor& image);

/// Writes encode_png(image) to a file. Throws the errors of encode_png, and IoError.
TANDEM_API void write_png(const std::string& path, const Tensor& image);

/// The bytes of a JPEG file of `image`, as encode_png accepts it, with colors at half of the resolution (4:2:0), as
/// torchvision.io.encode_jpeg. `quality`: 1 to 100. Throws as encode_png, and ValueError for another quality; IoError
/// for a side above 65500.
TANDEM_API std::string encode_jpeg(const Tensor& image, int quality = 75);

/// Writes encode_jpeg(image, quality) to a file. Throws the errors of encode_jpeg, and IoError.
TANDEM_API void write_jpeg(const std::string& path, const Tensor& image, int quality = 75);

/// Options of make_grid.
struct MakeGridOptions {
  int64_t nrow = 8;        ///< images in a row
  int64_t padding = 2;     ///< pixels between images and at the border
  bool normalize = false;  ///< maps the range of values to [0, 1]; for float32 images only
  /// The range [low, high] for `normalize`, to which values are clamped; default: minimum and maximum of all images.
  std::optional<std::pair<double, double>> value_range = {};
  double pad_value = 0;  ///< value of the pixels between images
};

/// Arranges images [N, C, H, W] in rows, as torchvision.utils.make_grid: [3, rows (H + padding) + padding, columns (W +
/// padding) + padding], where columns = min(nrow, N) and rows = ceil(N / columns); one image is returned without
/// padding. C is 1, which is repeated, or 3. An image [C, H, W] or [H, W] is accepted too. The dtype is uint8 or
/// float32; the result is on the CPU.
///
/// Throws ShapeError, DTypeError, DeviceError unless the images are on the CPU, and ValueError for nrow < 1, a negative
/// padding or value_range.first >= value_range.second.
TANDEM_API Tensor make_grid(const Tensor& images, MakeGridOptions options = {});

}}}  // namespace tandem::v0::data
