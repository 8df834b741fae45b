// What is done to the images of a dataset on their way into a batch: normalisation and random changes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/data/item_random.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace data {

/// Makes an image from an image; `random` is the item's own.  Called from several threads at a time.  A transform draws
/// equally many numbers whatever they are, so that those after it do not depend on them.
///
/// DataLoaderOptions::transform applies one to each image:
///
///     data::DataLoader loader(images, sampler, {.batch_size = 128, .transform = data::chain({
///         data::random_crop(4), data::random_horizontal_flip(), data::normalize(mean, deviation)})});
using Transform = std::function<Tensor(const Tensor& image, ItemRandom& random)>;

/// (x - mean[c]) / deviation[c] for each channel c of a float32 image [C, ...].  Throws ValueError unless both have
/// equally many numbers, at least one, and the deviations are positive.  The transform throws DTypeError for another
/// dtype, ShapeError for another number of channels.
TANDEM_API Transform normalize(std::vector<double> mean, std::vector<double> deviation);

/// A window of the size of the image, at a random place of the image with `padding` zeros around it.  Images are
/// float32 [C, H, W], else the transform throws DTypeError or ShapeError.  Throws ValueError for a padding that is
/// negative or above 2^20.
TANDEM_API Transform random_crop(int64_t padding);

/// The image mirrored left to right, with the given probability.  Images are float32 [C, H, W], else the transform
/// throws DTypeError or ShapeError.  Throws ValueError for a probability outside [0, 1].
TANDEM_API Transform random_horizontal_flip(double probability = 0.5);

/// One after the other.
TANDEM_API Transform chain(std::vector<Transform> transforms);

/// Applies `transform` to each of `images` [n, ...], item indices[i] of epoch `epoch`, and stacks the results.  The
/// random numbers are a pure function of (seed, epoch, index), whatever worker, rank or batch the item is in.
TANDEM_API Tensor transform_images(const Transform& transform, const Tensor& images, std::span<const int64_t> indices,
                                   uint64_t seed, int64_t epoch);

}}}  // namespace tandem::v0::data
