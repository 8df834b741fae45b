// Whether data goes into the rings through the caches or past them.  Private to distributed/shm.
#pragma once

#include <cstdint>

#include <tandem/base/function_ref.h>
#include <tandem/base/macros.h>

namespace tandem::inline v0::distributed::shm {

/// Through the caches is up to twice as fast where cores share one, and several times slower where they do not.  What
/// the operating system says of that is wrong in many virtual machines, and ranks move between cores: so now and then
/// some rounds go one way and some the other, and the one that took less time is taken until the next trial.
///
/// All ranks try in the same rounds.  What each makes of its own times changes nothing but the time.
class CacheTrials {
 public:
  /// A trial begins with the first all_reduce, and whenever those since it began come to so many bytes.
  explicit CacheTrials(int64_t bytes_between) : bytes_between_(bytes_between), bytes_since_(bytes_between) {}

  void begin(int64_t num_bytes);                       ///< an all_reduce of so many bytes, the same on all ranks
  bool through_caches(int64_t round) const;            ///< how that round of it goes
  void run(int64_t round, FunctionRef<void()> stage);  ///< does a stage of the round, and times it
  void end(int64_t rounds);                            ///< it is done, in so many rounds

  /// How data of other collectives goes.
  bool prefers_caches() const { return prefers_caches_; }

 private:
  static constexpr int64_t kRounds = 24;    // of a trial, ...
  static constexpr int64_t kUncounted = 8;  // in the first of which slots still hold what went the other way
  // What goes past the caches drives out what the other half of the rounds would find there.
  static constexpr double kTolerance = 1.25;

  struct Times {
    double ns = 0;
    int stages = 0;
    double per_stage() const { return stages > 0 ? ns / stages : 0; }
  };
  bool is_tried(int64_t round) const { return on_trial_ && tried_ + round < kRounds; }

  const int64_t bytes_between_;
  int64_t bytes_since_;  // the last trial began
  bool on_trial_ = false;
  int64_t tried_ = 0;  // rounds of the trial, before the running all_reduce
  Times times_[2];     // past the caches, through them
  bool prefers_caches_ = false;
};

}  // namespace tandem::inline v0::distributed::shm
