// Transforms of examples and batches: cropping, resizing, flips, colors, normalization, mixup.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/data/dataset.h>
#include <tandem/data/image_ops.h>
#include <tandem/data/item_random.h>

namespace tandem { inline namespace v0 { namespace data {

/// A function that returns the transformed example; `random` has the item's random numbers. Several threads call it
/// concurrently. A transform should draw the same number of random numbers for every item, so that the random numbers
/// of later transforms do not depend on the item.
///
/// DataLoaderOptions::transform is applied to each example before examples are stacked, so that images of different
/// sizes can be cropped to one:
///
///     data::DataLoader loader(images, sampler, {.batch_size = 128, .transform = data::chain({
///         data::random_resized_crop(224), data::random_horizontal_flip(), data::to_float(),
///         data::normalize(mean, deviation)})});
///
/// The transforms of this header change the image and keep the label. A program's own transform may change both:
///
///     [](data::Example example, data::ItemRandom& random) {
///       if (random.uniform(0, 1) < 0.5) {
///         example.input = data::hflip(example.input);
///         example.target = data::hflip(example.target);  // a mask [1, H, W]
///       }
///       return example;
///     }
///
/// Images are uint8 or float32 [C, H, W], otherwise the transforms throw ShapeError or DTypeError.
using Transform = std::function<Example(Example example, ItemRandom& random)>;

/// Applies the transforms one after the other, as torchvision's Compose.
TANDEM_API Transform chain(std::vector<Transform> transforms);

/// float32 images with values in [0, 1]: uint8 / 255; float32 images are not changed.
TANDEM_API Transform to_float();

/// (x - mean[c]) / deviation[c] for each channel c of a float32 image [C, ...]. Throws ValueError unless both lists
/// have the same length of at least 1 and the standard deviations are positive. The transform throws DTypeError for
/// another dtype, ShapeError for another number of channels.
TANDEM_API Transform normalize(std::vector<double> mean, std::vector<double> deviation);

/// resize_image, so that the shorter side is `size`, and the longer one size * longer / shorter, rounded down. Throws
/// ValueError unless 1 <= size <= 65535.
TANDEM_API Transform resize(int64_t size, Interpolation interpolation = Interpolation::kBilinear);
/// resize_image to [C, height, width]. Throws ValueError unless both are from 1 to 65535.
TANDEM_API Transform resize(int64_t height, int64_t width, Interpolation interpolation = Interpolation::kBilinear);

/// The window [C, size, size] in the middle of the image, with zeros around a smaller image. Throws ValueError unless 1
/// <= size <= 65535.
TANDEM_API Transform center_crop(int64_t size);

/// Crops a random window with the size of the image from the image with `padding` zeros on each side. Throws ValueError
/// unless 0 <= padding <= 2^20.
TANDEM_API Transform random_crop(int64_t padding);

/// Options of random_resized_crop.
struct RandomResizedCropOptions {
  std::pair<double, double> scale = {0.08, 1};             ///< area of the window as a fraction of the image's, uniform
  std::pair<double, double> ratio = {3.0 / 4, 4.0 / 3};    ///< width / height; its logarithm is uniform
  Interpolation interpolation = Interpolation::kBilinear;  ///< filter of resize_image
};
/// Resizes a random window to [C, size, size], as torchvision's RandomResizedCrop. Up to ten windows of random area and
/// ratio are drawn; the first one that fits into the image is used, at a random position. If all are too large, the
/// largest window in the middle with the image's ratio, clamped to `ratio`, is used. C. Szegedy et al., "Going deeper
/// with convolutions", CVPR 2015. Throws ValueError unless 1 <= size <= 65535, 0 < scale.first <= scale.second, and 0 <
/// ratio.first <= ratio.second.
TANDEM_API Transform random_resized_crop(int64_t size, RandomResizedCropOptions options = {});

/// Mirrors the image with the given probability: left and right. Throws ValueError for a probability outside [0, 1].
TANDEM_API Transform random_horizontal_flip(double probability = 0.5);
/// random_horizontal_flip of top and bottom.
TANDEM_API Transform random_vertical_flip(double probability = 0.5);

/// Options of color_jitter.
struct ColorJitterOptions {
  double brightness = 0;  ///< factor of adjust_brightness: uniform in [max(0, 1 - brightness), 1 + brightness]
  double contrast = 0;    ///< factor of adjust_contrast, with the same distribution
  double saturation = 0;  ///< factor of adjust_saturation, with the same distribution
  double hue = 0;         ///< of adjust_hue: uniform in [-hue, hue]
};
/// Changes brightness, contrast, saturation and hue by random factors in a random order, as torchvision's ColorJitter.
/// An option of 0 omits its function. Images have 3 channels; images with 1 channel are accepted if saturation and hue
/// are 0. Throws ValueError for a negative option or a hue above 0.5.
TANDEM_API Transform color_jitter(ColorJitterOptions options);

/// A function that returns the transformed batch; `random` has the batch's random numbers. Several threads call it
/// concurrently. DataLoaderOptions::batch_transform is applied to each batch before it is copied to the device.
using BatchTransform = std::function<Batch(Batch batch, ItemRandom& random)>;

/// Options of mixup.
struct MixupOptions {
  int64_t num_classes = 0;  ///< number of classes; required
  double alpha = 1;         ///< parameter of the beta distribution
};
/// Mixes each example with the one before it, and the first with the last, as torchvision's MixUp: images x[i] become
/// lambda x[i] + (1 - lambda) x[i - 1], and labels (int64 [size]) become float32 [size, num_classes], the same mean of
/// one-hot vectors, for cross_entropy. One lambda per batch is drawn from Beta(alpha, alpha). H. Zhang et al., "mixup:
/// Beyond empirical risk minimization", ICLR 2018. Throws ValueError unless num_classes >= 1 and alpha > 0. The
/// transform throws DTypeError unless images are float32 and labels int64, ShapeError unless labels are [size], and
/// IndexError for a label outside [0, num_classes).
TANDEM_API BatchTransform mixup(MixupOptions options);

/// The items `indices` of a dataset, each transformed in epoch `epoch`, as a batch. The random numbers of an item are a
/// pure function of (seed, epoch, index); they do not depend on worker, rank or batch. Throws the errors of
/// Dataset::get_batch.
TANDEM_API Batch transform_items(const Dataset& dataset, std::span<const int64_t> indices, const Transform& transform,
                                 uint64_t seed, int64_t epoch);

/// The random numbers of an item in epoch `epoch`: a pure function of (seed, epoch, index).
TANDEM_API ItemRandom item_random(uint64_t seed, int64_t epoch, int64_t index);
/// The random numbers of a batch in epoch `epoch`: a pure function of (seed, epoch, index of its first item).
TANDEM_API ItemRandom batch_random(uint64_t seed, int64_t epoch, int64_t first_index);

}}}  // namespace tandem::v0::data
