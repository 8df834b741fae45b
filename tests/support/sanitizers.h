// The sanitizer with which the tests were built.
#pragma once

namespace tandem::testing {

/// ThreadSanitizer sees only the threads of one process and slows them down considerably. Tests whose ranks are
/// processes, or that run many combinations of parameters through the same code, run fewer combinations with it.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

}  // namespace tandem::testing
