// Ranks count themselves in the store, and wait for a verdict.  The last to arrive gives it, "" for "all are here"; else
// the first whose deadline passes, which lists the others that have not counted themselves.  Who comes later finds that
// verdict, so that all ranks agree on how each barrier ended.
#include <tandem/distributed/monitored_barrier.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/distributed/backend.h>
#include <tandem/distributed/store/failure_board.h>

namespace tandem::inline v0::distributed {

namespace {

using Clock = std::chrono::steady_clock;

// How long the end of a member goes unnoticed, and what one that gives the verdict may take for it.
constexpr std::chrono::milliseconds kSlice{50};
constexpr std::chrono::milliseconds kVerdictTime{10000};

/// The first member that has ended, if any.
class EndedMember {
 public:
  explicit EndedMember(const ProcessGroupOptions& options)
      : watch_(options.store->on_failure([this, &options](int rank, const std::string& reason) {
          const auto& members = options.ranks;
          if (rank >= 0 && std::find(members.begin(), members.end(), rank) == members.end()) return;
          std::lock_guard lock(mutex_);
          if (!first_) first_ = {rank, reason};
        })) {}

  std::optional<std::pair<int, std::string>> get() {
    std::lock_guard lock(mutex_);
    return first_;
  }

 private:
  std::mutex mutex_;
  std::optional<std::pair<int, std::string>> first_;
  HookHandle watch_;
};

class MonitoredBarrier {
 public:
  MonitoredBarrier(const ProcessGroupOptions& options, const std::string& who, int64_t number,
                   std::chrono::milliseconds timeout)
      : options_(options),
        title_(str(who, " monitored_barrier #", number)),
        prefix_(str("group/", options.name, "/monitored/", number, "/")),
        timeout_(timeout),
        ended_(options) {}

  void run() {
    const auto begin = Clock::now();
    const bool is_timed = timeout_.count() > 0 && timeout_ < Clock::time_point::max() - begin;
    const auto deadline = is_timed ? begin + timeout_ : Clock::time_point::max();
    store().add(arrival(options_.rank), 1);
    if (store().add(prefix_ + "arrived", 1) == options_.world_size) decide("");
    std::optional<std::string> verdict = wait_until(deadline);
    if (!verdict) {
      decide(missing());
      verdict = wait_until(Clock::now() + kVerdictTime);
    }
    if (!verdict) throw failure(": the rank that was to name the missing did not", -1);
    if (!verdict->empty()) throw failure(*verdict, first_missing(*verdict));
  }

 private:
  Store& store() const { return *options_.store; }
  std::string arrival(int rank) const { return str(prefix_, "arrived/", rank); }
  CommError failure(const std::string& after_title, int peer) const {
    return CommError(title_ + after_title, job_rank(options_, options_.rank), peer);
  }

  /// The first verdict counts.
  void decide(const std::string& verdict) {
    if (store().add(prefix_ + "decided", 1) == 1) store().set(prefix_ + "verdict", verdict);
  }

  /// What follows the title in everybody's error; the missing ranks stand at its end.
  std::string missing() {
    std::string came;
    std::string missing;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      const bool is_here = store().add(arrival(rank), 0) > 0;
      (is_here ? came : missing) += str(" ", job_rank(options_, rank));
    }
    // All have come while this rank counted: they are told so.
    if (missing.empty()) return "";
    return str(" timed out after ", format_seconds(timeout_), "\n  came: ranks", came, "\n  missing: ranks", missing);
  }

  static int first_missing(const std::string& verdict) {
    return std::stoi(verdict.substr(verdict.rfind("ranks ") + 6));
  }

  /// nullopt where `deadline` passed first.
  std::optional<std::string> wait_until(Clock::time_point deadline) {
    for (;;) {
      // Asked before the key is: one that has ended may have given the verdict.
      const auto ended = ended_.get();
      const auto begin = Clock::now();
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - begin);
      const auto slice = std::clamp(left, std::chrono::milliseconds(1), kSlice);
      try {
        return store().get(prefix_ + "verdict", slice);
      } catch (const CommError&) {
        // Not there, or the store knows of a rank that failed; which need not be a member.
      }
      if (ended) throw failure(failure_text(" failed", ended->first, ended->second), ended->first);
      if (Clock::now() >= deadline) return std::nullopt;
      std::this_thread::sleep_until(begin + slice);  // where get() did not wait
    }
  }

  const ProcessGroupOptions& options_;
  const std::string title_;
  const std::string prefix_;
  const std::chrono::milliseconds timeout_;
  EndedMember ended_;
};

}  // namespace

void monitored_barrier(const ProcessGroupOptions& options, const std::string& who, int64_t number,
                       std::chrono::milliseconds timeout) {
  if (options.world_size == 1) return;
  MonitoredBarrier(options, who, number, timeout).run();
}

}  // namespace tandem::inline v0::distributed
