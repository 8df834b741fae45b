// How the store notices a rank that is killed.
#pragma once

namespace tandem { inline namespace v0 { namespace distributed {

/// The reason that the others see, a regular expression.  A process that is killed with something unread resets its connection.
inline constexpr const char* kKilledReason =
    "(died \\(its connection closed\\)|lost its connection to the store at [^ ]+ \\(Connection reset by peer\\))";

}}}  // namespace tandem::v0::distributed
