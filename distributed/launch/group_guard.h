// Kills the processes of ranks if the launcher is killed. Private to distributed/.
#pragma once

#include <sys/types.h>

#include <tandem/distributed/rendezvous/socket.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// A process that kills the process groups of the ranks when the launcher dies. PR_SET_PDEATHSIG kills only the ranks
/// themselves, not the processes that they started.
///
/// The guard is forked without exec and runs in its own session, so that signals to the launcher's group or terminal do
/// not reach it. It reads process groups from a pipe; end of file means that the launcher died.
class GroupGuard {
 public:
  /// Guards at most `max_groups` process groups at a time. Throws IoError or ResourceError if the guard cannot be
  /// started.
  explicit GroupGuard(int max_groups);
  /// Kills the guard, also if it is stopped. Guarded groups keep running.
  ~GroupGuard();
  GroupGuard(const GroupGuard&) = delete;
  GroupGuard& operator=(const GroupGuard&) = delete;

  /// Async-signal-safe: a rank adds its own group between fork and exec.
  void add(pid_t group) const { send(group); }
  /// Stops guarding a group whose rank has exited; its remaining processes keep running.
  void remove(pid_t group) const { send(-group); }

 private:
  void send(pid_t change) const;

  pid_t pid_ = -1;
  FileDescriptor pipe_;  // process group ids: positive = add, negative = remove
};

}}}  // namespace tandem::v0::distributed
