// Rendezvous of the ranks of a group through their store. Private to distributed/.
#pragma once

#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/process_group_options.h>
#include <tandem/distributed/rendezvous/socket.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// An identity that is equal for all ranks of one host: the running kernel, the network namespace, and options.host_id
/// or TANDEM_HOST_ID.
std::string host_identity(const ProcessGroupOptions& options);

/// Throws CommError "[rank 2 of 4] group 'default': what", or MissingRanksError if `headline` is not empty. `peer` is a
/// rank of the group, or -1.
[[noreturn]] void fail_to_join(const ProcessGroupOptions& options, const std::string& what, int peer = -1,
                               const std::string& headline = {});

/// Waits for the other ranks to join, and throws as soon as one of them has ended and can no longer join. Ranks are
/// ranks of the group. Throws MissingRanksError naming the ranks that are missing at the deadline.
class Rendezvous {
 public:
  using Clock = std::chrono::steady_clock;

  /// Keys are stored under "join/", the group's name and `part`.
  Rendezvous(const ProcessGroupOptions& options, const std::string& part);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  void set(const std::string& key, const std::string& value);
  /// Returns the value that `owner` sets.
  std::string get(const std::string& key, int owner) { return get(key, owner, {}); }
  /// Sets this rank's value and returns the values of all ranks, by rank.
  std::vector<std::string> exchange(const std::string& key, const std::string& value);
  /// Waits until `fd` is readable or has a connection to accept. Returns false if `until` or the deadline passes first.
  /// Before this rank has called barrier() no rank may leave, so the end of any other rank is a failure.
  bool wait_readable(int fd, Clock::time_point until = Clock::time_point::max());
  /// Throws the error for `ranks`, which are missing at the deadline.
  [[noreturn]] void fail_for_missing(const std::vector<int>& ranks);
  /// Throws if another rank has ended or ends soon. Call it to find out why a connection closed.
  void throw_if_rank_ended();
  /// Returns when all ranks have called it.
  void barrier() { exchange("mapped", "1"); }
  /// Declares that this rank needs nothing more from the others. Must be the last call. The last rank that calls it
  /// removes all keys.
  void finish();
  /// End of the time for joining; time_point::max() if there is no timeout.
  Clock::time_point deadline() const { return deadline_; }

 private:
  std::string get(const std::string& key, int owner, const std::string& stem);
  void on_peer_failure(int rank, const std::string& reason);
  bool has_ended(int rank);
  int shown(int rank) const;
  int member_of(int rank_in_job) const;
  [[noreturn]] void fail_for_ended();

  const ProcessGroupOptions options_;
  const std::string prefix_;
  const Clock::time_point deadline_;
  std::set<std::string> keys_;
  const FileDescriptor ended_fd_;  // readable once a rank has ended
  std::mutex mutex_;
  std::vector<std::pair<int, std::string>> ended_;  // rank in the group and reason
  HookHandle watch_;
};

}}}  // namespace tandem::v0::distributed
