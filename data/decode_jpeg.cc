#include <cstddef>
#include <cstdio>  // both needed by jpeglib.h

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <vector>

#include <tandem/data/decode.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

constexpr int64_t kMaxScans = 100;  // of a progressive file; encoders write about ten
constexpr int64_t kMaxScannedPixels = int64_t{1} << 32;
// Huffman codes have at least one bit per block of 8x8 values, so a file has at most 1024 pixels per byte.
constexpr int64_t kMaxPixelsPerByte = 2048;

struct Jpeg {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  Failure failure;
};

[[noreturn]] void fail(j_common_ptr info) {
  auto* jpeg = static_cast<Jpeg*>(info->client_data);
  static_assert(sizeof jpeg->failure.text >= JMSG_LENGTH_MAX);
  info->err->format_message(info, jpeg->failure.text);
  std::longjmp(jpeg->failure.jump, 1);
}

/// Ignores warnings, which occur for valid photographs, except the warning that the data ends early.
void check_message(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) fail(info);
}

/// A scan of a few bytes may change all pixels, so the time of decoding is limited by the product.
void check_scans(j_common_ptr info) {
  const auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
  const int64_t pixels = int64_t{decompress->image_width} * decompress->image_height;
  const auto limit = static_cast<int>(std::min<int64_t>(kMaxScans, kMaxScannedPixels / std::max<int64_t>(pixels, 1)));
  if (decompress->input_scan_number <= limit) return;
  auto* jpeg = static_cast<Jpeg*>(info->client_data);
  std::snprintf(jpeg->failure.text, sizeof jpeg->failure.text, "more than %d scans", limit);
  std::longjmp(jpeg->failure.jump, 1);
}

/// Returns false after an error.
bool read_header(Jpeg& jpeg, Input input) {
  jpeg.info.err = jpeg_std_error(&jpeg.errors);
  jpeg.info.client_data = &jpeg;
  jpeg.errors.error_exit = fail;
  jpeg.errors.emit_message = check_message;
  if (setjmp(jpeg.failure.jump) != 0) return false;
  jpeg_create_decompress(&jpeg.info);
  jpeg.progress.progress_monitor = check_scans;
  jpeg.info.progress = &jpeg.progress;
  jpeg_mem_src(&jpeg.info, input.bytes, input.size);
  jpeg_read_header(&jpeg.info, TRUE);
  return true;
}

/// (a b) / 255, rounded.
uint8_t scale(int a, int b) {
  const int product = a * b + 128;
  return static_cast<uint8_t>((product + (product >> 8)) >> 8);
}

/// Replaces inverted CMYK pixels, as Adobe's programs write them, by RGB pixels in place.
void cmyk_to_rgb(uint8_t* pixels, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int black = pixels[4 * i + 3];
    for (int64_t c = 0; c < 3; ++c)
      pixels[3 * i + c] = static_cast<uint8_t>(black - scale(255 - pixels[4 * i + c], black));
  }
}

/// Decodes into planes [channels, height, width]; `row` has space for a row of output_components values. Returns false
/// after an error.
bool read_pixels(Jpeg& jpeg, int channels, uint8_t* row, uint8_t* planes) {
  if (setjmp(jpeg.failure.jump) != 0) return false;
  jpeg_start_decompress(&jpeg.info);
  const int64_t width = jpeg.info.output_width;
  const int64_t height = jpeg.info.output_height;
  while (jpeg.info.output_scanline < jpeg.info.output_height) {
    uint8_t* to = planes + jpeg.info.output_scanline * width;
    jpeg_read_scanlines(&jpeg.info, &row, 1);
    if (jpeg.info.out_color_space == JCS_CMYK) {
      cmyk_to_rgb(row, width);
      if (channels == 1) rgb_to_gray(row, width);
    }
    split_channels(row, width, channels, to, height * width);
  }
  return true;
}

/// Frees libjpeg's memory.
struct Release {
  Jpeg& jpeg;
  ~Release() { jpeg_destroy_decompress(&jpeg.info); }
};

}  // namespace

Tensor decode_jpeg(const std::string& what, std::string_view bytes, ImageReadMode mode) {
  Jpeg jpeg = {};
  const Release release{jpeg};
  const Input input = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  TANDEM_CHECK(IoError, read_header(jpeg, input), what, ": cannot decode the JPEG data: ", jpeg.failure.text);
  const int64_t width = jpeg.info.image_width;
  const int64_t height = jpeg.info.image_height;
  const auto num_bytes = static_cast<int64_t>(bytes.size());
  TANDEM_CHECK(IoError, width * height <= std::min(kMaxPixels, kMaxPixelsPerByte * num_bytes), what,
               ": the JPEG data has the size ", width, "x", height, ", expected at most 2^28 pixels and ",
               kMaxPixelsPerByte, " per byte (", num_bytes, " bytes)");
  const J_COLOR_SPACE stored = jpeg.info.jpeg_color_space;
  const bool is_gray = mode == ImageReadMode::kGray || (mode == ImageReadMode::kUnchanged && stored == JCS_GRAYSCALE);
  const bool is_cmyk = stored == JCS_CMYK || stored == JCS_YCCK;
  jpeg.info.out_color_space = is_cmyk ? JCS_CMYK : is_gray ? JCS_GRAYSCALE : JCS_RGB;
  const int channels = is_gray ? 1 : 3;
  Tensor image = empty({channels, height, width}, {kUInt8});
  std::vector<uint8_t> row(static_cast<size_t>(width * 4));
  TANDEM_CHECK(IoError, read_pixels(jpeg, channels, row.data(), image.data<uint8_t>()), what,
               ": cannot decode the JPEG data: ", jpeg.failure.text);
  return image;
}

}}}  // namespace tandem::v0::data
