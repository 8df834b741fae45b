// Runs a program for a test: catches what it prints, sends signals, waits with a bound.
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
    int status = -1;  ///< exit status, or 128 + signal; -1: killed because the bound had passed
    std::string out;
    std::string err;
  };

  enum class Output { kPipes, kTerminal, kSession };

  static constexpr std::chrono::seconds kBound{40};

  /// Starts argv[0] (a path) with this process's environment, less every variable about ranks, plus `variables`.  With
  /// kTerminal its stdout and stderr are one pseudo-terminal, and what that shows is read as `out`; with kSession so is its
  /// stdin, and the terminal controls it, as that of a shell's user does.
  explicit Subprocess(const std::vector<std::string>& argv,
                      const std::vector<std::pair<std::string, std::string>>& variables = {},
                      Output output = Output::kPipes);
  /// Kills it if it still runs.
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  void send_signal(int signal);
  /// Types it at the terminal of kSession.
  void type(const std::string& text);
  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_; }
  /// Waits until there is output, without reading it: the pipe fills up.
  bool wait_unread() const;
  /// Reads until stdout holds `text` `times` times; false where that did not happen within the bound.
  bool wait_for_output(const std::string& text, int times = 1);
  const std::string& out() const { return result_.out; }
  /// Waits for the end; kills it where the bound has passed.
  Result wait(std::chrono::seconds bound = kBound);

 private:
  bool read_some(std::chrono::steady_clock::time_point deadline);

  pid_t pid_ = -1;
  int pidfd_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  Result result_;
};

/// Runs the program to its end.
Subprocess::Result run_program(const std::vector<std::string>& argv,
                               const std::vector<std::pair<std::string, std::string>>& variables = {});

/// The lines of what ranks print, which they do in any order.
std::vector<std::string> sorted_lines(const std::string& text);

/// Waits until no process `pid`, which need not be a child, runs any more; false where the bound passed.  `pidfd` was
/// opened while it ran.
bool wait_for_end(int pidfd);
int open_pidfd(pid_t pid);

}  // namespace tandem::testing_support
