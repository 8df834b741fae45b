// Starts a rank as a child process; signal handling of the launcher. Private to distributed/.
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

/// Blocks SIGINT and SIGTERM, delivers them through a signalfd, ignores SIGPIPE, and no longer ignores SIGCHLD, because
/// the kernel discards the exit status of the children of a process that ignores it. The destructor restores the
/// previous state. Threads created meanwhile inherit the signal mask.
class LauncherSignals {
 public:
  /// If `handle` is false, SIGINT and SIGTERM are not blocked.
  explicit LauncherSignals(bool handle);
  ~LauncherSignals();
  LauncherSignals(const LauncherSignals&) = delete;
  LauncherSignals& operator=(const LauncherSignals&) = delete;

  int fd() const { return fd_.get(); }
  /// Returns the next pending signal, or 0. Does not block.
  int next();
  const sigset_t& old_mask() const { return old_mask_; }
  const struct sigaction& old_pipe() const { return old_pipe_; }

 private:
  sigset_t old_mask_ = {};
  struct sigaction old_pipe_ = {};
  struct sigaction old_child_ = {};
  FileDescriptor fd_;
};

/// Program, arguments and environment of a child process.
struct ChildProgram {
  std::string name;                    ///< "rank 2", for errors
  std::string program;                 ///< searched in PATH if it contains no slash
  std::vector<std::string> arguments;  ///< argv, with argv[0]
  std::vector<std::string> variables;  ///< NAME=VALUE: the complete environment
  int stdin_fd = -1;                   ///< -1: /dev/null
  int stdout_fd = -1;                  ///< -1: inherited
  int stderr_fd = -1;
  bool takes_terminal = false;  ///< inherits stdin and becomes the terminal's foreground group
  std::optional<cpu_set_t> cores;
};

struct Child {
  pid_t pid = -1;        ///< also the id of its process group
  FileDescriptor pidfd;  ///< empty if the system does not support pidfd_open
};

/// wait_status of a rank whose exit status another part of this process has collected.
inline constexpr int kUnknownStatus = -1;

/// Starts the program with fork and exec in a new process group. The child gets SIGKILL when the calling thread exits.
/// The process group is added to `guard`; the caller removes it. Waits until the program is executed, or until a signal
/// arrives at `signals`. Throws IoError if the program cannot be executed and ResourceError if fork fails. The code
/// between fork and exec is async-signal-safe, because the caller may have other threads.
Child start_child(const ChildProgram& program, const LauncherSignals& signals, const GroupGuard& guard);

/// Makes this process's group the terminal's foreground group again. No effect if stdin is not a terminal.
void reclaim_terminal();

/// "exit status 3", "killed by SIGKILL", "exit status unknown".
std::string status_text(int wait_status);

}}}  // namespace tandem::v0::distributed
