// How the ranks of a group find each other through their store. Private to distributed/.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/process_group_options.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// What ranks of one host have in common: the running kernel, the network namespace, and options.host_id or
/// TANDEM_HOST_ID.
std::string host_identity(const ProcessGroupOptions& options);

/// Throws CommError "[rank 2 of 4] group 'default': what", a MissingRanksError if there is a headline. `peer` is a rank
/// of the group, -1 for none.
[[noreturn]] void fail_to_join(const ProcessGroupOptions& options, const std::string& what, int peer = -1,
                               const std::string& headline = {});

/// Waits for what other ranks do to join, and gives up as soon as one of them can no longer do it. Ranks are ranks of
/// the group. Throws MissingRanksError naming the ranks that are missing at the deadline.
class Rendezvous {
 public:
  using Clock = std::chrono::steady_clock;

  /// Keys are kept under the group's name and `part`. Throws CommError where this rank has used both before in this
  /// job.
  Rendezvous(const ProcessGroupOptions& options, const std::string& part);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  void set(const std::string& key, const std::string& value);
  /// What `owner` sets.
  std::string get(const std::string& key, int owner);
  /// Every rank's value, by rank.
  std::vector<std::string> exchange(const std::string& key, const std::string& value);
  /// Returns when something can be read from `fd`, or accepted; false where `until` or the deadline passed before.
  /// Until this rank has called meet() nobody leaves in peace, so that the end of any other rank is a failure.
  bool wait_readable(int fd, Clock::time_point until = Clock::time_point::max());
  /// For who has waited until the deadline.
  [[noreturn]] void fail_for_missing(const std::vector<int>& ranks);
  /// Fails where another rank has ended, or ends soon: for one that wonders why a connection closed.
  void blame_ended();
  /// Returns when all ranks have called it.
  void meet();
  /// Says that this rank needs nothing more of the others; the last call. The last rank to say so removes all keys but
  /// one, by which the group's name is known to be used up.
  void finish();
  /// When the group's time to come together is over; time_point::max() without a limit.
  Clock::time_point deadline() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}}}  // namespace tandem::v0::distributed
