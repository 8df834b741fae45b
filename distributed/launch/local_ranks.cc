#include <tandem/distributed/launch/local_ranks.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/launch/flight_records.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

// How often the ranks' exits are checked without pidfds (Linux before 5.3, some container profiles).
constexpr std::chrono::milliseconds kPollInterval{20};

/// The file of this program, so that ps shows its name for the ranks; /proc/self/exe if it was replaced or removed.
std::string own_program() {
  const std::string link = "/proc/self/exe";
  std::error_code error;
  const std::string path = std::filesystem::read_symlink(link, error);
  return !error && std::filesystem::equivalent(path, link, error) ? path : link;
}

}  // namespace

LocalRanks::LocalRanks(const JobOptions& options, const LauncherSignals& signals)
    : options_(options), signals_(signals), output_(options.log_dir) {}

LocalRanks::~LocalRanks() {
  signal_all(SIGKILL);
  if (options_.gdb_rank && running()) reclaim_terminal();
  for (const LocalRank& rank : ranks_) {
    if (!rank.running) continue;
    while (waitpid(rank.child.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    guard_->remove(rank.child.pid);
  }
}

void LocalRanks::start(const RankAssignment& first, bool no_deadlines) {
  first_ = first;
  no_deadlines_ = no_deadlines;
  stopping_ = stop_called_ = false;
  terminate_at_.reset();
  kill_at_.reset();
  if (!guard_) guard_.emplace(options_.num_ranks);
  output_.begin(first.restart);
  for (int i = 0; i < options_.num_ranks && first.restart == 0; ++i) {
    remove_flight_records(options_.record_dir, first.rank + i);
  }
  ranks_.clear();
  ranks_.resize(static_cast<size_t>(options_.num_ranks));
  for (int i = 0; i < options_.num_ranks; ++i) start_rank(i);
}

void LocalRanks::start_rank(int local_rank) {
  RankAssignment assignment = first_;
  assignment.rank += local_rank;
  assignment.local_rank = local_rank;
  const bool debugged = options_.gdb_rank == assignment.rank;
  const FileDescriptor out =
      debugged ? FileDescriptor() : output_.open(assignment.rank, STDOUT_FILENO, options_.stdout_target);
  const FileDescriptor err =
      debugged ? FileDescriptor() : output_.open(assignment.rank, STDERR_FILENO, options_.stderr_target);
  ChildProgram program{.name = str("rank ", assignment.rank),
                       .program = options_.program.empty() ? own_program() : options_.program,
                       .arguments = options_.arguments,
                       .variables = environment(assignment),
                       .stdout_fd = out.get(),
                       .stderr_fd = err.get(),
                       .takes_terminal = debugged,
                       .cores = choose_cores(local_rank)};
  if (debugged) {
    program.program = "gdb";
    program.arguments = {"gdb", "--args", options_.program};
    program.arguments.insert(program.arguments.end(), options_.arguments.begin() + 1, options_.arguments.end());
  }
  LocalRank& rank = ranks_[static_cast<size_t>(local_rank)];
  rank.child = start_child(program, signals_, *guard_);
  rank.running = true;
}

std::vector<std::string> LocalRanks::environment(const RankAssignment& assignment) const {
  Variables set = rank_variables(assignment);
  set.emplace_back("TANDEM_LAUNCHER_GPUS", env_string("CUDA_VISIBLE_DEVICES").value_or("all"));
  set.insert(set.end(), options_.variables.begin(), options_.variables.end());
  if (!options_.record_dir.empty()) set.emplace_back("TANDEM_FLIGHT_RECORDER_DIR", options_.record_dir);
  if (no_deadlines_) {
    std::erase_if(set, [](const auto& variable) { return variable.first == "TANDEM_TIMEOUT_S"; });
    set.emplace_back("TANDEM_TIMEOUT_S", "0");
  }
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

std::optional<cpu_set_t> LocalRanks::choose_cores(int local_rank) const {
  cpu_set_t all;
  if (sched_getaffinity(getpid(), sizeof(all), &all) != 0) return std::nullopt;
  const int count = CPU_COUNT(&all);
  const int n = options_.num_ranks;
  if (n == 1 || n > count) return std::nullopt;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  int index = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &all)) continue;
    if (index >= local_rank * count / n && index < (local_rank + 1) * count / n) CPU_SET(core, &cores);
    ++index;
  }
  return cores;
}

bool LocalRanks::running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const LocalRank& r) { return r.running; });
}

void LocalRanks::stop(const std::vector<int>& terminate_now) {
  if (stop_called_) return;
  stopping_ = stop_called_ = true;
  for (const int rank : terminate_now) {
    const int local_rank = rank - first_.rank;
    if (local_rank < 0 || local_rank >= static_cast<int>(ranks_.size())) continue;
    const LocalRank& target = ranks_[static_cast<size_t>(local_rank)];
    if (target.running) kill(-target.child.pid, SIGTERM);
  }
  terminate_at_ = Clock::now() + shutdown_timeout_ / 2;
  kill_by(Clock::now() + shutdown_timeout_);
}

void LocalRanks::stop_all() {
  std::vector<int> all;
  for (size_t i = 0; i < ranks_.size(); ++i) all.push_back(first_.rank + static_cast<int>(i));
  stop(all);
}

void LocalRanks::interrupt(int signal) {
  stopping_ = true;
  signal_all(signal);
  kill_by(Clock::now() + shutdown_timeout_);
}

void LocalRanks::kill_now() {
  stopping_ = true;
  kill_by(Clock::now());
}

void LocalRanks::kill_by(Clock::time_point when) {
  kill_at_ = std::min(kill_at_.value_or(Clock::time_point::max()), when);
}

void LocalRanks::signal_all(int signal) {
  // To the process group, as a terminal would, because the rank may be a script that waits for the actual program.
  for (const LocalRank& rank : ranks_) {
    if (rank.running) kill(-rank.child.pid, signal);
  }
}

void LocalRanks::add_polled(std::vector<pollfd>* polled) const {
  for (const LocalRank& rank : ranks_) {
    if (rank.running) polled->push_back({rank.child.pidfd.get(), POLLIN, 0});  // a negative descriptor is ignored
  }
  output_.add_polled(polled);
}

std::vector<RankExit> LocalRanks::step() {
  const auto now = Clock::now();
  if (terminate_at_ && *terminate_at_ <= now) {
    terminate_at_.reset();
    signal_all(SIGTERM);
  }
  if (kill_at_ && *kill_at_ <= now) {
    kill_at_.reset();
    terminate_at_.reset();
    signal_all(SIGKILL);
  }
  output_.transfer();
  std::vector<RankExit> exits;
  const bool before = running();
  for (int i = 0; i < static_cast<int>(ranks_.size()); ++i) {
    if (auto end = reap(i)) exits.push_back(std::move(*end));
  }
  if (before && !running()) {
    terminate_at_.reset();
    kill_at_.reset();
    output_.collect_rest();
  }
  return exits;
}

std::optional<RankExit> LocalRanks::reap(int local_rank) {
  LocalRank& rank = ranks_[static_cast<size_t>(local_rank)];
  if (!rank.running) return std::nullopt;
  siginfo_t info = {};
  const bool known = waitid(P_PID, static_cast<id_t>(rank.child.pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
  if (known ? info.si_pid == 0 : errno != ECHILD) return std::nullopt;
  // Kill the processes that a failed rank started. Before waitpid, while the group id cannot be reused.
  const bool clean = info.si_code == CLD_EXITED && info.si_status == 0;
  if (known && (!clean || stopping_)) kill(-rank.child.pid, SIGKILL);
  RankExit end;
  end.rank = first_.rank + local_rank;
  // A handler or thread of this process may wait for all children, also between the two calls.
  if (!known || waitpid(rank.child.pid, &end.wait_status, 0) < 0) end.wait_status = kUnknownStatus;
  guard_->remove(rank.child.pid);
  rank.running = false;
  rank.child.pidfd.reset();
  if (options_.gdb_rank == end.rank) reclaim_terminal();
  if (end.wait_status != 0) {
    output_.collect_rest(end.rank);
    end.log_tail = output_.log_tail(end.rank);
    end.log_path = output_.log_path(end.rank);
    end.records = read_flight_records(options_.record_dir, end.rank, first_.restart);
  }
  return end;
}

LocalRanks::Clock::time_point LocalRanks::next_deadline() const {
  const bool polls =
      std::any_of(ranks_.begin(), ranks_.end(), [](const auto& r) { return r.running && !r.child.pidfd; });
  const auto next_poll = polls ? Clock::now() + kPollInterval : Clock::time_point::max();
  return std::min({terminate_at_.value_or(next_poll), kill_at_.value_or(next_poll), next_poll});
}

}}}  // namespace tandem::v0::distributed
