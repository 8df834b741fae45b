#include <tandem/distributed/launch/group_guard.h>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

#include <tandem/tests/support/subprocess.h>

namespace {

using tandem::distributed::GroupGuard;

/// Runs f in a new process and in a process group of its own.
template <class F>
pid_t start_group(F f) {
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    f();
    _exit(0);
  }
  setpgid(pid, pid);
  return pid;
}

TEST(GroupGuard, SurvivesSignalToLaunchersGroupRightAfterItsStart) {
  for (int i = 0; i < 50 && !HasFailure(); ++i) {
    const pid_t rank = start_group([] {
      for (;;) pause();
    });
    const pid_t launcher = start_group([rank] {
      const GroupGuard guard(1);
      guard.add(rank);
      kill(0, SIGKILL);
    });
    const int pidfd = tandem::testing_support::open_pidfd(rank);
    EXPECT_TRUE(tandem::testing_support::wait_for_end(pidfd));
    close(pidfd);
    kill(rank, SIGKILL);  // in case it was not killed
    waitpid(rank, nullptr, 0);
    waitpid(launcher, nullptr, 0);
  }
}

TEST(GroupGuard, StoppedGuardDoesNotBlockItsLauncher) {
  constexpr int kMoreThanAPipeHolds = 20000;
  const GroupGuard guard(1);
  pid_t pid = -1;
  std::ifstream("/proc/self/task/" + std::to_string(getpid()) + "/children") >> pid;
  ASSERT_GT(pid, 0);
  kill(pid, SIGSTOP);
  siginfo_t info = {};
  waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED);
  for (int i = 0; i < kMoreThanAPipeHolds; ++i) guard.remove(pid);
}

}  // namespace
