// The table of docs/operations.md, generated from the registry of operations.
#pragma once

#include <string>

namespace tandem::testing {

/// The table with its head.
std::string operations_table();

}  // namespace tandem::testing
