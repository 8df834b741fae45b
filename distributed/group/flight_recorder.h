// Flight recorder: the last operations of a group on this rank, written to a file for people and for tandem-run.
// Private to distributed/.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <tandem/distributed/group/operation.h>
#include <tandem/distributed/process_group_options.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The beginning of the file names of a rank: "rank-2.flight-", "rank-2.restart-1.flight-".
std::string flight_record_prefix(int rank, int restart);

/// Beginning of the reason in the file of a rank whose function threw before its group failed.
inline constexpr const char* kRankThrew = "this rank threw: ";

/// Records operations if TANDEM_FLIGHT_RECORDER_DIR is set; otherwise all functions do nothing. A group writes the file
/// DIR/rank-R.flight-GROUP.txt when it fails, when an operation stalls, and at SIGQUIT. A later file replaces an
/// earlier one, except that of a failure. Nothing is written elsewhere, and no function throws.
///
/// In a rank of tandem's launcher, the first recorder handles SIGQUIT if its action is the default. Thread-safe.
class FlightRecorder {
 public:
  static constexpr int64_t kNumEntries = 256;
  enum class Time : uint8_t { kStarted, kAgreed, kDone };

  /// `mutex` is locked by the callers of record(), and by write() while it reads.
  FlightRecorder(const ProcessGroupOptions& options, std::mutex& mutex);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// Adds the operation, which has just been numbered and is being queued.
  /// `starts_now`: a collective is not queued, so that its start is the only time.
  void record(Operation& operation, bool starts_now = false) {
    if (entries_ != nullptr) add(operation, starts_now);
  }
  /// Sets a time, in nanoseconds of trace_now_ns(), of an operation that is still among the last ones.
  void mark(const Operation& operation, Time time, int64_t now);
  /// Marks the end of an operation without error, or the agreement on one that ends on the GPU.
  void mark_end(const Operation& operation);
  /// A function that marks the end of the GPU collective whose consistency check is `check`.
  std::function<void()> end_on_gpu(const Operation& check);

  /// The file of the first failure is not replaced.
  void write(const std::string& why, bool is_failure);
  /// Writes the files of all groups of this process.
  static void write_all(const std::string& why, bool is_failure);

 private:
  struct Entry;

  void add(Operation& operation, bool starts_now);
  static void mark(Entry* entries, int64_t record, Time time, int64_t now);
  std::string table(const std::string& why);

  const std::string title_;
  const std::string path_;
  std::mutex& mutex_;                       // guards the entries, except for their times
  const std::shared_ptr<Entry[]> entries_;  // null if there is no folder
  int64_t num_recorded_ = 0;
  std::mutex file_mutex_;
  bool is_final_ = false;  // the file is of a failure; guarded by file_mutex_
};

}}}  // namespace tandem::v0::distributed
