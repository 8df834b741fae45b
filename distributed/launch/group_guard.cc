#include <tandem/distributed/launch/group_guard.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/thread.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

constexpr int kReadyTimeoutMs = 2000;

struct Pipe {
  FileDescriptor out, in;  // `out` reads what is written to `in`
  Pipe() {
    int ends[2];
    TANDEM_CHECK(IoError, pipe2(ends, O_CLOEXEC) == 0,
                 "launch: cannot create a pipe for the process-group guard: ", std::strerror(errno));
    out = FileDescriptor(ends[0]);
    in = FileDescriptor(ends[1]);
  }
};

/// Main function of the guard. Must not allocate or lock, because it runs after fork in a process that may have
/// threads. `groups` has max_groups elements; 0 marks a free element.
[[noreturn]] void guard(int in, int out, int ready, std::vector<pid_t>& groups) {
  setsid();
  prctl(PR_SET_NAME, "tandem-guard");
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  [[maybe_unused]] const ssize_t written = write(ready, "", 1);
  close(out);
  dup2(in, 0);
  // Close inherited files: an open pipe or connection would never reach end of file for its reader.
  syscall(SYS_close_range, 1, UINT_MAX, 0);
  [[maybe_unused]] const int status = chdir("/");
  for (pid_t change = 0;;) {
    const ssize_t n = read(0, &change, sizeof(change));
    if (n < 0 && errno == EINTR) continue;
    if (n != sizeof(change)) break;
    const auto place = std::find(groups.begin(), groups.end(), change > 0 ? 0 : -change);
    if (place != groups.end()) *place = std::max(change, 0);
  }
  for (const pid_t group : groups) {
    if (group != 0) kill(-group, SIGKILL);
  }
  _exit(0);
}

}  // namespace

GroupGuard::GroupGuard(int max_groups) {
  std::vector<pid_t> groups(static_cast<size_t>(max_groups), 0);
  Pipe changes, ready;
  pid_ = fork();
  if (pid_ == 0) guard(changes.out.get(), changes.in.get(), ready.in.get(), groups);
  TANDEM_CHECK(ResourceError, pid_ > 0, "launch: cannot start the process-group guard ", resource_limit_text(errno));
  pipe_ = std::move(changes.in);
  fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);  // a stopped guard does not read
  ready.in.reset();
  // Before it is in its own session, a signal to the launcher's group would kill it too.
  pollfd polled{ready.out.get(), POLLIN, 0};
  while (poll(&polled, 1, kReadyTimeoutMs) < 0 && errno == EINTR) {
  }
}

GroupGuard::~GroupGuard() {
  kill(pid_, SIGKILL);  // closing the pipe would not end a guard that is stopped
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void GroupGuard::send(pid_t change) const {
  // An error means that the guard was killed, or that it is stopped and the pipe is full; the job continues without it.
  [[maybe_unused]] const ssize_t n = write(pipe_.get(), &change, sizeof(change));
}

}}}  // namespace tandem::v0::distributed
