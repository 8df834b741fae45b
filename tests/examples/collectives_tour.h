// What a tour of the collectives prints with --check.
#pragma once

#include <tandem/tests/support/subprocess.h>

namespace tandem::testing_support {

/// That it ended well, and that each rank has every result once, and the right one.
void expect_whole_tour(const Subprocess::Result& result, int num_ranks);

}  // namespace tandem::testing_support
