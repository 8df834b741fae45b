// Transforms of images: normalization and random augmentation.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/data/item_random.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace data {

/// A function that returns the transformed image; `random` has the item's random numbers. Several threads call it
/// concurrently. A transform should draw the same number of random numbers for every item, so that later transforms do
/// not depend on it.
///
/// DataLoaderOptions::transform is applied to each image:
///
///     data::DataLoader loader(images, sampler, {.batch_size = 128, .transform = data::chain({
///         data::random_crop(4), data::random_horizontal_flip(), data::normalize(mean, deviation)})});
using Transform = std::function<Tensor(const Tensor& image, ItemRandom& random)>;

/// (x - mean[c]) / deviation[c] for each channel c of a float32 image [C, ...]. Throws ValueError unless both lists
/// have the same length of at least 1 and the standard deviations are positive. The transform throws DTypeError for
/// another dtype, ShapeError for another number of channels.
TANDEM_API Transform normalize(std::vector<double> mean, std::vector<double> deviation);

/// Crops a random window with the size of the image from the image with `padding` zeros on each side. Images are
/// float32 [C, H, W], otherwise the transform throws DTypeError or ShapeError. Throws ValueError unless 0 <= padding <=
/// 2^20.
TANDEM_API Transform random_crop(int64_t padding);

/// Flips the image horizontally with the given probability. Images are float32 [C, H, W], otherwise the transform
/// throws DTypeError or ShapeError. Throws ValueError for a probability outside [0, 1].
TANDEM_API Transform random_horizontal_flip(double probability = 0.5);

/// Applies the transforms one after the other, as PyTorch's Compose.
TANDEM_API Transform chain(std::vector<Transform> transforms);

/// Applies `transform` to each image of `images` [n, ...], where image i is item indices[i] in epoch `epoch`, and
/// stacks the results. The random numbers are a pure function of (seed, epoch, index); they do not depend on worker,
/// rank or batch.
TANDEM_API Tensor transform_images(const Transform& transform, const Tensor& images, std::span<const int64_t> indices,
                                   uint64_t seed, int64_t epoch);

}}}  // namespace tandem::v0::data
