// Numbers as text.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// "24.0 MiB", "512 B".
TANDEM_API std::string format_bytes(int64_t num_bytes);

}}  // namespace tandem::v0
