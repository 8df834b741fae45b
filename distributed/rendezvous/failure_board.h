// List of the ranks of a job that have ended, in order and with reasons; shared by the stores. Private to distributed/.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>  // HookHandle

namespace tandem { inline namespace v0 { namespace distributed {

/// How a rank ended.
enum class RankEnd : uint8_t {
  kFailed,  ///< it announced an error
  kDied,    ///< its connection closed without a goodbye
  kLeft,    ///< its function returned
  kLost,    ///< its connection was lost, for example by a reset; the rank may still run
};

struct RankEndEvent {
  int rank = -1;  ///< -1: the store's host
  RankEnd end = RankEnd::kFailed;
  std::string reason;
  std::chrono::steady_clock::time_point when = {};
};

/// `headline`, then a line "  rank 2: reason"; without the rank if `culprit` is negative.
std::string failure_text(const std::string& headline, int culprit, std::string_view reason);

/// Maximum time that a failed rank waits until its store has received the failure. The rank is about to end, and the
/// other ranks may detect its end themselves.
inline constexpr std::chrono::milliseconds kAnnounceTime{2000};

/// Keeps the first end of each rank and calls the registered callbacks. Thread-safe. Callbacks run without the mutex of
/// the list, so they may call other member functions.
class TANDEM_API FailureBoard {
 public:
  /// Records the event and runs the callbacks on this thread. Returns false, without effect, if the rank has already
  /// ended.
  bool report(RankEndEvent event);

  /// See Store::on_failure.
  HookHandle on_failure(std::function<void(int rank, const std::string& reason)> f);

  /// All ends, in the order in which they were reported.
  std::vector<RankEndEvent> events() const;
  /// The first failure or death of `ranks` (empty: of any rank) or of the store's host. Ranks that left do not count.
  std::optional<RankEndEvent> first_failure(const std::vector<int>& ranks = {}) const;
  /// Removes all ends, when ranks that have left may join again.
  void clear();

 private:
  struct Callback {
    std::function<void(int rank, const std::string& reason)> f;
    std::recursive_mutex running;  ///< held while f runs, so that removal waits for f; recursive: f may remove itself
    bool removed = false;
    std::set<int> notified;
  };
  struct State {
    std::mutex mutex;
    std::vector<RankEndEvent> events;
    std::vector<std::shared_ptr<Callback>> callbacks;
  };
  static void notify(Callback& callback, const RankEndEvent& event);

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// The error text of a get() without a value: one of `ranks` failed, or the deadline passed.
TANDEM_API std::string missing_key_text(const std::string& key, const std::vector<int>& ranks,
                                        std::chrono::milliseconds timeout, const FailureBoard& failures);

/// "30.0 s".
TANDEM_API std::string format_seconds(std::chrono::milliseconds duration);

}}}  // namespace tandem::v0::distributed
