#include <tandem/data/image.h>

#include <algorithm>
#include <iomanip>
#include <tuple>

#include <tandem/base/file.h>
#include <tandem/base/math.h>
#include <tandem/data/check_image.h>
#include <tandem/data/decode.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

constexpr std::string_view kPngSignature = "\x89PNG\r\n\x1a\n";
constexpr std::string_view kJpegSignature = "\xff\xd8\xff";

Tensor decode(const std::string& what, std::string_view bytes, ImageReadMode mode) {
  if (bytes.starts_with(kPngSignature)) return decode_png(what, bytes, mode);
  if (bytes.starts_with(kJpegSignature)) return decode_jpeg(what, bytes, mode);
  std::string begin;
  for (const char byte : bytes.substr(0, kPngSignature.size()))
    begin += str(' ', std::hex, std::setw(2), std::setfill('0'), int{static_cast<uint8_t>(byte)});
  throw IoError(
      str(what, ": the data is neither PNG nor JPEG: ", begin.empty() ? "it is empty" : "it begins with", begin));
}

template <int kChannels>
void split(const uint8_t* pixels, int64_t count, uint8_t* planes, int64_t plane_size) {
  for (int64_t i = 0; i < count; ++i) {
    for (int c = 0; c < kChannels; ++c) planes[c * plane_size + i] = pixels[kChannels * i + c];
  }
}

/// A row-major copy as float32.
Tensor to_float32(const Tensor& image) {
  Tensor result = empty(image.shape());
  primitives::copy(image, result);
  return result;
}

/// Maps the range to [0, 1], in place.
void normalize_values(float* values, int64_t count, const MakeGridOptions& options) {
  if (count == 0) return;
  double low = 0;
  double high = 0;
  if (options.value_range) {
    std::tie(low, high) = *options.value_range;
  } else {
    const auto [least, greatest] = std::minmax_element(values, values + count);
    low = *least;
    high = *greatest;
  }
  constexpr double kMinRange = 1e-5;
  const auto begin = static_cast<float>(low);
  const auto end = static_cast<float>(high);
  const auto range = static_cast<float>(std::max(high - low, kMinRange));
  for (int64_t i = 0; i < count; ++i) values[i] = (std::clamp(values[i], begin, end) - begin) / range;
}

}  // namespace

void check_on_cpu(const char* op, const Tensor& image) {
  TANDEM_CHECK(DeviceError, image.device().is_cpu(), op, ": the image is on ", image.device(),
               ", expected the CPU; call .cpu()");
  TANDEM_CHECK(DTypeError, image.dtype() == kUInt8 || image.dtype() == kFloat32, op, ": the image is ", image.dtype(),
               ", expected uint8 or float32");
}

void split_channels(const uint8_t* pixels, int64_t count, int channels, uint8_t* planes, int64_t plane_size) {
  switch (channels) {
    case 1: std::copy_n(pixels, count, planes); break;
    case 2: split<2>(pixels, count, planes, plane_size); break;
    case 3: split<3>(pixels, count, planes, plane_size); break;
    default: split<4>(pixels, count, planes, plane_size); break;
  }
}

void rgb_to_gray(uint8_t* pixels, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int red = pixels[3 * i];
    const int green = pixels[3 * i + 1];
    const int blue = pixels[3 * i + 2];
    pixels[i] = static_cast<uint8_t>((19595 * red + 38470 * green + 7471 * blue + (1 << 15)) >> 16);
  }
}

Tensor decode_image(std::string_view bytes, ImageReadMode mode) { return decode("decode_image", bytes, mode); }

Tensor read_image(const std::string& path, ImageReadMode mode) {
  const std::string bytes = InputFile("read_image", path).text();
  return decode(str("read_image: '", path, "'"), bytes, mode);
}

Tensor make_grid(const Tensor& images, MakeGridOptions options) {
  check_on_cpu("make_grid", images);
  TANDEM_CHECK(ValueError, options.nrow >= 1, "make_grid: nrow is ", options.nrow, ", expected at least 1");
  TANDEM_CHECK(ValueError, options.padding >= 0, "make_grid: padding is ", options.padding, ", expected at least 0");
  TANDEM_CHECK(ValueError, !options.value_range || options.value_range->first < options.value_range->second,
               "make_grid: value_range is (", options.value_range->first, ", ", options.value_range->second,
               "), expected first < second");
  TANDEM_CHECK(DTypeError, !options.normalize || images.dtype() == kFloat32,
               "make_grid: normalize needs float32 images, got ", images.dtype());
  Shape shape = images.shape();
  Shape strides = images.strides();
  while (shape.dim() >= 2 && shape.dim() < 4) {
    shape.insert(0, 1);
    strides.insert(0, 0);
  }
  TANDEM_CHECK(ShapeError, shape.dim() == 4 && (shape[1] == 1 || shape[1] == 3) && shape[0] > 0,
               "make_grid: images have shape ", images.shape(), ", expected [N, C, H, W] with N >= 1 and C = 1 or 3");
  Tensor source = make_view(images.storage(), images.dtype(), shape, strides, images.impl().offset);
  if (options.normalize) {
    source = to_float32(source);
    normalize_values(source.data<float>(), source.numel(), options);
  }
  const int64_t count = shape[0];
  const int64_t height = shape[2];
  const int64_t width = shape[3];
  const int64_t padding = count == 1 ? 0 : options.padding;
  const int64_t columns = std::min(options.nrow, count);
  const auto side = [padding](int64_t cells, int64_t size) {
    return saturating_add(saturating_mul(cells, saturating_add(size, padding)), padding);
  };
  Tensor grid =
      full({3, side(ceil_div(count, columns), height), side(columns, width)}, options.pad_value, {images.dtype()});
  const Shape& steps = source.strides();
  for (int64_t i = 0; i < count; ++i) {
    const Tensor from =
        make_view(source.storage(), source.dtype(), {3, height, width},
                  {shape[1] == 1 ? 0 : steps[1], steps[2], steps[3]}, source.impl().offset + i * steps[0]);
    const int64_t y = i / columns * (height + padding) + padding;
    const int64_t x = i % columns * (width + padding) + padding;
    primitives::copy(from,
                     make_view(grid.storage(), grid.dtype(), {3, height, width}, grid.strides(), y * grid.size(2) + x));
  }
  return grid;
}

}}}  // namespace tandem::v0::data
