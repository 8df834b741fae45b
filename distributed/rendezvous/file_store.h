// A store for processes that share a file. Private to distributed/; users call make_file_store().
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/base/function_ref.h>
#include <tandem/base/macros.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/distributed/rendezvous/file_log.h>
#include <tandem/distributed/rendezvous/key_value_map.h>
#include <tandem/distributed/rendezvous/key_watches.h>
#include <tandem/distributed/rendezvous/socket.h>
#include <tandem/distributed/store.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Thread-safe. Several objects, in this and other processes, may use the same file.
class TANDEM_API FileStore final : public Store {
 public:
  FileStore(std::string path, const FileStoreOptions& options);
  ~FileStore() override;

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
  class Lock;

  void open_file();
  /// Reads the records that were appended since the last call.
  void refresh();
  /// Runs f while the file is locked and up to date. For changes it first removes an incomplete record at the end.
  void with_file(bool change, FunctionRef<void()> f);
  void append(const file_log::Record& record);
  void append_end(int rank, RankEnd end, const std::string& reason);
  /// Reports the ends and watched keys that refresh() found. Call without mutex_.
  void notify_of_changes();
  void run_watcher();
  void start_watcher();
  void set_offered();

  const std::string path_;
  const FileStoreOptions options_;
  FailureBoard failures_;
  std::atomic<bool> has_announced_{false};  // a failure was announced: wait less long for the file
  std::mutex watch_mutex_;                  // guards the start of watcher_
  std::thread watcher_;                     // polls for ends and watched keys, and sets offered ones
  KeyWatches watches_;

  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  FileDescriptor fd_;
  int64_t read_ = 0;  // offset up to which values_ contains the file
  KeyValueMap values_;
  std::vector<std::pair<std::string, std::string>> offered_;  // keys and values
  std::vector<RankEndEvent> ends_;
  size_t ends_reported_ = 0;
};

}}}  // namespace tandem::v0::distributed
