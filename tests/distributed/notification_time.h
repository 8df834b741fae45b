// Time until ranks are notified of a failure.
#pragma once

#include <chrono>

namespace tandem { inline namespace v0 { namespace distributed {

/// Notification takes at most a second, plus half a second for load on the machine.
inline constexpr std::chrono::milliseconds kNotifiedWithin{1500};

/// The duration returned by `run`; at most two retries if it was too long, because the machine may be loaded.
template <class F>
std::chrono::nanoseconds notification_time(const F& run) {
  std::chrono::nanoseconds took = run();
  for (int again = 0; again < 2 && took >= kNotifiedWithin; ++again) took = run();
  return took;
}

}}}  // namespace tandem::v0::distributed
