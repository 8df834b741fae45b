// Whether a test runs all combinations of its parameters, or only those that cover different code paths.
#pragma once

#include <cstdlib>

namespace tandem::testing {

/// True in targets tagged `full`, which set this variable.
inline bool runs_all_combinations() { return std::getenv("TANDEM_TEST_FULL") != nullptr; }

}  // namespace tandem::testing
