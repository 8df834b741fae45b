// Whether a test runs all rows of a wide product, or those that each take a path of their own.
#pragma once

#include <cstdlib>

namespace tandem::testing {

/// True in targets tagged `full`, which set this variable: their product has rows that repeat a path of the others.
inline bool runs_full_product() { return std::getenv("TANDEM_TEST_FULL") != nullptr; }

}  // namespace tandem::testing
