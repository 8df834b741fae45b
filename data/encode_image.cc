#include <cstddef>
#include <cstdio>  // both needed by jpeglib.h

#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <string>
#include <vector>

#include <tandem/base/file.h>
#include <tandem/data/check_image.h>
#include <tandem/data/decode.h>
#include <tandem/data/image.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

/// An image [height, width, channels].
struct Pixels {
  std::vector<uint8_t> values;
  int64_t height;
  int64_t width;
  int64_t channels;
};

/// Checks an image [C, H, W] and converts it to bytes, as encode_png describes.
Pixels to_pixels(const char* op, const Tensor& image) {
  check_on_cpu(op, image);
  TANDEM_CHECK(ShapeError, image.dim() == 3 && (image.size(0) == 1 || image.size(0) == 3) && image.numel() > 0, op,
               ": the image has shape ", image.shape(), ", expected [C, H, W] with C = 1 or 3, and at least one pixel");
  const int64_t channels = image.size(0);
  const int64_t count = image.size(1) * image.size(2);
  TANDEM_CHECK(ValueError, count <= kMaxPixels, op, ": the image has ", count, " pixels, expected at most 2^28");
  Tensor floats = empty(image.shape());
  primitives::copy(image, floats);
  const auto scale = image.dtype() == kUInt8 ? 1.0f : 255.0f;
  Pixels pixels = {std::vector<uint8_t>(static_cast<size_t>(channels * count)), image.size(1), image.size(2), channels};
  for (int64_t c = 0; c < channels; ++c) {
    const float* from = floats.data<float>() + c * count;
    uint8_t* to = pixels.values.data() + c;
    for (int64_t i = 0; i < count; ++i)
      to[channels * i] = static_cast<uint8_t>(std::max(0.0f, std::min(from[i] * scale + 0.5f, 255.0f)));  // NaN: 0
  }
  return pixels;
}

struct JpegEncoder {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  Failure failure;
  unsigned char* bytes;
  unsigned long size;
};

[[noreturn]] void fail_encoding(j_common_ptr info) {
  auto* jpeg = static_cast<JpegEncoder*>(info->client_data);
  info->err->format_message(info, jpeg->failure.text);
  std::longjmp(jpeg->failure.jump, 1);
}

/// Returns false after an error.
bool compress(JpegEncoder& jpeg, uint8_t* pixels, int64_t height, int64_t width, int channels, int quality) {
  jpeg.info.err = jpeg_std_error(&jpeg.errors);
  jpeg.info.client_data = &jpeg;
  jpeg.errors.error_exit = fail_encoding;
  if (setjmp(jpeg.failure.jump) != 0) return false;
  jpeg_create_compress(&jpeg.info);
  jpeg_mem_dest(&jpeg.info, &jpeg.bytes, &jpeg.size);
  jpeg.info.image_height = static_cast<JDIMENSION>(height);
  jpeg.info.image_width = static_cast<JDIMENSION>(width);
  jpeg.info.input_components = channels;
  jpeg.info.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&jpeg.info);
  jpeg_set_quality(&jpeg.info, quality, TRUE);
  jpeg_start_compress(&jpeg.info, TRUE);
  while (jpeg.info.next_scanline < jpeg.info.image_height) {
    uint8_t* row = pixels + jpeg.info.next_scanline * width * channels;
    jpeg_write_scanlines(&jpeg.info, &row, 1);
  }
  jpeg_finish_compress(&jpeg.info);
  return true;
}

/// Frees libjpeg's memory.
struct ReleaseEncoder {
  JpegEncoder& jpeg;
  ~ReleaseEncoder() { jpeg_destroy_compress(&jpeg.info); }
};

}  // namespace

std::string encode_png(const Tensor& image) {
  const Pixels pixels = to_pixels("encode_png", image);
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(pixels.width);
  png.height = static_cast<png_uint_32>(pixels.height);
  png.format = pixels.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(png), '\0');
  png_alloc_size_t size = bytes.size();
  const int done = png_image_write_to_memory(&png, bytes.data(), &size, 0, pixels.values.data(), 0, nullptr);
  TANDEM_CHECK(IoError, done != 0, "encode_png: libpng cannot encode the image of ", pixels.width, "x", pixels.height,
               " pixels: ", png.message);
  bytes.resize(size);
  return bytes;
}

std::string encode_jpeg(const Tensor& image, int quality) {
  TANDEM_CHECK(ValueError, quality >= 1 && quality <= 100, "encode_jpeg: quality is ", quality, ", expected 1 to 100");
  Pixels pixels = to_pixels("encode_jpeg", image);
  // Twice the bound of libjpeg-turbo's tjBufSize, so libjpeg allocates no other memory for the result.
  constexpr int64_t kMaxBytesPerPixel = 6;
  constexpr int64_t kMaxHeader = 4096;
  const auto padded = [](int64_t size) { return (size + 15) / 16 * 16; };
  std::string bytes(static_cast<size_t>(padded(pixels.height) * padded(pixels.width) * kMaxBytesPerPixel + kMaxHeader),
                    '\0');
  JpegEncoder jpeg = {};
  const ReleaseEncoder release{jpeg};
  jpeg.bytes = reinterpret_cast<unsigned char*>(bytes.data());
  jpeg.size = bytes.size();
  const bool done =
      compress(jpeg, pixels.values.data(), pixels.height, pixels.width, static_cast<int>(pixels.channels), quality);
  TANDEM_CHECK(IoError, done, "encode_jpeg: libjpeg cannot encode the image of ", pixels.width, "x", pixels.height,
               " pixels: ", jpeg.failure.text);
  bytes.resize(jpeg.size);
  return bytes;
}

void write_png(const std::string& path, const Tensor& image) { write_file("write_png", path, encode_png(image)); }

void write_jpeg(const std::string& path, const Tensor& image, int quality) {
  write_file("write_jpeg", path, encode_jpeg(image, quality));
}

}}}  // namespace tandem::v0::data
