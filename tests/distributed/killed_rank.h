// How the store reports a killed rank.
#pragma once

namespace tandem { inline namespace v0 { namespace distributed {

/// Regular expression of the reason on other ranks. A process killed with unread data resets its connection.
inline constexpr const char* kKilledReason =
    "(died \\(its connection closed\\)|lost its connection to the store at [^ ]+ \\(Connection reset by peer\\))";

}}}  // namespace tandem::v0::distributed
