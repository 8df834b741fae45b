// Time until ranks are notified of a failure.
#pragma once

#include <chrono>

namespace tandem { inline namespace v0 { namespace distributed {

/// Notification takes milliseconds, and longer on a busy machine.  A rank that nobody notifies notices a lost peer after kLostAfter,
/// ten seconds, or by the timeout of its operation.
inline constexpr std::chrono::milliseconds kNotifiedWithin{8000};

}}}  // namespace tandem::v0::distributed
