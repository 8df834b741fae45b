#include <tandem/data/image_ops.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include <tandem/data/check_image.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

constexpr int64_t kColors = 3;

/// A new image with the pixels that f(pixels of the image, new pixels) writes.
template <class F>
Tensor mapped(const Tensor& image, F f) {
  Tensor out = empty(image.shape(), {image.dtype()});
  const auto run = [&]<class Pixel>(Pixel* to) { f(static_cast<const Pixel*>(image.data<Pixel>()), to); };
  image.dtype() == kUInt8 ? run(out.data<uint8_t>()) : run(out.data<float>());
  return out;
}

template <class Pixel>
constexpr float kMax = std::is_same_v<Pixel, uint8_t> ? 255.0f : 1.0f;

/// The value clamped to the range of pixels; NaN becomes 0.
template <class Pixel>
Pixel clamped(float value) {
  return static_cast<Pixel>(std::max(0.0f, std::min(value, kMax<Pixel>)));
}

template <class Pixel>
float gray_value(Pixel red, Pixel green, Pixel blue) {
  const float gray = 0.2989f * red + 0.587f * green + 0.114f * blue;
  return std::is_integral_v<Pixel> ? std::floor(gray) : gray;
}

void check_factor(const char* op, double factor) {
  TANDEM_CHECK(ValueError, std::isfinite(factor) && factor >= 0, op, ": factor is ", factor, ", expected at least 0");
}

/// check_planes; the image as a row-major tensor.
Tensor planes(const char* op, const Tensor& image) {
  check_planes(op, image);
  return row_major(image);
}

/// planes() of an image that has colors.
Tensor color_planes(const char* op, const Tensor& image) {
  check_planes(op, image);
  TANDEM_CHECK(ShapeError, image.size(0) == kColors, op, ": the image has shape ", image.shape(),
               ", expected 3 channels");
  return row_major(image);
}

struct Rgb {
  float red;
  float green;
  float blue;
};

/// Hue in [0, 1), saturation and value.
std::array<float, 3> to_hsv(Rgb color) {
  const float high = std::max({color.red, color.green, color.blue});
  const float range = high - std::min({color.red, color.green, color.blue});
  if (!(range > 0)) return {0, 0, high};
  const float red = (high - color.red) / range;
  const float green = (high - color.green) / range;
  const float blue = (high - color.blue) / range;
  const float sixths = high == color.red ? blue - green : high == color.green ? 2 + red - blue : 4 + green - red;
  return {std::fmod(sixths / 6 + 1, 1.0f), range / high, high};
}

Rgb from_hsv(float hue, float saturation, float value) {
  const float sixths = hue * 6;
  const float floor = std::floor(sixths);
  const float rest = sixths - floor;
  const float p = value * (1 - saturation);
  const float q = value * (1 - saturation * rest);
  const float t = value * (1 - saturation + saturation * rest);
  switch (static_cast<int>(floor) % 6) {
    case 0: return {value, t, p};
    case 1: return {q, value, p};
    case 2: return {p, value, t};
    case 3: return {p, q, value};
    case 4: return {t, p, value};
    default: return {value, p, q};
  }
}

}  // namespace

void check_planes(const char* op, const Tensor& image) {
  TANDEM_CHECK(ShapeError, image.dim() == 3, op, ": the image has shape ", image.shape(), ", expected [C, H, W]");
  check_on_cpu(op, image);
}

Tensor with_contiguous_rows(const char* op, const Tensor& image) {
  check_planes(op, image);
  return image.strides()[2] == 1 ? image : row_major(image);
}

Tensor row_major(const Tensor& tensor) {
  if (tensor.is_contiguous()) return tensor;
  Tensor copy = empty(tensor.shape(), {tensor.dtype()});
  primitives::copy(tensor, copy);
  return copy;
}

Tensor crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width) {
  check_planes("crop", image);
  TANDEM_CHECK(ValueError, height >= 0 && width >= 0, "crop: the size is ", height, "x", width,
               ", expected at least 0");
  Tensor out = zeros({image.size(0), height, width}, {image.dtype()});
  top = std::clamp(top, -height, image.size(1));
  left = std::clamp(left, -width, image.size(2));
  const int64_t first_row = std::max<int64_t>(0, -top);
  const int64_t first_column = std::max<int64_t>(0, -left);
  const int64_t num_rows = std::min(height, image.size(1) - top) - first_row;
  const int64_t num_columns = std::min(width, image.size(2) - left) - first_column;
  if (num_rows <= 0 || num_columns <= 0) return out;
  const auto window = [&](const Tensor& tensor, int64_t y, int64_t x) {
    const Shape& strides = tensor.strides();
    return make_view(tensor.storage(), tensor.dtype(), {tensor.size(0), num_rows, num_columns}, strides,
                     tensor.impl().offset + y * strides[1] + x * strides[2]);
  };
  primitives::copy(window(image, top + first_row, left + first_column), window(out, first_row, first_column));
  return out;
}

Tensor hflip(const Tensor& image) {
  const Tensor in = planes("hflip", image);
  return mapped(in, [&]<class Pixel>(const Pixel* from, Pixel* to) {
    const int64_t width = in.size(2);
    for (int64_t row = 0; row < in.size(0) * in.size(1); ++row, from += width, to += width)
      std::reverse_copy(from, from + width, to);
  });
}

Tensor vflip(const Tensor& image) {
  const Tensor in = planes("vflip", image);
  return mapped(in, [&]<class Pixel>(const Pixel* from, Pixel* to) {
    const int64_t height = in.size(1);
    const int64_t width = in.size(2);
    for (int64_t c = 0; c < in.size(0); ++c, from += height * width, to += height * width) {
      for (int64_t y = 0; y < height; ++y) std::copy_n(from + (height - 1 - y) * width, width, to + y * width);
    }
  });
}

Tensor adjust_brightness(const Tensor& image, double factor) {
  check_factor("adjust_brightness", factor);
  const Tensor in = planes("adjust_brightness", image);
  return mapped(in, [&]<class Pixel>(const Pixel* from, Pixel* to) {
    for (int64_t i = 0; i < in.numel(); ++i) to[i] = clamped<Pixel>(from[i] * static_cast<float>(factor));
  });
}

Tensor adjust_contrast(const Tensor& image, double factor) {
  check_factor("adjust_contrast", factor);
  const Tensor in = planes("adjust_contrast", image);
  TANDEM_CHECK(ShapeError, in.size(0) == 1 || in.size(0) == kColors, "adjust_contrast: the image has shape ",
               image.shape(), ", expected 1 or 3 channels");
  return mapped(in, [&]<class Pixel>(const Pixel* from, Pixel* to) {
    const int64_t count = in.size(1) * in.size(2);
    double sum = 0;
    for (int64_t i = 0; i < count; ++i)
      sum += in.size(0) == 1 ? static_cast<float>(from[i]) : gray_value(from[i], from[count + i], from[2 * count + i]);
    const auto offset = static_cast<float>((1 - factor) * sum / static_cast<double>(count));
    for (int64_t i = 0; i < in.numel(); ++i) to[i] = clamped<Pixel>(from[i] * static_cast<float>(factor) + offset);
  });
}

Tensor adjust_saturation(const Tensor& image, double factor) {
  check_factor("adjust_saturation", factor);
  const Tensor in = color_planes("adjust_saturation", image);
  return mapped(in, [&]<class Pixel>(const Pixel* from, Pixel* to) {
    const int64_t count = in.size(1) * in.size(2);
    const auto kept = static_cast<float>(factor);
    const auto added = static_cast<float>(1 - factor);
    for (int64_t i = 0; i < count; ++i) {
      const float gray = added * gray_value(from[i], from[count + i], from[2 * count + i]);
      for (int64_t c = 0; c < kColors; ++c) to[c * count + i] = clamped<Pixel>(from[c * count + i] * kept + gray);
    }
  });
}

Tensor adjust_hue(const Tensor& image, double factor) {
  TANDEM_CHECK(ValueError, factor >= -0.5 && factor <= 0.5, "adjust_hue: factor is ", factor,
               ", expected -0.5 <= factor <= 0.5");
  const Tensor in = color_planes("adjust_hue", image);
  return mapped(in, [&]<class Pixel>(const Pixel* from, Pixel* to) {
    const int64_t count = in.size(1) * in.size(2);
    // uint8: values of [0, 1] are mapped to 256 intervals of equal length.
    constexpr float kScale = std::is_integral_v<Pixel> ? 255.999f : 1.0f;
    for (int64_t i = 0; i < count; ++i) {
      const auto [hue, saturation, value] =
          to_hsv({from[i] / kMax<Pixel>, from[count + i] / kMax<Pixel>, from[2 * count + i] / kMax<Pixel>});
      const float turned = hue + static_cast<float>(factor);
      const Rgb color = from_hsv(turned - std::floor(turned), saturation, value);
      to[i] = clamped<Pixel>(color.red * kScale);
      to[count + i] = clamped<Pixel>(color.green * kScale);
      to[2 * count + i] = clamped<Pixel>(color.blue * kScale);
    }
  });
}

}}}  // namespace tandem::v0::data
