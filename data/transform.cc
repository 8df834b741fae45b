#include <tandem/data/transform.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include <tandem/data/check_image.h>
#include <tandem/data/stack.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

constexpr uint32_t kTransformStream = 0x7466726d;  // separates these numbers from other random streams of the seed
constexpr uint32_t kBatchStream = 0x62746368;
constexpr int64_t kMaxPadding = 1 << 20;
constexpr int64_t kMaxImageSize = 65535;

/// The seed of an epoch.
uint64_t epoch_seed(uint64_t seed, int64_t epoch) {
  const auto number = static_cast<uint64_t>(epoch);
  const auto words = philox({static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
                            {static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), 0, kTransformStream});
  return words[0] | static_cast<uint64_t>(words[1]) << 32;
}

/// The transform that replaces the image by f(image, random).
template <class F>
Transform of_image(F f) {
  return [f = std::move(f)](Example example, ItemRandom& random) {
    example.input = f(example.input, random);
    return example;
  };
}

void check_size(const char* op, const char* name, int64_t size) {
  TANDEM_CHECK(ValueError, size >= 1 && size <= kMaxImageSize, op, ": ", name, " is ", size, ", expected 1 to ",
               kMaxImageSize);
}

void check_probability(const char* op, double probability) {
  TANDEM_CHECK(ValueError, probability >= 0 && probability <= 1, op, ": probability is ", probability,
               ", expected 0 <= probability <= 1");
}

void check_range(const char* name, std::pair<double, double> range) {
  TANDEM_CHECK(ValueError, range.first > 0 && range.first <= range.second && std::isfinite(range.second),
               "random_resized_crop: ", name, " is (", range.first, ", ", range.second,
               "), expected 0 < first <= second");
}

/// A part of an image.
struct Window {
  int64_t top;
  int64_t left;
  int64_t height;
  int64_t width;
};

/// Random windows of random_resized_crop. Draws the same number of random numbers for every image.
Window random_window(int64_t height, int64_t width, const RandomResizedCropOptions& options, ItemRandom& random) {
  constexpr int kAttempts = 10;
  std::optional<Window> chosen;
  const double place_y = random.uniform(0, 1);
  const double place_x = random.uniform(0, 1);
  const double low = std::log(options.ratio.first);
  const double high = std::log(options.ratio.second);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double area = static_cast<double>(height * width) * random.uniform(options.scale.first, options.scale.second);
    const double ratio = std::exp(random.uniform(low, high));
    const double own_width = std::nearbyint(std::sqrt(area * ratio));
    const double own_height = std::nearbyint(std::sqrt(area / ratio));
    const bool fits = own_width >= 1 && own_width <= static_cast<double>(width) && own_height >= 1 &&
                      own_height <= static_cast<double>(height);
    if (!fits || chosen) continue;
    chosen = {0, 0, static_cast<int64_t>(own_height), static_cast<int64_t>(own_width)};
    chosen->top = static_cast<int64_t>(place_y * static_cast<double>(height - chosen->height + 1));
    chosen->left = static_cast<int64_t>(place_x * static_cast<double>(width - chosen->width + 1));
  }
  if (chosen) return *chosen;
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  Window window = {0, 0, height, width};
  if (ratio < options.ratio.first)
    window.height = std::lround(static_cast<double>(width) / options.ratio.first);
  else if (ratio > options.ratio.second)
    window.width = std::lround(static_cast<double>(height) * options.ratio.second);
  window.height = std::clamp<int64_t>(window.height, 1, height);
  window.width = std::clamp<int64_t>(window.width, 1, width);
  window.top = (height - window.height) / 2;
  window.left = (width - window.width) / 2;
  return window;
}

double random_normal(ItemRandom& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform(0, 1)));
  return radius * std::cos(random.uniform(0, 2 * std::numbers::pi));
}

/// The logarithm of a number of the gamma distribution. G. Marsaglia, W. Tsang, "A simple method for generating gamma
/// variables", 2000.
double random_log_gamma(double shape, ItemRandom& random) {
  double boost = 0;
  if (shape < 1) {
    boost = std::log(1 - random.uniform(0, 1)) / shape;
    shape += 1;
  }
  const double d = shape - 1.0 / 3;
  while (true) {
    const double x = random_normal(random);
    const double v = std::pow(1 + x / std::sqrt(9 * d), 3);
    const double u = 1 - random.uniform(0, 1);
    if (v > 0 && std::log(u) < x * x / 2 + d - d * v + d * std::log(v)) return boost + std::log(d * v);
  }
}

/// A number of the distribution Beta(alpha, alpha).
double random_beta(double alpha, ItemRandom& random) {
  const double first = random_log_gamma(alpha, random);
  const double second = random_log_gamma(alpha, random);
  return 1 / (1 + std::exp(second - first));
}

}  // namespace

Transform chain(std::vector<Transform> transforms) {
  return [transforms = std::move(transforms)](Example example, ItemRandom& random) {
    for (const Transform& transform : transforms) example = transform(std::move(example), random);
    return example;
  };
}

Transform to_float() {
  return of_image([](const Tensor& image, ItemRandom&) {
    check_planes("to_float", image);
    if (image.dtype() == kFloat32) return image;
    const Tensor in = row_major(image);
    Tensor out = empty(in.shape());
    const auto* from = in.data<uint8_t>();
    auto* to = out.data<float>();
    for (int64_t i = 0; i < in.numel(); ++i) to[i] = static_cast<float>(from[i]) / 255.0f;
    return out;
  });
}

Transform normalize(std::vector<double> mean, std::vector<double> deviation) {
  TANDEM_CHECK(ValueError, !mean.empty() && mean.size() == deviation.size(), "normalize: mean has ", mean.size(),
               " values and deviation ", deviation.size(), ", expected one value per channel");
  for (const double value : deviation)
    TANDEM_CHECK(ValueError, std::isfinite(value) && value > 0, "normalize: deviation has the value ", value,
                 ", expected > 0");
  return of_image([mean = std::move(mean), deviation = std::move(deviation)](const Tensor& image, ItemRandom&) {
    const auto num_channels = static_cast<int64_t>(mean.size());
    TANDEM_CHECK(ShapeError, image.dim() >= 1 && image.size(0) == num_channels, "normalize: the image has shape ",
                 image.shape(), ", expected ", num_channels, " channels");
    TANDEM_CHECK(DTypeError, image.dtype() == kFloat32, "normalize: the image is ", image.dtype(),
                 ", expected float32; apply to_float() before");
    check_on_cpu("normalize", image);
    const Tensor in = row_major(image);
    Tensor out = empty(in.shape());
    const int64_t channel_size = in.numel() / num_channels;
    const auto* from = in.data<float>();
    auto* to = out.data<float>();
    for (size_t c = 0; c < mean.size(); ++c) {
      const auto m = static_cast<float>(mean[c]);
      const auto d = static_cast<float>(deviation[c]);
      for (int64_t i = 0; i < channel_size; ++i) *to++ = (*from++ - m) / d;
    }
    return out;
  });
}

Transform resize(int64_t size, Interpolation interpolation) {
  check_size("resize", "size", size);
  return of_image([size, interpolation](const Tensor& image, ItemRandom&) {
    check_planes("resize", image);
    TANDEM_CHECK(ShapeError, image.numel() > 0, "resize: the image has shape ", image.shape(),
                 ", expected at least one pixel");
    const int64_t height = image.size(1);
    const int64_t width = image.size(2);
    return height < width ? resize_image(image, size, size * width / height, interpolation)
                          : resize_image(image, size * height / width, size, interpolation);
  });
}

Transform resize(int64_t height, int64_t width, Interpolation interpolation) {
  check_size("resize", "height", height);
  check_size("resize", "width", width);
  return of_image([height, width, interpolation](const Tensor& image, ItemRandom&) {
    return resize_image(image, height, width, interpolation);
  });
}

Transform center_crop(int64_t size) {
  check_size("center_crop", "size", size);
  return of_image([size](const Tensor& image, ItemRandom&) {
    check_planes("center_crop", image);
    const auto begin = [size](int64_t in) {
      // Half of the difference. torchvision rounds it to even if the image is larger, down if it is smaller.
      return in >= size ? static_cast<int64_t>(std::nearbyint(static_cast<double>(in - size) / 2)) : -((size - in) / 2);
    };
    return crop(image, begin(image.size(1)), begin(image.size(2)), size, size);
  });
}

Transform random_crop(int64_t padding) {
  TANDEM_CHECK(ValueError, padding >= 0 && padding <= kMaxPadding, "random_crop: padding is ", padding,
               ", expected 0 <= padding <= ", kMaxPadding);
  return of_image([padding](const Tensor& image, ItemRandom& random) {
    check_planes("random_crop", image);
    const int64_t top = random.below(2 * padding + 1) - padding;
    const int64_t left = random.below(2 * padding + 1) - padding;
    return crop(image, top, left, image.size(1), image.size(2));
  });
}

Transform random_resized_crop(int64_t size, RandomResizedCropOptions options) {
  check_size("random_resized_crop", "size", size);
  check_range("scale", options.scale);
  check_range("ratio", options.ratio);
  return of_image([size, options](const Tensor& image, ItemRandom& random) {
    check_planes("random_resized_crop", image);
    TANDEM_CHECK(ShapeError, image.numel() > 0, "random_resized_crop: the image has shape ", image.shape(),
                 ", expected at least one pixel");
    const Window window = random_window(image.size(1), image.size(2), options, random);
    const Shape& strides = image.strides();
    const Tensor view = make_view(image.storage(), image.dtype(), {image.size(0), window.height, window.width}, strides,
                                  image.impl().offset + window.top * strides[1] + window.left * strides[2]);
    return resize_image(view, size, size, options.interpolation);
  });
}

Transform random_horizontal_flip(double probability) {
  check_probability("random_horizontal_flip", probability);
  return of_image([probability](const Tensor& image, ItemRandom& random) {
    check_planes("random_horizontal_flip", image);
    return random.uniform(0, 1) < probability ? hflip(image) : image;
  });
}

Transform random_vertical_flip(double probability) {
  check_probability("random_vertical_flip", probability);
  return of_image([probability](const Tensor& image, ItemRandom& random) {
    check_planes("random_vertical_flip", image);
    return random.uniform(0, 1) < probability ? vflip(image) : image;
  });
}

Transform color_jitter(ColorJitterOptions options) {
  for (const auto& [name, value] :
       {std::pair("brightness", options.brightness), std::pair("contrast", options.contrast),
        std::pair("saturation", options.saturation)})
    TANDEM_CHECK(ValueError, value >= 0 && std::isfinite(value), "color_jitter: ", name, " is ", value,
                 ", expected at least 0");
  TANDEM_CHECK(ValueError, options.hue >= 0 && options.hue <= 0.5, "color_jitter: hue is ", options.hue,
               ", expected 0 <= hue <= 0.5");
  return of_image([options](const Tensor& image, ItemRandom& random) {
    const auto factor = [&](double amount) { return random.uniform(std::max(0.0, 1 - amount), 1 + amount); };
    const double brightness = factor(options.brightness);
    const double contrast = factor(options.contrast);
    const double saturation = factor(options.saturation);
    const double hue = random.uniform(-options.hue, options.hue);
    std::array<int, 4> order = {0, 1, 2, 3};
    for (size_t i = 3; i > 0; --i)
      std::swap(order[i], order[static_cast<size_t>(random.below(static_cast<int64_t>(i) + 1))]);
    Tensor result = image;
    for (const int function : order) {
      if (function == 0 && options.brightness > 0) result = adjust_brightness(result, brightness);
      if (function == 1 && options.contrast > 0) result = adjust_contrast(result, contrast);
      if (function == 2 && options.saturation > 0) result = adjust_saturation(result, saturation);
      if (function == 3 && options.hue > 0) result = adjust_hue(result, hue);
    }
    return result;
  });
}

BatchTransform mixup(MixupOptions options) {
  TANDEM_CHECK(ValueError, options.num_classes >= 1, "mixup: num_classes is ", options.num_classes,
               ", expected at least 1");
  TANDEM_CHECK(ValueError, options.alpha > 0 && std::isfinite(options.alpha), "mixup: alpha is ", options.alpha,
               ", expected > 0");
  return [options](Batch batch, ItemRandom& random) {
    const Tensor images = batch.input;
    TANDEM_CHECK(DTypeError, images.dtype() == kFloat32 && batch.target.dtype() == kInt64, "mixup: images are ",
                 images.dtype(), " and labels ", batch.target.dtype(), ", expected float32 and int64");
    TANDEM_CHECK(ShapeError, batch.target.dim() == 1 && images.dim() >= 1 && images.size(0) == batch.target.size(0),
                 "mixup: images have shape ", images.shape(), " and labels ", batch.target.shape(),
                 ", expected [size, ...] and [size]");
    TANDEM_CHECK(DeviceError, images.device().is_cpu() && batch.target.device().is_cpu(), "mixup: images are on ",
                 images.device(), " and labels on ", batch.target.device(), ", expected the CPU");
    const auto kept = static_cast<float>(random_beta(options.alpha, random));
    const float added = 1 - kept;
    const Tensor in = row_major(images);
    const Tensor labels = row_major(batch.target);
    const int64_t size = in.size(0);
    batch.input = empty(in.shape());
    batch.target = zeros({size, options.num_classes});
    const int64_t count = in.numel() / std::max<int64_t>(size, 1);
    for (int64_t row = 0; row < size; ++row) {
      const int64_t other = row == 0 ? size - 1 : row - 1;
      const float* a = in.data<float>() + row * count;
      const float* b = in.data<float>() + other * count;
      float* to = batch.input.data<float>() + row * count;
      for (int64_t i = 0; i < count; ++i) to[i] = kept * a[i] + added * b[i];
      float* weights = batch.target.data<float>() + row * options.num_classes;
      for (const auto& [from, weight] : {std::pair(row, kept), std::pair(other, added)}) {
        const int64_t label = labels.data<int64_t>()[from];
        TANDEM_CHECK(IndexError, label >= 0 && label < options.num_classes, "mixup: label ", from, " is ", label,
                     ", expected 0 <= label < ", options.num_classes);
        weights[label] += weight;
      }
    }
    return batch;
  };
}

ItemRandom item_random(uint64_t seed, int64_t epoch, int64_t index) {
  return {epoch_seed(seed, epoch), index, kTransformStream};
}

Batch transform_items(const Dataset& dataset, std::span<const int64_t> indices, const Transform& transform,
                      uint64_t seed, int64_t epoch) {
  return stack_examples("Transform", indices, [&](int64_t index) {
    ItemRandom random = item_random(seed, epoch, index);
    return transform(dataset.get(index), random);
  });
}

ItemRandom batch_random(uint64_t seed, int64_t epoch, int64_t first_index) {
  return {epoch_seed(seed, epoch), first_index, kBatchStream};
}

}}}  // namespace tandem::v0::data
