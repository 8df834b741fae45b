// What ends the processes that ranks have started where the launcher is killed.  Private to distributed/.
#pragma once

#include <sys/types.h>

#include <tandem/distributed/rendezvous/socket.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// A process that kills the process groups of the ranks when their launcher has died.  The kernel kills the ranks themselves
/// then (PR_SET_PDEATHSIG), but not what they have started.
///
/// It is forked without exec and has a session of its own, so that no signal to the launcher's group or terminal ends it.  The
/// groups reach it by a pipe; the pipe's end is the launcher's death, or the end of this object.
class GroupGuard {
 public:
  /// For at most `max_groups` at a time.  Throws IoError or ResourceError where the process cannot be started.
  explicit GroupGuard(int max_groups);
  ~GroupGuard();
  GroupGuard(const GroupGuard&) = delete;
  GroupGuard& operator=(const GroupGuard&) = delete;

  /// Async-signal-safe: a rank adds its own group between fork and exec, before it can start anything.
  void add(pid_t group) const { send(group); }
  /// The group has no rank any more: what is left of it may go on.
  void remove(pid_t group) const { send(-group); }

 private:
  void send(pid_t change) const;

  pid_t pid_ = -1;
  FileDescriptor pipe_;  // groups to add; negative ones are to be removed
};

}}}  // namespace tandem::v0::distributed
