// How long ranks take to hear of a failure.
#pragma once

#include <chrono>

namespace tandem { inline namespace v0 { namespace distributed {

/// All have heard of it within a second; half of another for what else the machine does.
inline constexpr std::chrono::milliseconds kHeardWithin{1500};

/// What `run` returns: how long it took.  Again, twice at most, where that was too long: the machine may have stood still.
template <class F>
std::chrono::nanoseconds time_to_hear(const F& run) {
  std::chrono::nanoseconds took = run();
  for (int again = 0; again < 2 && took >= kHeardWithin; ++again) took = run();
  return took;
}

}}}  // namespace tandem::v0::distributed
