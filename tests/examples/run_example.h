// Runs an example and reads its output.
#pragma once

#include <tandem/tests/support/subprocess.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>

namespace tandem::testing_support {

using testing::read_file;

using Arguments = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

/// Both lists of arguments.
Arguments joined(Arguments first, const Arguments& second);
/// The command line of the example `name`.
Arguments example_command(const std::string& name, Arguments arguments);
/// Runs the example to its end. Removes the note about ranks that share cores, which depends on the machine, from
/// stderr.
Subprocess::Result run_example(const std::string& name, const Arguments& arguments, const Variables& variables = {},
                               std::chrono::seconds bound = Subprocess::kBound);

/// Writes MNIST's t10k files, one of them compressed, with 50 images, which MnistDataset divides into 40 for training
/// and 10 for testing. The bright rows of an image determine its class.
void write_small_data(const std::string& folder);

/// Trains on two ranks, on one rank with batches twice as large, and on one rank with --accumulate 2, and expects equal
/// weights within the rounding of float32. `arguments` must not contain --batch-size.
void expect_equal_training(const std::string& name, const Arguments& arguments);

/// Expects a PNG file of 1 or 3 channels, of a grid of images of 32 x 32 pixels, 8 in a row, that are neither empty nor
/// equal.
void expect_picture_grid(const std::string& path, int64_t channels, int64_t rows);

/// A folder of this test case that does not exist yet.
std::string fresh_folder(const std::string& name);
/// How often `part` is in `text`.
int count(const std::string& text, const std::string& part);
/// The number after the last `label` in `text`; NaN if there is none.
double number_after(const std::string& text, const std::string& label);

}  // namespace tandem::testing_support
