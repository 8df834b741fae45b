// Which ranks of a job have ended, in which order and why; shared by the stores. Private to distributed/.
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
  kDied,    ///< its connection ended without a goodbye
  kLeft,    ///< its function returned
  kLost,    ///< its connection was lost, as by a reset; the rank may still run
};

struct RankEndEvent {
  int rank = -1;  ///< -1: the store's host
  RankEnd end = RankEnd::kFailed;
  std::string reason;
  std::chrono::steady_clock::time_point when = {};
};

/// `headline`, then "  rank 2: reason" on a line of its own; without the rank where `culprit` is negative.
std::string failure_text(const std::string& headline, int culprit, std::string_view reason);

/// How long a rank that failed waits at most for its store to hear of it: it is to end soon, and others may notice by
/// themselves.
inline constexpr std::chrono::milliseconds kAnnounceTime{2000};

/// Keeps the first end of each rank and tells those who asked. Safe from many threads; callbacks run without a lock
/// that another member function needs.
class TANDEM_API FailureBoard {
 public:
  /// Records the event and runs the callbacks on this thread. False where the rank has ended before: the first counts.
  bool report(RankEndEvent event);

  /// As Store::on_failure.
  HookHandle on_failure(std::function<void(int rank, const std::string& reason)> f);

  /// In the order of report.
  std::vector<RankEndEvent> events() const;
  /// The first failure or death, of `ranks` or of the store's host (empty: of any rank); ranks that left do not count.
  std::optional<RankEndEvent> first_failure(const std::vector<int>& ranks = {}) const;
  /// Forgets all ends, where ranks that have left begin anew.
  void clear();

 private:
  struct Callback {
    std::function<void(int rank, const std::string& reason)> f;
    std::recursive_mutex running;  ///< held during f, so that removal can wait for it; recursive: f may remove itself
    bool removed = false;
    std::set<int> told;
  };
  struct State {
    std::mutex mutex;
    std::vector<RankEndEvent> events;
    std::vector<std::shared_ptr<Callback>> callbacks;
  };
  static void tell(Callback& callback, const RankEndEvent& event);

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// The text of a get() that ended without a value, because one of `ranks` failed or the deadline passed.
TANDEM_API std::string missing_key_text(const std::string& key, const std::vector<int>& ranks,
                                        std::chrono::milliseconds timeout, const FailureBoard& failures);

/// "30.0 s".
TANDEM_API std::string format_seconds(std::chrono::milliseconds duration);

}}}  // namespace tandem::v0::distributed
