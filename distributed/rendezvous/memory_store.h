// A store for ranks that are threads of one process. Private to distributed/; users call make_memory_store().
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/distributed/rendezvous/key_value_map.h>
#include <tandem/distributed/rendezvous/key_watches.h>
#include <tandem/distributed/store.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Thread-safe. Callbacks run on the thread that reports the failure.
class TANDEM_API MemoryStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string get_from(const std::string& key, const std::vector<int>& ranks,
                       std::chrono::milliseconds timeout) override;
  bool contains(const std::vector<std::string>& keys) override;
  int64_t num_keys() override;
  int64_t add(const std::string& key, int64_t delta) override;
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override;
  void offer(const std::string& key, const std::string& value) override;
  HookHandle watch(const std::string& key, std::function<void(const std::string& value)> f) override;
  bool delete_key(const std::string& key) override;
  void announce_failure(int rank, const std::string& reason) override;
  void leave(int rank) override;
  HookHandle on_failure(std::function<void(int rank, const std::string& reason)> f) override;

  FailureBoard& failures() { return failures_; }

 private:
  void report(RankEndEvent event);
  /// Releases the lock.
  void set(std::unique_lock<std::mutex>& lock, const std::string& key, const std::string& value);

  std::mutex mutex_;
  std::condition_variable changed_;  // a key was set, or a rank ended
  KeyValueMap values_;
  FailureBoard failures_;
  KeyWatches watches_;
};

}}}  // namespace tandem::v0::distributed
