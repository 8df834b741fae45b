// One process of a job, and the signals of the launcher that starts it.  Private to distributed/.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/launch/group_guard.h>
#include <tandem/distributed/rendezvous/socket.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Blocks SIGINT and SIGTERM so that they arrive as reads, and ignores SIGPIPE; undone on destruction.  Threads that are
/// made meanwhile inherit this.
class LauncherSignals {
 public:
  /// `handle`: else SIGINT and SIGTERM are left alone.
  explicit LauncherSignals(bool handle);
  ~LauncherSignals();
  LauncherSignals(const LauncherSignals&) = delete;
  LauncherSignals& operator=(const LauncherSignals&) = delete;

  int fd() const { return fd_.get(); }
  /// The next signal that arrived, 0 for none.
  int next();
  const sigset_t& old_mask() const { return old_mask_; }
  const struct sigaction& old_pipe() const { return old_pipe_; }

 private:
  sigset_t old_mask_ = {};
  struct sigaction old_pipe_ = {};
  FileDescriptor fd_;
};

/// What a process of a job runs.
struct ChildProgram {
  std::string name;                    ///< "rank 2", for errors
  std::string program;                 ///< looked for in PATH where it has no slash
  std::vector<std::string> arguments;  ///< argv, with argv[0]
  std::vector<std::string> variables;  ///< NAME=VALUE: its whole environment
  int stdout_fd = -1;                  ///< -1: ours
  int stderr_fd = -1;
  bool takes_terminal = false;  ///< it gets our stdin and the terminal's foreground; else its stdin is empty
  std::optional<cpu_set_t> cores;
};

struct Child {
  pid_t pid = -1;  ///< and the number of its process group
  FileDescriptor pidfd;
};

/// Starts it, by exec, in a process group of its own; it dies with the calling thread.  The group is added to
/// `guard`; the caller removes it.  Throws IoError where the program cannot be run, and ResourceError where the system starts
/// no process.  Nothing between fork and exec allocates or locks, so that other threads of the caller do no harm.
Child start_child(const ChildProgram& program, const LauncherSignals& signals, const GroupGuard& guard);

/// Makes this process's group the terminal's foreground again, where stdin is one.
void take_terminal_back();

/// "exit status 3", "killed by SIGKILL".
std::string status_text(int wait_status);

}}}  // namespace tandem::v0::distributed
