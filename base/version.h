// The version of tandem, stored in checkpoints and other files.
#pragma once

namespace tandem { inline namespace v0 {

constexpr const char* kVersion = "0.1.0-dev";

}}  // namespace tandem::v0
