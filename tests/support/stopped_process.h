// Waking a process that stops itself.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace tandem::testing {

/// The state of a process in /proc ('R', 'S', 'T' ..); 0 if it does not exist.
inline char process_state(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::ostringstream text;
  text << file.rdbuf();
  const size_t end = text.str().rfind(')');  // after the name, which may contain any character
  return end == std::string::npos || end + 2 >= text.str().size() ? '\0' : text.str()[end + 2];
}

/// Waits at most about twenty seconds until the process has stopped itself or ended. Returns whether it is stopped.
inline bool wait_until_stopped(pid_t pid) {
  for (int i = 0; i < 20000; ++i) {
    const char state = process_state(pid);
    if (state == '\0' || state == 'Z') return false;
    if (state == 'T') return true;
    usleep(1000);
  }
  return false;
}

/// Continues a process that stops itself now or soon. (A SIGCONT before it has stopped would be lost.)
inline void wake_when_stopped(pid_t pid) {
  if (wait_until_stopped(pid)) kill(pid, SIGCONT);
}

}  // namespace tandem::testing
