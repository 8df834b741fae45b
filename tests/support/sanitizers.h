// Which sanitizer watches the tests.
#pragma once

namespace tandem::testing {

/// The thread sanitizer sees the threads of one process alone and makes them many times slower, so tests whose ranks are
/// processes, or that walk a product of which each row takes the same path, give it a part of what other builds run.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace tandem::testing
