// Checks the output of examples/collectives --check.
#pragma once

#include <tandem/tests/support/subprocess.h>

namespace tandem::testing_support {

/// Expects exit status 0, and one correct line per rank and result.
void expect_all_operations(const Subprocess::Result& result, int num_ranks);

}  // namespace tandem::testing_support
