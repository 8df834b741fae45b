// Pictures of a training: grids of generated images.
#pragma once

#include <tandem/tandem.h>

#include <cstdint>
#include <string>

namespace examples {

/// The folder of the pictures, in --out: TrainerOptions::folders checks it.
inline constexpr char kSamples[] = "samples";

/// Writes images [N, C, H, W] with values in [-1, 1], on any device, as a grid of 8 columns to the file
/// OUT/samples/step-00000120.png of this step. Logs a warning if it cannot be written.
void write_samples(const std::string& out, int64_t step, const tandem::Tensor& images);

}  // namespace examples
