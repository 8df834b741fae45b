#include <tandem/tests/support/subprocess.h>

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace tandem::testing_support {

namespace {

bool is_about_ranks(std::string_view entry) {
  for (const char* prefix :
       {"RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD_SIZE=", "MASTER_ADDR=", "MASTER_PORT=", "TANDEM_",
        "TMPDIR=", "TORCHELASTIC_", "OMP_NUM_THREADS=", "OMPI_", "PMI_", "PMIX_", "SLURM_"}) {
    if (entry.starts_with(prefix)) return true;
  }
  return false;
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

/// Appends the available bytes; closes the descriptor at the end of the file.
void drain(int* fd, std::string* text) {
  char bytes[4096];
  for (;;) {
    const ssize_t n = read(*fd, bytes, sizeof(bytes));
    if (n > 0) {
      text->append(bytes, static_cast<size_t>(n));
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else {
      if (n == 0) {
        close(*fd);
        *fd = -1;
      }
      return;
    }
  }
}

}  // namespace

Subprocess::Subprocess(const std::vector<std::string>& argv,
                       const std::vector<std::pair<std::string, std::string>>& variables, Output output) {
  std::vector<std::string> texts(argv);
  std::vector<std::string> settings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const auto replaces = [&](const auto& variable) {
      return std::string_view(*entry).starts_with(variable.first + "=");
    };
    if (!is_about_ranks(*entry) && std::none_of(variables.begin(), variables.end(), replaces))
      settings.emplace_back(*entry);
  }
  for (const auto& [name, value] : variables) settings.push_back(name + "=" + value);
  if (const char* folder = std::getenv("TEST_TMPDIR")) settings.push_back(std::string("TMPDIR=") + folder);
  std::vector<char*> arguments;
  std::vector<char*> environment;
  for (auto& text : texts) arguments.push_back(text.data());
  for (auto& text : settings) environment.push_back(text.data());
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  int out[2];
  int err[2];
  if (pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("Subprocess: no pipe");
  if (output != Output::kPipes) {
    const winsize size = {.ws_row = 24, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
    if (openpty(&out[0], &out[1], nullptr, nullptr, &size) != 0) throw std::runtime_error("Subprocess: no terminal");
    fcntl(out[0], F_SETFD, FD_CLOEXEC);
    fcntl(out[1], F_SETFD, FD_CLOEXEC);
  } else if (pipe2(out, O_CLOEXEC) != 0) {
    throw std::runtime_error("Subprocess: no pipe");
  }
  pid_ = fork();
  if (pid_ == 0) {
    if (output == Output::kSession) {
      setsid();
      ioctl(out[1], TIOCSCTTY, 0);
      dup2(out[1], 0);
    }
    dup2(out[1], 1);
    dup2(output != Output::kPipes ? out[1] : err[1], 2);
    execve(arguments[0], arguments.data(), environment.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  out_fd_ = out[0];
  err_fd_ = err[0];
  fcntl(out_fd_, F_SETFL, O_NONBLOCK);
  fcntl(err_fd_, F_SETFL, O_NONBLOCK);
  pidfd_ = open_pidfd(pid_);
  if (pid_ < 0 || pidfd_ < 0) throw std::runtime_error("Subprocess: cannot start " + argv[0]);
}

Subprocess::~Subprocess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(pidfd_);
  if (out_fd_ >= 0) close(out_fd_);
  if (err_fd_ >= 0) close(err_fd_);
}

void Subprocess::send_signal(int signal) { kill(pid_, signal); }

void Subprocess::type(const std::string& text) {
  if (write(out_fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw std::runtime_error("Subprocess: the terminal takes no text");
  }
}

bool Subprocess::read_some(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  if (left <= 0) return false;
  // After the process has ended and its output was read completely, there is nothing left to wait for.
  pollfd polled[3] = {{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}, {pidfd_, POLLIN, 0}};
  poll(polled, 3, static_cast<int>(left));
  if (out_fd_ >= 0) drain(&out_fd_, &result_.out);
  if (err_fd_ >= 0) drain(&err_fd_, &result_.err);
  return (polled[2].revents & POLLIN) == 0;
}

bool Subprocess::wait_unread() const {
  pollfd polled{out_fd_, POLLIN, 0};
  return poll(&polled, 1, 40000) == 1;
}

bool Subprocess::wait_for_output(const std::string& text, int times) {
  const auto deadline = std::chrono::steady_clock::now() + kBound;
  while (count(result_.out, text) < times) {
    if (!read_some(deadline)) return count(result_.out, text) >= times;
  }
  return true;
}

Subprocess::Result Subprocess::wait(std::chrono::seconds bound) {
  const auto deadline = std::chrono::steady_clock::now() + bound;
  while (read_some(deadline)) {
  }
  const bool late = std::chrono::steady_clock::now() >= deadline;
  if (late) kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (out_fd_ >= 0) drain(&out_fd_, &result_.out);
  if (err_fd_ >= 0) drain(&err_fd_, &result_.err);
  result_.status = late ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result_;
}

Subprocess::Result run_program(const std::vector<std::string>& argv,
                               const std::vector<std::pair<std::string, std::string>>& variables) {
  return Subprocess(argv, variables).wait();
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::string messages(const std::string& err) {
  std::string kept;
  std::istringstream in(err);
  for (std::string line; std::getline(in, line);) {
    if (!line.ends_with("the ranks share cores")) kept += line + "\n";
  }
  return kept;
}

std::vector<int> pidfds_of(const std::string& out) {
  std::vector<int> pidfds;
  for (size_t at = out.find("pid "); at != std::string::npos; at = out.find("pid ", at + 1)) {
    pidfds.push_back(open_pidfd(std::stoi(out.substr(at + 4))));
  }
  return pidfds;
}

int open_pidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

bool wait_for_end(int pidfd) {
  pollfd polled{pidfd, POLLIN, 0};
  return poll(&polled, 1, 40000) == 1;
}

}  // namespace tandem::testing_support
