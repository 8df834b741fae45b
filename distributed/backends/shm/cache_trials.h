// Whether data goes into the rings through the caches or past them. Private to distributed/backends/shm.
#pragma once

#include <cstdint>

#include <tandem/base/function_ref.h>
#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

/// Through the caches is up to twice as fast where cores share one, and several times slower where they do not. What
/// the operating system says of that is wrong in many virtual machines, and ranks move between cores: so now and then
/// some rounds go one way and some the other, and from the next collective on the better way is taken.
///
/// The two do not compete on equal terms: what goes past the caches drives out what the other rounds would find there.
/// So through them is the better way unless it takes over a quarter longer.
///
/// All ranks try in the same rounds, as a rank's times depend on what its peers write. What each makes of its own times
/// changes nothing but the time.
class CacheTrials {
 public:
  /// A trial begins with the first collective, and whenever those since it began come to so many bytes.
  explicit CacheTrials(int64_t bytes_between) : bytes_between_(bytes_between), bytes_since_(bytes_between) {}

  /// What a rank does in a round.
  enum class Stage : uint8_t { kSend, kReduce, kTake };

  /// A collective of so many bytes begins, in which all ranks send and receive alike; the same on all of them.
  void begin(int64_t num_bytes);
  /// How that round of it goes.
  bool through_caches(int64_t round) const;
  /// Does a stage of that round, which moves so many bytes.
  void run(Stage stage, int64_t round, int64_t num_bytes, FunctionRef<void()> body);
  /// It is done, in so many rounds.
  void end(int64_t rounds);

  /// How other collectives go.
  bool prefers_caches() const { return prefers_caches_; }

 private:
  static constexpr int64_t kRounds = 24;    // of a trial, ...
  static constexpr int64_t kUncounted = 8;  // in the first of which slots still hold what went the other way
  static constexpr double kTolerance = 1.25;

  /// Of one way into the rings: the least time per byte of each stage. Fresh pages and interruptions make others
  /// longer.
  struct Least {
    double ns[3] = {};
    double total() const { return ns[0] + ns[1] + ns[2]; }
  };

  bool is_tried(int64_t round) const { return on_trial_ && tried_ + round < kRounds; }

  const int64_t bytes_between_;
  int64_t bytes_since_;  // the last trial began
  bool on_trial_ = false;
  int64_t tried_ = 0;  // rounds of the trial, before the running collective
  Least past_, through_;
  bool prefers_caches_ = false;
};

}}}  // namespace tandem::v0::distributed::shm
