// Chooses between cached and non-temporal stores into the rings. Private to distributed/backends/shm.
#pragma once

#include <cstdint>

#include <tandem/base/function_ref.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

/// Cached stores are up to twice as fast if cores share a cache, and several times slower if they do not. The cache
/// topology that the operating system reports is wrong in many virtual machines, and ranks move between cores. So from
/// time to time some rounds use one kind of stores and some the other. Later collectives use the faster kind.
///
/// The comparison is biased: non-temporal stores evict the lines that cached rounds would hit. So cached stores are
/// preferred unless they are more than 25 % slower.
///
/// All ranks run their trials in the same rounds, because a rank's times depend on the stores of its peers. Each rank
/// decides from its own times; the decision affects only the speed.
class StreamingStoreTuner {
 public:
  /// The first trial begins with the first collective, each later one when `bytes_between` bytes have been sent since.
  explicit StreamingStoreTuner(int64_t bytes_between) : bytes_between_(bytes_between), bytes_since_(bytes_between) {}

  /// The stages of a round, which are measured separately.
  enum class Stage : uint8_t { kSend, kReduce, kTake };

  /// Begins a collective of `num_bytes`, in which all ranks send and receive equally much. Equal on all ranks.
  void begin(int64_t num_bytes);
  /// Whether that round of the collective uses cached stores.
  bool uses_cached_stores(int64_t round) const;
  /// Runs a stage of that round, which moves `num_bytes`. Measures it during a trial.
  void run(Stage stage, int64_t round, int64_t num_bytes, FunctionRef<void()> body);
  /// Ends the collective, which had `rounds` rounds.
  void end(int64_t rounds);

  /// Whether cached stores are used outside of trials.
  bool prefers_cached_stores() const { return prefers_cached_stores_; }

 private:
  static constexpr int64_t kRounds = 24;    // rounds of a trial
  static constexpr int64_t kUncounted = 8;  // first rounds, not measured: slots hold data of the other kind of stores
  static constexpr double kTolerance = 1.25;

  /// For one kind of stores, the minimum time per byte of each stage. Fresh pages and interruptions make other
  /// measurements longer.
  struct Least {
    double ns[3] = {};
    double total() const { return ns[0] + ns[1] + ns[2]; }
  };

  bool is_tried(int64_t round) const { return on_trial_ && tried_ + round < kRounds; }

  const int64_t bytes_between_;
  int64_t bytes_since_;  // since the last trial began
  bool on_trial_ = false;
  int64_t tried_ = 0;  // rounds of the trial before the running collective
  Least nontemporal_, cached_;
  bool prefers_cached_stores_ = false;
};

}}}  // namespace tandem::v0::distributed::shm
