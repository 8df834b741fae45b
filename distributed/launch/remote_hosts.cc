#include <tandem/distributed/launch/remote_hosts.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/base/file.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

// How often the exits are checked without pidfds, as in local_ranks.cc.
constexpr std::chrono::milliseconds kRemotePollInterval{20};

/// `text` as one word of a POSIX shell.
std::string quote(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

/// The shell command that starts the launcher of `node` in the current folder, with this process's TANDEM_* variables.
std::string remote_command(const NodeOptions& nodes, int node, int port) {
  std::string command = str("cd ", quote(std::filesystem::current_path().string()), " && exec env");
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    // Command lines are not secret, and each host has its own TANDEM_HOST_ID.
    if (text.starts_with("TANDEM_TOKEN=") || text.starts_with("TANDEM_HOST_ID=")) continue;
    if (text.starts_with("TANDEM_")) command += str(" ", quote(*entry));
  }
  command += str(" ", quote(std::filesystem::read_symlink("/proc/self/exe").string()), " --remote ", node, ":", port);
  for (const std::string& argument : nodes.arguments) command += str(" ", quote(argument));
  return command;
}

}  // namespace

RemoteHosts::~RemoteHosts() {
  for (const Host& host : hosts_) {
    if (host.child.pid < 0) continue;
    kill(-host.child.pid, SIGKILL);
    while (waitpid(host.child.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void RemoteHosts::start(const NodeOptions& nodes, int port) {
  if (nodes.hosts.empty()) return;
  ssh_ = env_string("TANDEM_SSH").value_or("ssh");
  guard_.emplace(nodes.num_nodes);
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  for (int node = 1; node < nodes.num_nodes; ++node) {
    const std::string& name = nodes.hosts[static_cast<size_t>(node)];
    int ends[2];
    TANDEM_CHECK(IoError, pipe2(ends, O_CLOEXEC) == 0, "launch: cannot create a pipe for ", name, ": ",
                 std::strerror(errno));
    const FileDescriptor in(ends[0]);
    Host& host = hosts_.emplace_back();
    host.stdin_pipe = FileDescriptor(ends[1]);
    write_all(host.stdin_pipe.get(), wire::token_to_hex(nodes.token) + "\n");
    const FileDescriptor out = output_.open(-node, STDOUT_FILENO, OutputTarget::kShow);
    const FileDescriptor err = output_.open(-node, STDERR_FILENO, OutputTarget::kShow);
    host.child = start_child({.name = ssh_,
                              .program = ssh_,
                              .arguments = {ssh_, "-o", "BatchMode=yes", "-T", name, remote_command(nodes, node, port)},
                              .variables = variables,
                              .stdin_fd = in.get(),
                              .stdout_fd = out.get(),
                              .stderr_fd = err.get(),
                              .cores = std::nullopt},
                             signals_, *guard_);
  }
}

bool RemoteHosts::running() const {
  return std::any_of(hosts_.begin(), hosts_.end(), [](const Host& host) { return host.child.pid >= 0; });
}

void RemoteHosts::add_polled(std::vector<pollfd>* polled) const {
  for (const Host& host : hosts_) polled->push_back({host.child.pidfd.get(), POLLIN, 0});
}

std::vector<std::pair<int, std::string>> RemoteHosts::step() {
  std::vector<std::pair<int, std::string>> ended;
  for (size_t i = 0; i < hosts_.size(); ++i) {
    Child& child = hosts_[i].child;
    int status = kUnknownStatus;
    if (child.pid < 0 || waitpid(child.pid, &status, WNOHANG) == 0) continue;
    guard_->remove(child.pid);
    child = {};
    const int node = static_cast<int>(i) + 1;
    output_.collect_rest(-node);
    ended.emplace_back(node, str("is not running (", ssh_, ": ", status_text(status), ")"));
  }
  return ended;
}

RemoteHosts::Clock::time_point RemoteHosts::next_deadline() const {
  const bool polls =
      std::any_of(hosts_.begin(), hosts_.end(), [](const Host& h) { return h.child.pid >= 0 && !h.child.pidfd; });
  return polls ? Clock::now() + kRemotePollInterval : Clock::time_point::max();
}

}}}  // namespace tandem::v0::distributed
