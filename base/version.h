// The version of tandem, stored in checkpoints and other files.
#pragma once

namespace tandem { inline namespace v0 {

/// "major.minor.patch", with a suffix before a release.
constexpr const char* kVersion = "0.1.0";

}}  // namespace tandem::v0
