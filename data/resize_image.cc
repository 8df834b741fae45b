// Resampling by separable filters with Pillow's arithmetic: weights of uint8 images are integers.

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include <tandem/data/check_image.h>
#include <tandem/data/image_ops.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

constexpr int64_t kMaxSize = 65535;
constexpr int kWeightBits = 22;  // 8 bits for values, and 2 for sums of weights of which some are negative

double bilinear(double x) { return std::max(0.0, 1 - std::abs(x)); }

double bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
}

/// For each output position the first input, the number of inputs, and their weights.
template <class Weight>
struct Windows {
  std::vector<int64_t> first;
  std::vector<int64_t> count;
  std::vector<Weight> weights;  ///< [output, max_count]
  int64_t max_count;

  const Weight* of(int64_t output) const { return weights.data() + output * max_count; }
};

template <class Weight>
Windows<Weight> make_windows(int64_t in_size, int64_t out_size, Interpolation interpolation) {
  const bool cubic = interpolation == Interpolation::kBicubic;
  const double step = static_cast<double>(in_size) / static_cast<double>(out_size);
  const double scale = std::max(step, 1.0);
  const double radius = (cubic ? 2 : 1) * scale;
  Windows<Weight> windows;
  windows.max_count = static_cast<int64_t>(std::ceil(radius)) * 2 + 1;
  windows.first.resize(static_cast<size_t>(out_size));
  windows.count.resize(static_cast<size_t>(out_size));
  windows.weights.resize(static_cast<size_t>(out_size * windows.max_count));
  std::vector<double> values(static_cast<size_t>(windows.max_count));
  for (int64_t i = 0; i < out_size; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * step;
    const auto begin = std::max<int64_t>(0, static_cast<int64_t>(center - radius + 0.5));
    const auto end = std::min(in_size, static_cast<int64_t>(center + radius + 0.5));
    double sum = 0;
    for (int64_t k = begin; k < end; ++k) {
      const double x = (static_cast<double>(k) - center + 0.5) / scale;
      sum += values[static_cast<size_t>(k - begin)] = cubic ? bicubic(x) : bilinear(x);
    }
    windows.first[static_cast<size_t>(i)] = begin;
    windows.count[static_cast<size_t>(i)] = end - begin;
    Weight* weights = windows.weights.data() + i * windows.max_count;
    for (int64_t k = 0; k < end - begin; ++k) {
      const double weight = values[static_cast<size_t>(k)] / sum;
      if constexpr (std::is_integral_v<Weight>) {
        weights[k] = static_cast<Weight>(std::round(weight * (1 << kWeightBits)));
      } else {
        weights[k] = static_cast<Weight>(weight);
      }
    }
  }
  return windows;
}

/// The pixel of a weighted sum.
uint8_t pixel(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255)); }
float pixel(double sum) { return static_cast<float>(sum); }

template <class Pixel>
using WeightOf = std::conditional_t<std::is_same_v<Pixel, uint8_t>, int32_t, double>;

/// The start of a sum: a half for integers, which are then truncated.
template <class Weight>
constexpr Weight kStart = std::is_integral_v<Weight> ? Weight(1 << (kWeightBits - 1)) : Weight(0);

template <class Pixel>
void resize_row(const Pixel* in, const Windows<WeightOf<Pixel>>& windows, Pixel* out) {
  const auto size = static_cast<int64_t>(windows.first.size());
  for (int64_t x = 0; x < size; ++x) {
    const Pixel* from = in + windows.first[static_cast<size_t>(x)];
    const auto* weights = windows.of(x);
    auto sum = kStart<WeightOf<Pixel>>;
    for (int64_t k = 0; k < windows.count[static_cast<size_t>(x)]; ++k) sum += weights[k] * from[k];
    out[x] = pixel(sum);
  }
}

/// Row y of the output: a weighted sum of rows of `in`, which are `stride` apart.
template <class Pixel>
void resize_column(const Pixel* in, int64_t stride, int64_t width, const Windows<WeightOf<Pixel>>& windows, int64_t y,
                   Pixel* out) {
  constexpr int64_t kBlock = 64;  // sums that fit in registers
  const Pixel* from = in + windows.first[static_cast<size_t>(y)] * stride;
  const int64_t count = windows.count[static_cast<size_t>(y)];
  const auto* weights = windows.of(y);
  const auto add = [&](int64_t begin, auto size) {
    WeightOf<Pixel> sums[kBlock];
    for (int64_t x = 0; x < size; ++x) sums[x] = kStart<WeightOf<Pixel>>;
    for (int64_t k = 0; k < count; ++k) {
      const Pixel* row = from + k * stride + begin;
      for (int64_t x = 0; x < size; ++x) sums[x] += weights[k] * row[x];
    }
    for (int64_t x = 0; x < size; ++x) out[begin + x] = pixel(sums[x]);
  };
  int64_t begin = 0;
  for (; begin + kBlock <= width; begin += kBlock) add(begin, std::integral_constant<int64_t, kBlock>());
  add(begin, width - begin);
}

template <class Pixel>
Tensor resize(const Tensor& image, int64_t height, int64_t width, Interpolation interpolation) {
  const int64_t in_height = image.size(1);
  const int64_t in_width = image.size(2);
  Tensor out = empty({image.size(0), height, width}, {image.dtype()});
  const auto columns = make_windows<WeightOf<Pixel>>(in_width, width, interpolation);
  const auto rows = make_windows<WeightOf<Pixel>>(in_height, height, interpolation);
  std::vector<Pixel> narrow(static_cast<size_t>(in_height * width));
  for (int64_t c = 0; c < image.size(0); ++c) {
    const Pixel* from = image.data<Pixel>() + c * image.strides()[0];
    int64_t stride = image.strides()[1];
    if (width != in_width) {
      for (int64_t y = 0; y < in_height; ++y) resize_row(from + y * stride, columns, narrow.data() + y * width);
      from = narrow.data();
      stride = width;
    }
    Pixel* to = out.data<Pixel>() + c * height * width;
    for (int64_t y = 0; y < height; ++y, to += width) {
      if (height == in_height) {
        std::copy_n(from + y * stride, width, to);
      } else {
        resize_column(from, stride, width, rows, y, to);
      }
    }
  }
  return out;
}

}  // namespace

Tensor resize_image(const Tensor& image, int64_t height, int64_t width, Interpolation interpolation) {
  TANDEM_CHECK(ValueError, height >= 1 && height <= kMaxSize && width >= 1 && width <= kMaxSize,
               "resize_image: the size is ", height, "x", width, ", expected 1 to ", kMaxSize);
  const Tensor in = with_contiguous_rows("resize_image", image);
  TANDEM_CHECK(ShapeError, in.numel() > 0, "resize_image: the image has shape ", in.shape(),
               ", expected at least one pixel");
  return in.dtype() == kUInt8 ? resize<uint8_t>(in, height, width, interpolation)
                              : resize<float>(in, height, width, interpolation);
}

}}}  // namespace tandem::v0::data
