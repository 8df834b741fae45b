#include <png.h>

#include <cstdio>
#include <cstring>
#include <iterator>

#include <tandem/data/decode.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

constexpr png_byte kIgnored[] = {'t', 'E', 'X', 't', 0, 'z', 'T', 'X', 't', 0,
                                 'i', 'T', 'X', 't', 0, 'i', 'C', 'C', 'P', 0};

struct Png {
  png_structp data;
  png_infop info;
  Input input;
  Failure failure;
  png_uint_32 width;
  png_uint_32 height;
  size_t stored_row;  ///< bytes of a row in the file
};

[[noreturn]] void fail(png_structp data, png_const_charp message) {
  auto* failure = static_cast<Failure*>(png_get_error_ptr(data));
  std::snprintf(failure->text, sizeof failure->text, "%s", message);
  std::longjmp(failure->jump, 1);
}

void ignore(png_structp, png_const_charp) {}

/// If the data ends before the last chunk (IEND), which is empty, continues with that chunk: all pixels may be present.
void read(png_structp data, png_bytep out, size_t count) {
  static constexpr uint8_t kEnd[] = {0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xae, 0x42, 0x60, 0x82};
  auto* input = static_cast<Input*>(png_get_io_ptr(data));
  if (input->size == 0 && input->bytes != std::end(kEnd)) *input = {kEnd, sizeof kEnd};
  if (count > input->size) png_error(data, "the data ends early");
  std::memcpy(out, input->bytes, count);
  input->bytes += count;
  input->size -= count;
}

/// Returns false after an error.
bool read_header(Png& png) {
  if (setjmp(png.failure.jump) != 0) return false;
  png.data = png_create_read_struct(PNG_LIBPNG_VER_STRING, &png.failure, fail, ignore);
  if (png.data != nullptr) png.info = png_create_info_struct(png.data);
  if (png.info == nullptr) {
    std::snprintf(png.failure.text, sizeof png.failure.text, "out of memory");
    return false;
  }
  // Not read: chunks of text and color profiles, which may be compressed.
  png_set_keep_unknown_chunks(png.data, PNG_HANDLE_CHUNK_NEVER, kIgnored, sizeof kIgnored / 5);
  png_set_crc_action(png.data, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);  // also of chunks that are not read
  png_set_read_fn(png.data, &png.input, read);
  png_read_info(png.data, png.info);
  png.width = png_get_image_width(png.data, png.info);
  png.height = png_get_image_height(png.data, png.info);
  png.stored_row = png_get_rowbytes(png.data, png.info);
  return true;
}

/// Asks libpng for 8-bit values, and for the channels of the mode, except that RGB is not converted to gray. Returns
/// the number of channels, or 0 after an error.
int choose_channels(Png& png, ImageReadMode mode) {
  if (setjmp(png.failure.jump) != 0) return 0;
  png_set_expand(png.data);  // palettes, bits, and transparent colors to alpha
  png_set_strip_16(png.data);
  if (mode != ImageReadMode::kUnchanged) png_set_strip_alpha(png.data);
  if (mode == ImageReadMode::kRgb) png_set_gray_to_rgb(png.data);
  png_set_interlace_handling(png.data);
  png_read_update_info(png.data, png.info);
  return png_get_channels(png.data, png.info);
}

/// Decodes into `pixels`, whose rows have `row_size` bytes. Returns false after an error.
bool read_pixels(Png& png, uint8_t* pixels, int64_t row_size) {
  if (setjmp(png.failure.jump) != 0) return false;
  const bool is_interlaced = png_get_interlace_type(png.data, png.info) != PNG_INTERLACE_NONE;
  for (int pass = 0; pass < (is_interlaced ? PNG_INTERLACE_ADAM7_PASSES : 1); ++pass) {
    for (png_uint_32 y = 0; y < png.height; ++y) png_read_row(png.data, pixels + y * row_size, nullptr);
  }
  png_read_end(png.data, nullptr);
  return true;
}

/// Frees libpng's memory.
struct ReleasePng {
  Png& png;
  ~ReleasePng() { png_destroy_read_struct(&png.data, &png.info, nullptr); }
};

}  // namespace

Tensor decode_png(const std::string& what, std::string_view bytes, ImageReadMode mode) {
  Png png = {};
  png.input = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  const ReleasePng release{png};
  TANDEM_CHECK(IoError, read_header(png), what, ": cannot decode the PNG data: ", png.failure.text);
  const int64_t width = png.width;
  const int64_t height = png.height;
  const auto num_bytes = static_cast<int64_t>(bytes.size());
  TANDEM_CHECK(
      IoError,
      width * height <= kMaxPixels && height * static_cast<int64_t>(png.stored_row) <= kMaxDeflateRatio * num_bytes,
      what, ": the PNG data has the size ", width, "x", height, ", expected at most 2^28 pixels and ", kMaxDeflateRatio,
      " bytes of pixels per byte (", num_bytes, " bytes)");
  const int stored = choose_channels(png, mode);
  TANDEM_CHECK(IoError, stored > 0, what, ": cannot decode the PNG data: ", png.failure.text);
  // Interlaced images need memory for all pixels.
  const Tensor memory = empty({height, width, stored}, {kUInt8});
  uint8_t* const pixels = memory.data<uint8_t>();
  TANDEM_CHECK(IoError, read_pixels(png, pixels, width * stored), what,
               ": cannot decode the PNG data: ", png.failure.text);
  int channels = stored;
  if (mode == ImageReadMode::kGray && stored == 3) {
    rgb_to_gray(pixels, height * width);
    channels = 1;
  }
  Tensor image = empty({channels, height, width}, {kUInt8});
  split_channels(pixels, height * width, channels, image.data<uint8_t>(), height * width);
  return image;
}

}}}  // namespace tandem::v0::data
