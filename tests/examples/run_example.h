// Running an example and reading what it printed.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <tandem/tests/support/subprocess.h>

namespace tandem::testing_support {

using Arguments = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

/// The path of the example of that name and its arguments.
Arguments example_command(const std::string& name, Arguments arguments);
/// Runs it to its end.  Its note about ranks that share cores, which depends on the machine, is taken off stderr.
Subprocess::Result run_example(const std::string& name, const Arguments& arguments, const Variables& variables = {},
                               std::chrono::seconds bound = Subprocess::kBound);
std::string without_crowding_note(const std::string& err);

/// Writes 40 training and 10 test images, whose bright rows say their class, as MNIST's t10k files: one with .gz, one
/// plain.
void write_small_data(const std::string& folder);

/// Trains on two ranks, on one rank with batches twice as large, and on one rank that adds up two batches per step: all
/// weights must agree within the rounding of float32.  `arguments` name no --batch-size.
void expect_equal_training(const std::string& name, const Arguments& arguments);

/// A folder of this test case that does not exist yet.
std::string fresh_folder(const std::string& name);
/// The bytes of a file; "" where there is none.
std::string read_file(const std::string& path);
/// The number behind the last `label` of `text`; NaN where there is none.
double number_after(const std::string& text, const std::string& label);

}  // namespace tandem::testing_support
