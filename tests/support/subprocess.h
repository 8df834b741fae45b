// Runs a program for a test: captures its output, sends signals, waits with a time limit.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace tandem::testing_support {

class Subprocess {
 public:
  struct Result {
    int status = -1;  ///< exit status, or 128 + signal; -1: killed at the time limit
    std::string out;
    std::string err;
  };

  enum class Output { kPipes, kTerminal, kSession };

  static constexpr std::chrono::seconds kBound{40};

  /// Starts argv[0] (a path) with this process's environment without variables about ranks, plus `variables`. With
  /// kTerminal, stdout and stderr are one pseudo-terminal, whose output is read as `out`. With kSession, stdin is the
  /// pseudo-terminal too, and it is the controlling terminal, as for a shell's user.
  explicit Subprocess(const std::vector<std::string>& argv,
                      const std::vector<std::pair<std::string, std::string>>& variables = {},
                      Output output = Output::kPipes);
  /// Kills the process if it is still running.
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  void send_signal(int signal);
  /// Types `text` at the terminal of kSession.
  void type(const std::string& text);
  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_; }
  /// Waits until there is output, without reading it, so that the pipe fills up.
  bool wait_unread() const;
  /// Reads until stdout contains `text` `times` times; false if the time limit is reached first.
  bool wait_for_output(const std::string& text, int times = 1);
  const std::string& out() const { return result_.out; }
  /// Waits for the end of the process; kills it at the time limit.
  Result wait(std::chrono::seconds bound = kBound);

 private:
  bool read_some(std::chrono::steady_clock::time_point deadline);

  pid_t pid_ = -1;
  int pidfd_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  Result result_;
};

/// Runs the program to completion.
Subprocess::Result run_program(const std::vector<std::string>& argv,
                               const std::vector<std::pair<std::string, std::string>>& variables = {});

/// The lines of a text, sorted: ranks print in any order.
std::vector<std::string> sorted_lines(const std::string& text);

/// The stderr of a launcher without the warning about shared cores, which depends on the machine.
std::string messages(const std::string& err);

/// pidfds of the processes that printed "pid N".
std::vector<int> pidfds_of(const std::string& out);

/// Waits until the process of `pidfd` (need not be a child) has ended; false if the time limit is reached first.
/// `pidfd` was opened while the process ran.
bool wait_for_end(int pidfd);
int open_pidfd(pid_t pid);

}  // namespace tandem::testing_support
