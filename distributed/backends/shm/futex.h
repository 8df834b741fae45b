// Sleeping on a word that several processes map. Private to distributed/backends/shm.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace tandem { inline namespace v0 { namespace distributed::shm {

/// Sleeps while `word` is `expected`, for `timeout` at most; may return earlier.
inline void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, std::chrono::nanoseconds timeout) {
  const timespec relative = {static_cast<time_t>(timeout.count() / 1000000000),
                             static_cast<long>(timeout.count() % 1000000000)};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &relative, nullptr, 0);
}

/// Wakes all that sleep on `word`.
inline void futex_wake_all(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}}}  // namespace tandem::v0::distributed::shm
