#include <tandem/distributed/launch/rank_processes.h>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <tandem/base/error.h>
#include <tandem/base/log.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/store/store_server.h>

namespace tandem::inline v0::distributed {

namespace {

using Clock = std::chrono::steady_clock;

// After the first failure the other ranks get an exception from their next collective.  One that has not ended by then
// is asked to stop, and after as long again killed.
constexpr std::chrono::seconds kGrace{5};
// From the first SIGINT or SIGTERM: time to finish a step and save.
constexpr std::chrono::seconds kStopTime{10};

/// What a child needs between fork and exec, where it may neither allocate nor lock.
struct ChildPlan {
  const char* program = nullptr;
  char* const* argv = nullptr;
  char* const* envp = nullptr;
  int stdin_fd = -1;
  int stdout_fd = -1;  // -1: inherit
  int stderr_fd = -1;
  int error_fd = -1;  // errno of a failed exec goes there
  bool pinned = false;
  cpu_set_t cores = {};
  sigset_t signal_mask = {};
  struct sigaction pipe_action = {};
  pid_t parent = 0;
};

[[noreturn]] void become_rank(const ChildPlan& plan) {
  // A group of its own: a terminal's Ctrl-C reaches the launcher alone, which forwards it once.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(1);  // it died before prctl
  if (plan.pinned) sched_setaffinity(0, sizeof(plan.cores), &plan.cores);
  dup2(plan.stdin_fd, 0);
  if (plan.stdout_fd >= 0) dup2(plan.stdout_fd, 1);
  if (plan.stderr_fd >= 0) dup2(plan.stderr_fd, 2);
  sigaction(SIGPIPE, &plan.pipe_action, nullptr);
  sigprocmask(SIG_SETMASK, &plan.signal_mask, nullptr);
  execvpe(plan.program, plan.argv, plan.envp);
  const int error = errno;
  [[maybe_unused]] const ssize_t n = write(plan.error_fd, &error, sizeof(error));
  _exit(127);
}

/// Pointers to the texts, and a null, as exec wants them.
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

std::string status_text(int wait_status) {
  return WIFSIGNALED(wait_status) ? "killed by " + signal_text(WTERMSIG(wait_status))
                                  : str("exit status ", WEXITSTATUS(wait_status));
}

/// Blocks SIGINT and SIGTERM so that they arrive as reads, and ignores SIGPIPE; undone on destruction.
class LauncherSignals {
 public:
  explicit LauncherSignals(bool handle) {
    struct sigaction ignore = {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &old_pipe_);
    sigset_t set;
    sigemptyset(&set);
    if (handle) {
      sigaddset(&set, SIGINT);
      sigaddset(&set, SIGTERM);
    }
    pthread_sigmask(SIG_BLOCK, &set, &old_mask_);
    if (handle) fd_ = FileDescriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~LauncherSignals() {
    while (next() != 0) {
    }
    pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
    sigaction(SIGPIPE, &old_pipe_, nullptr);
  }
  LauncherSignals(const LauncherSignals&) = delete;
  LauncherSignals& operator=(const LauncherSignals&) = delete;

  int fd() const { return fd_.get(); }
  /// The next signal that arrived, 0 for none.
  int next() {
    signalfd_siginfo info{};
    if (!fd_ || read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return 0;
    return static_cast<int>(info.ssi_signo);
  }
  const sigset_t& old_mask() const { return old_mask_; }
  const struct sigaction& old_pipe() const { return old_pipe_; }

 private:
  sigset_t old_mask_ = {};
  struct sigaction old_pipe_ = {};
  FileDescriptor fd_;
};

struct Child {
  pid_t pid = -1;
  FileDescriptor pidfd;
  bool running = false;
  int wait_status = 0;
  Clock::time_point ended;
};

// How long an interrupted job's last output waits for somebody to read it.
constexpr int kLastOutputMs = 300;

class Job {
 public:
  explicit Job(const JobOptions& options)
      : options_(options),
        signals_(options.handle_signals),
        output_(options.log_dir),
        token_(wire::random_token()),
        server_(
            {.host = options.store_host, .port = options.store_port, .token = token_, .world_size = options.num_ranks}),
        failure_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        children_(static_cast<size_t>(options.num_ranks)) {}

  ~Job() {
    signal_all(SIGKILL);
    for (Child& child : children_) {
      while (child.running && waitpid(child.pid, &child.wait_status, 0) < 0 && errno == EINTR) {
      }
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  JobResult run() {
    for (int rank = 0; rank < options_.num_ranks; ++rank) start(rank);
    server_.start();  // a thread: only now, when everybody is started
    const HookHandle watch = server_.failures().on_failure([fd = failure_fd_.get()](int, const std::string&) {
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t n = write(fd, &one, sizeof(one));
    });
    while (std::any_of(children_.begin(), children_.end(), [](const Child& c) { return c.running; })) step();
    output_.collect_rest();
    while (interrupt_ == 0 && !output_.flush(0)) step();
    output_.flush(kLastOutputMs);
    server_.wait_until_empty(std::chrono::seconds(1));  // connections of the dead close at once
    return result();
  }

 private:
  void start(int rank);
  std::vector<std::string> environment(int rank) const;
  bool choose_cores(int rank, cpu_set_t* cores) const;
  void step();
  void take_signals();
  void reap(int rank);
  void notice_failure();
  void signal_all(int signal);
  int time_left() const;
  JobResult result();

  const JobOptions& options_;
  LauncherSignals signals_;
  RankOutput output_;
  const std::string token_;
  StoreServer server_;
  FileDescriptor failure_fd_;
  std::vector<Child> children_;
  int interrupt_ = 0;
  bool failed_ = false;
  std::optional<Clock::time_point> ask_at_;
  std::optional<Clock::time_point> kill_at_;
};

std::vector<std::string> Job::environment(int rank) const {
  Variables set = rank_variables({.rank = rank,
                                  .world_size = options_.num_ranks,
                                  .local_rank = rank,
                                  .local_world_size = options_.num_ranks,
                                  .store_host = options_.store_host,
                                  .store_port = server_.port(),
                                  .token = token_,
                                  .run_id = str("tandem-", getpid())});
  set.insert(set.end(), options_.variables.begin(), options_.variables.end());
  const int budget = std::max(1, available_cores() / options_.num_ranks);
  for (const char* name : {"TANDEM_NUM_THREADS", "OMP_NUM_THREADS"}) {
    const char* chosen = getenv(name);
    if (chosen == nullptr || *chosen == '\0') set.emplace_back(name, std::to_string(budget));
  }
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const auto is_name = [&](const auto& variable) { return variable.first == name; };
    if (std::any_of(set.begin(), set.end(), is_name)) continue;
    if (std::find(options_.unset.begin(), options_.unset.end(), name) != options_.unset.end()) continue;
    result.emplace_back(text);
  }
  for (const auto& [name, value] : set) result.push_back(name + "=" + value);
  return result;
}

bool Job::choose_cores(int rank, cpu_set_t* cores) const {
  cpu_set_t all;
  if (sched_getaffinity(getpid(), sizeof(all), &all) != 0) return false;
  const int count = CPU_COUNT(&all);
  const int n = options_.num_ranks;
  if (n == 1 || n > count) return false;
  CPU_ZERO(cores);
  int index = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &all)) continue;
    if (index >= rank * count / n && index < (rank + 1) * count / n) CPU_SET(core, cores);
    ++index;
  }
  return true;
}

void Job::start(int rank) {
  std::vector<std::string> arguments = options_.arguments;
  std::vector<std::string> variables = environment(rank);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(variables);
  const FileDescriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const FileDescriptor out = output_.open(rank, 1, options_.stdout_target);
  const FileDescriptor err = output_.open(rank, 2, options_.stderr_target);
  int error_pipe[2];
  TANDEM_CHECK(IoError, bool{null} && pipe2(error_pipe, O_CLOEXEC) == 0, "launch: cannot start rank ", rank, ": ",
               std::strerror(errno));
  const FileDescriptor error_in(error_pipe[0]);
  FileDescriptor error_out(error_pipe[1]);
  ChildPlan plan;
  plan.program = options_.program.c_str();
  plan.argv = argv.data();
  plan.envp = envp.data();
  plan.stdin_fd = null.get();
  plan.stdout_fd = out.get();
  plan.stderr_fd = err.get();
  plan.error_fd = error_out.get();
  plan.pinned = choose_cores(rank, &plan.cores);
  plan.signal_mask = signals_.old_mask();
  plan.pipe_action = signals_.old_pipe();
  plan.parent = getpid();

  Child& child = children_[static_cast<size_t>(rank)];
  child.pid = fork();
  if (child.pid == 0) become_rank(plan);
  TANDEM_CHECK(IoError, child.pid > 0, "launch: cannot start rank ", rank, ": ", std::strerror(errno));
  child.running = true;
  error_out.reset();
  int error = 0;
  ssize_t n = 0;
  do {
    n = read(error_in.get(), &error, sizeof(error));
  } while (n < 0 && errno == EINTR);
  TANDEM_CHECK(IoError, n != sizeof(error), "launch: cannot run '", options_.program, "': ", std::strerror(error));
  child.pidfd = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0)));
  TANDEM_CHECK(IoError, bool{child.pidfd}, "launch: pidfd_open: ", std::strerror(errno));
}

void Job::step() {
  std::vector<pollfd> polled = {{signals_.fd(), POLLIN, 0}, {failure_fd_.get(), POLLIN, 0}};
  for (const Child& child : children_) polled.push_back({child.running ? child.pidfd.get() : -1, POLLIN, 0});
  output_.add_polled(&polled);
  if (poll(polled.data(), polled.size(), time_left()) < 0 && errno != EINTR) {
    throw IoError(str("launch: poll: ", std::strerror(errno)));
  }
  take_signals();
  output_.transfer();
  for (size_t rank = 0; rank < children_.size(); ++rank) {
    if ((polled[rank + 2].revents & POLLIN) != 0) reap(static_cast<int>(rank));
  }
  uint64_t failures = 0;
  if (read(failure_fd_.get(), &failures, sizeof(failures)) > 0 && server_.failures().first_failure()) notice_failure();
  const auto now = Clock::now();
  if (ask_at_ && *ask_at_ <= now) {
    ask_at_.reset();
    signal_all(SIGTERM);
  }
  if (kill_at_ && *kill_at_ <= now) {
    kill_at_.reset();
    signal_all(SIGKILL);
  }
}

void Job::take_signals() {
  while (const int signal = signals_.next()) {
    if (interrupt_ != 0) {
      kill_at_ = Clock::now();
      continue;
    }
    interrupt_ = signal;
    signal_all(signal);
    kill_at_ = std::min(kill_at_.value_or(Clock::time_point::max()), Clock::now() + kStopTime);
  }
}

void Job::reap(int rank) {
  Child& child = children_[static_cast<size_t>(rank)];
  siginfo_t info = {};
  if (waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
  // Whatever a failed rank started ends with it.  Now, because its number is in use until waitpid.
  const bool clean = info.si_code == CLD_EXITED && info.si_status == 0;
  if (!clean || failed_ || interrupt_ != 0) kill(-child.pid, SIGKILL);
  waitpid(child.pid, &child.wait_status, 0);
  child.running = false;
  child.ended = Clock::now();
  child.pidfd.reset();
  const bool success = child.wait_status == 0;
  // The store notices the end of a rank that had joined; of one that had not, the others would never hear.
  if (!server_.has_joined(rank)) {
    server_.report({rank, success ? RankEnd::kLeft : RankEnd::kDied,
                    success ? "left the job" : str("died (", status_text(child.wait_status), ") before it joined")});
  }
  if (!success) notice_failure();
}

void Job::notice_failure() {
  if (failed_) return;
  failed_ = true;
  const auto now = Clock::now();
  // Those that are not in the store hear of failures by signals alone.
  for (size_t rank = 0; rank < children_.size(); ++rank) {
    if (children_[rank].running && !server_.has_joined(static_cast<int>(rank))) kill(-children_[rank].pid, SIGTERM);
  }
  ask_at_ = now + kGrace;
  kill_at_ = std::min(kill_at_.value_or(Clock::time_point::max()), now + 2 * kGrace);
}

void Job::signal_all(int signal) {
  // To each rank's process group, as a terminal would: a rank may be a script that waits for the real program.
  for (const Child& child : children_) {
    if (child.running) kill(-child.pid, signal);
  }
}

int Job::time_left() const {
  const auto next = std::min(ask_at_.value_or(Clock::time_point::max()), kill_at_.value_or(Clock::time_point::max()));
  return next == Clock::time_point::max() ? -1 : milliseconds_until(next);
}

JobResult Job::result() {
  // The root cause is what happened first: an announcement or a lost connection at the store, or a bad status of a
  // process that the store knows nothing of or took leave from.
  const auto events = server_.failures().events();
  const RankEndEvent* first = nullptr;
  std::vector<bool> left(children_.size(), true);
  for (const RankEndEvent& event : events) {
    if (event.end == RankEnd::kLeft) continue;
    left[static_cast<size_t>(event.rank)] = false;
    if (first == nullptr) first = &event;
  }
  int rank = first != nullptr ? first->rank : -1;
  auto when = first != nullptr ? first->when : Clock::time_point::max();
  int stopped = 0;
  for (size_t r = 0; r < children_.size(); ++r) {
    const Child& child = children_[r];
    if (child.wait_status == 0 || !left[r]) continue;
    const int status = WIFEXITED(child.wait_status) ? WEXITSTATUS(child.wait_status) : -1;
    if (status == 128 + SIGINT || status == 128 + SIGTERM) {
      stopped = status;  // by a signal that somebody sent to the ranks themselves
    } else if (child.ended < when) {
      rank = static_cast<int>(r);
      when = child.ended;
      first = nullptr;
    }
  }
  JobResult result;
  result.status = interrupt_ != 0 ? 128 + interrupt_ : rank >= 0 ? 1 : stopped;
  if (rank < 0) return result;
  const Child& child = children_[static_cast<size_t>(rank)];
  // A rank that the forwarded signal, or ours, has ended is no failure.
  if (interrupt_ != 0 && WIFSIGNALED(child.wait_status)) return result;
  result.failed_rank = rank;
  result.message = str("rank ", rank, " of ", options_.num_ranks, " failed (", status_text(child.wait_status), ")");
  if (first != nullptr && first->end == RankEnd::kFailed) {
    result.message += ": " + first->reason;
  } else if (child.wait_status == 0) {
    result.message += ": it ended before its function returned";
  }
  const std::string tail = output_.log_tail(rank);
  if (!tail.empty())
    result.message += str("\n  the end of ", output_.log_path(rank), ":\n", tail.substr(0, tail.size() - 1));
  return result;
}

}  // namespace

JobResult run_job(const JobOptions& options) { return Job(options).run(); }

}  // namespace tandem::inline v0::distributed
