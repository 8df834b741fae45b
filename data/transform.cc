#include <tandem/data/transform.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <tandem/data/stack.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

constexpr uint32_t kTransformStream = 0x7466726d;  // separates these numbers from other random streams of the seed
constexpr int64_t kMaxPadding = 1 << 20;

/// The seed of an epoch.
uint64_t epoch_seed(uint64_t seed, int64_t epoch) {
  const auto number = static_cast<uint64_t>(epoch);
  const auto words = philox({static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
                            {static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), 0, kTransformStream});
  return words[0] | static_cast<uint64_t>(words[1]) << 32;
}

/// The image as a contiguous tensor. Throws DTypeError.
Tensor checked_image(const char* op, const Tensor& image) {
  TANDEM_CHECK(DTypeError, image.dtype() == kFloat32, op, ": the image is ", image.dtype(), ", expected float32");
  if (image.is_contiguous()) return image;
  Tensor copy = empty(image.shape());
  primitives::copy(image, copy);
  return copy;
}

/// As checked_image, for an image [C, H, W]. Throws ShapeError.
Tensor checked_planes(const char* op, const Tensor& image) {
  TANDEM_CHECK(ShapeError, image.dim() == 3, op, ": the image has shape ", image.shape(), ", expected [C, H, W]");
  return checked_image(op, image);
}

}  // namespace

Transform normalize(std::vector<double> mean, std::vector<double> deviation) {
  TANDEM_CHECK(ValueError, !mean.empty() && mean.size() == deviation.size(), "normalize: mean has ", mean.size(),
               " values and deviation ", deviation.size(), ", expected one value per channel");
  for (const double value : deviation)
    TANDEM_CHECK(ValueError, std::isfinite(value) && value > 0, "normalize: deviation has the value ", value,
                 ", expected > 0");
  return [mean = std::move(mean), deviation = std::move(deviation)](const Tensor& image, ItemRandom&) {
    const auto num_channels = static_cast<int64_t>(mean.size());
    TANDEM_CHECK(ShapeError, image.dim() >= 1 && image.size(0) == num_channels, "normalize: the image has shape ",
                 image.shape(), ", expected ", num_channels, " channels");
    const Tensor in = checked_image("normalize", image);
    Tensor out = empty(in.shape());
    const int64_t channel_size = in.num_elements() / num_channels;
    const auto* from = in.data<float>();
    auto* to = out.data<float>();
    for (size_t c = 0; c < mean.size(); ++c) {
      const auto m = static_cast<float>(mean[c]);
      const auto d = static_cast<float>(deviation[c]);
      for (int64_t i = 0; i < channel_size; ++i) *to++ = (*from++ - m) / d;
    }
    return out;
  };
}

Transform random_crop(int64_t padding) {
  TANDEM_CHECK(ValueError, padding >= 0 && padding <= kMaxPadding, "random_crop: padding is ", padding,
               ", expected 0 <= padding <= ", kMaxPadding);
  return [padding](const Tensor& image, ItemRandom& random) {
    const Tensor in = checked_planes("random_crop", image);
    // Offset of the window from the image's corner; a negative offset starts in the zeros.
    const int64_t down = random.below(2 * padding + 1) - padding;
    const int64_t right = random.below(2 * padding + 1) - padding;
    Tensor out = zeros(in.shape());
    const int64_t height = in.size(1);
    const int64_t width = in.size(2);
    const int64_t first = std::max<int64_t>(0, -right);
    const int64_t last = std::min(width, width - right);
    for (int64_t c = 0; c < in.size(0); ++c) {
      for (int64_t y = std::max<int64_t>(0, -down); y < std::min(height, height - down); ++y) {
        if (first >= last) break;
        const float* from = in.data<float>() + (c * height + y + down) * width + (right + first);
        std::copy_n(from, last - first, out.data<float>() + (c * height + y) * width + first);
      }
    }
    return out;
  };
}

Transform random_horizontal_flip(double probability) {
  TANDEM_CHECK(ValueError, probability >= 0 && probability <= 1, "random_horizontal_flip: probability is ", probability,
               ", expected 0 <= probability <= 1");
  return [probability](const Tensor& image, ItemRandom& random) {
    const Tensor in = checked_planes("random_horizontal_flip", image);
    if (random.uniform(0, 1) >= probability) return in;
    Tensor out = empty(in.shape());
    const int64_t width = in.size(2);
    for (int64_t row = 0; row < in.size(0) * in.size(1); ++row) {
      const float* from = in.data<float>() + row * width;
      std::reverse_copy(from, from + width, out.data<float>() + row * width);
    }
    return out;
  };
}

Transform chain(std::vector<Transform> transforms) {
  return [transforms = std::move(transforms)](const Tensor& image, ItemRandom& random) {
    Tensor result = image;
    for (const Transform& transform : transforms) result = transform(result, random);
    return result;
  };
}

Tensor transform_images(const Transform& transform, const Tensor& images, std::span<const int64_t> indices,
                        uint64_t seed, int64_t epoch) {
  const auto count = static_cast<int64_t>(indices.size());
  TANDEM_CHECK(ShapeError, images.dim() >= 1 && images.size(0) == count && count > 0, "transform_images: images of ",
               images.shape(), " for ", count, " indices");
  const Shape shape(images.shape().begin() + 1, images.shape().end());
  const Shape strides(images.strides().begin() + 1, images.strides().end());
  const uint64_t key = epoch_seed(seed, epoch);
  Tensor result;
  for (int64_t i = 0; i < count; ++i) {
    ItemRandom random(key, indices[static_cast<size_t>(i)], kTransformStream);
    const Tensor image =
        make_view(images.storage(), images.dtype(), shape, strides, images.impl().offset + i * images.strides()[0]);
    stack_into(result, transform(image, random), i, count, "Transform: the image");
  }
  return result;
}

}}}  // namespace tandem::v0::data
