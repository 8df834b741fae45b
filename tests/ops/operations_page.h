// docs/operations.md, generated from the registry of operations.
#pragma once

#include <string>

namespace tandem::testing {

/// The text of the page.
std::string operations_page();

}  // namespace tandem::testing
