// Waking a process that stops itself.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace tandem::testing {

/// The state of a process as /proc shows it ('R', 'S', 'T' ..), 0 where there is none.
inline char process_state(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::ostringstream text;
  text << file.rdbuf();
  const size_t end = text.str().rfind(')');  // behind the name, which may hold anything
  return end == std::string::npos || end + 2 >= text.str().size() ? '\0' : text.str()[end + 2];
}

/// Lets a process go on that stops itself now or soon: SIGCONT before it has stopped would be lost, and it stopped for ever.
/// Returns at once where it has ended, and gives up after some twenty seconds.
inline void wake_when_stopped(pid_t pid) {
  for (int i = 0; i < 20000; ++i) {
    const char state = process_state(pid);
    if (state == '\0' || state == 'Z') return;
    if (state == 'T') break;
    usleep(1000);
  }
  kill(pid, SIGCONT);
}

}  // namespace tandem::testing
