// Which tandem this is: noted in files that outlive a program.
#pragma once

namespace tandem { inline namespace v0 {

constexpr const char* kVersion = "0.1.0-dev";

}}  // namespace tandem::v0
