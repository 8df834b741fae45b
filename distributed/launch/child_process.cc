#include <tandem/distributed/launch/child_process.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>

#include <tandem/base/error.h>
#include <tandem/base/thread.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// Data of the child between fork and exec, prepared before fork because the child must not allocate or lock.
struct ChildPlan {
  const char* program = nullptr;
  char* const* argv = nullptr;
  char* const* envp = nullptr;
  int stdin_fd = -1;  // -1: inherit
  int stdout_fd = -1;
  int stderr_fd = -1;
  int error_fd = -1;  // receives errno if exec fails
  bool takes_terminal = false;
  bool pinned = false;
  cpu_set_t cores = {};
  sigset_t signal_mask = {};
  struct sigaction pipe_action = {};
  pid_t parent = 0;
  const GroupGuard* guard = nullptr;
};

/// Blocks SIGTTOU meanwhile: the kernel sends it to a background process that calls tcsetpgrp.
void set_foreground(pid_t group) {
  sigset_t set;
  sigset_t old;
  sigemptyset(&set);
  sigaddset(&set, SIGTTOU);
  sigprocmask(SIG_BLOCK, &set, &old);
  tcsetpgrp(STDIN_FILENO, group);
  sigprocmask(SIG_SETMASK, &old, nullptr);
}

[[noreturn]] void become_child(const ChildPlan& plan) {
  // A new process group, so that Ctrl-C reaches only the launcher, which forwards the signal once.
  setpgid(0, 0);
  plan.guard->add(getpid());
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(1);  // the parent exited before prctl
  if (plan.pinned) sched_setaffinity(0, sizeof(plan.cores), &plan.cores);
  if (plan.takes_terminal) set_foreground(getpid());
  if (plan.stdin_fd >= 0) dup2(plan.stdin_fd, 0);
  if (plan.stdout_fd >= 0) dup2(plan.stdout_fd, 1);
  if (plan.stderr_fd >= 0) dup2(plan.stderr_fd, 2);
  sigaction(SIGPIPE, &plan.pipe_action, nullptr);
  sigprocmask(SIG_SETMASK, &plan.signal_mask, nullptr);
  execvpe(plan.program, plan.argv, plan.envp);
  const int error = errno;
  [[maybe_unused]] const ssize_t n = write(plan.error_fd, &error, sizeof(error));
  _exit(127);
}

/// A null-terminated array of pointers into `texts`, for exec.
std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

std::string signal_text(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? str("SIG", name) : str("signal ", signal);
}

}  // namespace

LauncherSignals::LauncherSignals(bool handle) {
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &old_pipe_);
  sigaction(SIGCHLD, nullptr, &old_child_);
  struct sigaction keep = old_child_;  // a handler of the program stays
  if (keep.sa_handler == SIG_IGN) keep.sa_handler = SIG_DFL;
  keep.sa_flags &= ~SA_NOCLDWAIT;
  sigaction(SIGCHLD, &keep, nullptr);
  sigset_t set;
  sigemptyset(&set);
  if (handle) {
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
  }
  pthread_sigmask(SIG_BLOCK, &set, &old_mask_);
  if (handle) fd_ = FileDescriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

LauncherSignals::~LauncherSignals() {
  while (next() != 0) {
  }
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
  sigaction(SIGPIPE, &old_pipe_, nullptr);
  sigaction(SIGCHLD, &old_child_, nullptr);
}

int LauncherSignals::next() {
  signalfd_siginfo info{};
  if (!fd_ || read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return 0;
  return static_cast<int>(info.ssi_signo);
}

Child start_child(const ChildProgram& program, const LauncherSignals& signals, const GroupGuard& guard) {
  std::vector<std::string> arguments = program.arguments;
  std::vector<std::string> variables = program.variables;
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(variables);
  const FileDescriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  int error_pipe[2];
  TANDEM_CHECK(IoError, bool{null} && pipe2(error_pipe, O_CLOEXEC) == 0, "launch: cannot start ", program.name, ": ",
               std::strerror(errno));
  const FileDescriptor error_in(error_pipe[0]);
  FileDescriptor error_out(error_pipe[1]);
  ChildPlan plan;
  plan.program = program.program.c_str();
  plan.argv = argv.data();
  plan.envp = envp.data();
  plan.stdin_fd = program.takes_terminal ? -1 : program.stdin_fd >= 0 ? program.stdin_fd : null.get();
  plan.stdout_fd = program.stdout_fd;
  plan.stderr_fd = program.stderr_fd;
  plan.error_fd = error_out.get();
  plan.takes_terminal = program.takes_terminal;
  plan.pinned = program.cores.has_value();
  if (program.cores) plan.cores = *program.cores;
  plan.signal_mask = signals.old_mask();
  plan.pipe_action = signals.old_pipe();
  plan.parent = getpid();
  plan.guard = &guard;

  Child child;
  child.pid = fork();
  if (child.pid == 0) become_child(plan);
  TANDEM_CHECK(ResourceError, child.pid > 0, "launch: cannot start ", program.name, " ", resource_limit_text(errno));
  error_out.reset();
  // A signal ends the wait: exec can block on a file system, and the child can be stopped. The caller handles both.
  pollfd polled[] = {{error_in.get(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
  while (poll(polled, std::size(polled), -1) < 0 && errno == EINTR) {
  }
  int error = 0;
  ssize_t n = 0;
  while (polled[0].revents != 0 && (n = read(error_in.get(), &error, sizeof(error))) < 0 && errno == EINTR) {
  }
  if (n != sizeof(error)) {
    child.pidfd = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0)));
    return child;
  }
  while (waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  guard.remove(child.pid);
  throw IoError(str("launch: cannot run '", program.program, "': ", std::strerror(error)));
}

void reclaim_terminal() { set_foreground(getpgrp()); }

std::string status_text(int wait_status) {
  if (wait_status == kUnknownStatus) return "exit status unknown";
  return WIFSIGNALED(wait_status) ? "killed by " + signal_text(WTERMSIG(wait_status))
                                  : str("exit status ", WEXITSTATUS(wait_status));
}

}}}  // namespace tandem::v0::distributed
