// The store of ranks that are threads of one process.  Private to distributed/; users call make_memory_store().
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include <tandem/base/macros.h>
#include <tandem/distributed/store.h>
#include <tandem/distributed/store/failure_board.h>

namespace tandem::inline v0::distributed {

/// Safe from many threads.  Callbacks run on the thread that reports the failure.
class TANDEM_API MemoryStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  int64_t add(const std::string& key, int64_t delta) override;
  void announce_failure(int rank, const std::string& reason) override;
  HookHandle on_failure(std::function<void(int rank, const std::string& reason)> f) override;

  /// Tells the others that `rank`'s function returned.
  void leave(int rank);
  FailureBoard& failures() { return failures_; }

 private:
  void report(RankEndEvent event);

  std::mutex mutex_;
  std::condition_variable changed_;  // a key was set, or a rank ended
  std::map<std::string, std::string> values_;
  FailureBoard failures_;
};

/// The text of a get() that ended without a value, because a rank failed or the deadline passed.
TANDEM_API std::string missing_key_text(const std::string& key, std::chrono::milliseconds timeout,
                                        const FailureBoard& failures);

}  // namespace tandem::inline v0::distributed
