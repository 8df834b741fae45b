#include <tandem/distributed/backends/shm/streaming_store_tuner.h>

#include <ctime>

#include <algorithm>

namespace tandem { inline namespace v0 { namespace distributed::shm {

namespace {

/// CPU time of this thread, so that the time in which a rank waits for a core does not count.
int64_t thread_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

void StreamingStoreTuner::begin(int64_t num_bytes) {
  bytes_since_ += num_bytes;
  if (on_trial_ || bytes_since_ < bytes_between_) return;
  on_trial_ = true;
  bytes_since_ = tried_ = 0;
  nontemporal_ = cached_ = {};
}

bool StreamingStoreTuner::uses_cached_stores(int64_t round) const {
  return is_tried(round) ? round % 2 != 0 : prefers_cached_stores_;
}

void StreamingStoreTuner::run(Stage stage, int64_t round, int64_t num_bytes, FunctionRef<void()> body) {
  if (!is_tried(round)) return body();
  const int64_t begin = thread_ns();
  body();
  if (tried_ + round < kUncounted) return;
  double& least = (uses_cached_stores(round) ? cached_ : nontemporal_).ns[static_cast<size_t>(stage)];
  const double now = static_cast<double>(thread_ns() - begin) / static_cast<double>(num_bytes);
  least = least == 0 ? now : std::min(least, now);
}

void StreamingStoreTuner::end(int64_t rounds) {
  tried_ += rounds;
  if (!on_trial_ || tried_ < kRounds) return;
  on_trial_ = false;
  prefers_cached_stores_ = cached_.total() > 0 && cached_.total() < kTolerance * nontemporal_.total();
}

}}}  // namespace tandem::v0::distributed::shm
