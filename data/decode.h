// Decoders of image formats. Private to data/.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <string>
#include <string_view>

#include <tandem/data/image.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace data {

inline constexpr int64_t kMaxPixels = int64_t{1} << 28;
inline constexpr int64_t kMaxDeflateRatio = 1032;  // the maximum of deflate: a match of 258 bytes in two bits

/// Error handling of libjpeg and libpng: they leave a function by longjmp. Therefore setjmp and the functions of these
/// libraries are called only by functions whose objects have no destructors.
struct Failure {
  std::jmp_buf jump;
  char text[256];
};

/// Bytes that a decoder reads in order.
struct Input {
  const uint8_t* bytes;
  size_t size;
};

/// Splits `count` pixels of `channels` (1 to 4) interleaved values: channel c of pixel i is planes[c * plane_size + i].
void split_channels(const uint8_t* pixels, int64_t count, int channels, uint8_t* planes, int64_t plane_size);

/// Replaces RGB pixels by their gray value, in place; the result has `count` bytes.
void rgb_to_gray(uint8_t* pixels, int64_t count);

/// decode_image for the format; error texts begin with `what`.
Tensor decode_jpeg(const std::string& what, std::string_view bytes, ImageReadMode mode);
Tensor decode_png(const std::string& what, std::string_view bytes, ImageReadMode mode);

}}}  // namespace tandem::v0::data
