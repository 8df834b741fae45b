// PNG and JPEG files.
#include <tandem/data/image.h>

#include <tandem/tests/fuzz/fuzz.h>

using tandem::data::ImageReadMode;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The largest result is that of an image of one bit per pixel in a palette with transparency, which deflate can
  // compress 1032 times: 4 bytes for each bit, twice.
  constexpr int64_t kFactor = 1032 * 8 * 4 * 2;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const ImageReadMode mode : {ImageReadMode::kUnchanged, ImageReadMode::kGray, ImageReadMode::kRgb})
    tandem::testing::fuzz(size, kFactor, [&] { tandem::data::decode_image(bytes, mode); });
  return 0;
}
