#include <tandem/distributed/shm/cache_trials.h>

#include <ctime>

namespace tandem::inline v0::distributed::shm {

namespace {

/// Of this thread, so that ranks which wait for a core do not count.
int64_t thread_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

void CacheTrials::begin(int64_t num_bytes) {
  bytes_since_ += num_bytes;
  if (on_trial_ || bytes_since_ < bytes_between_) return;
  on_trial_ = true;
  bytes_since_ = tried_ = 0;
  times_[0] = times_[1] = {};
}

bool CacheTrials::through_caches(int64_t round) const { return is_tried(round) ? round % 2 != 0 : prefers_caches_; }

void CacheTrials::run(int64_t round, FunctionRef<void()> stage) {
  if (!is_tried(round)) return stage();
  const int64_t begin = thread_ns();
  stage();
  if (tried_ + round < kUncounted) return;
  Times& times = times_[through_caches(round) ? 1 : 0];
  times.ns += static_cast<double>(thread_ns() - begin);
  ++times.stages;
}

void CacheTrials::end(int64_t rounds) {
  tried_ += rounds;
  if (!on_trial_ || tried_ < kRounds) return;
  on_trial_ = false;
  prefers_caches_ = times_[1].per_stage() < kTolerance * times_[0].per_stage();
}

}  // namespace tandem::inline v0::distributed::shm
