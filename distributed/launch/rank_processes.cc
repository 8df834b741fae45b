#include <tandem/distributed/launch/rank_processes.h>

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>

#include <tandem/base/error.h>
#include <tandem/distributed/launch/interrupts.h>
#include <tandem/distributed/launch/job_coordinator.h>
#include <tandem/distributed/launch/local_ranks.h>
#include <tandem/distributed/launch/node_link.h>
#include <tandem/distributed/launch/node_messages.h>
#include <tandem/distributed/launch/remote_hosts.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

using Clock = std::chrono::steady_clock;

// How long to wait for the reader of the remaining output after an interrupt.
constexpr int kFlushTimeoutMs = 300;

// After a rank failed, node 0 must send the stop command within kStopTimeout, and finish the attempt within
// shutdown_timeout() + kStopMargin.
constexpr std::chrono::seconds kStopTimeout{3};
constexpr std::chrono::seconds kStopMargin{15};

// After the end of the job, how long node 0 waits for the launchers that it started, and for their output.
constexpr std::chrono::seconds kRemoteExitTimeout{5};

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown host";
}

/// One launcher: executes the commands of node 0 and reports events of this host. The launcher of node 0 owns the
/// coordinator.
class NodeLauncher {
 public:
  explicit NodeLauncher(const JobOptions& options)
      : options_(options),
        signals_(options.handle_signals),
        local_(options_, signals_),
        remote_hosts_(signals_, &local_.output()) {}

  JobResult run() {
    if (options_.nodes.num_nodes > 1) {
      try {
        link_ = std::make_unique<NodeLink>(options_.nodes, [this] { return (interrupt_ = signals_.next()) != 0; });
      } catch (const CommError&) {
        if (interrupt_ != 0) return {128 + interrupt_, -1, ""};
        throw;
      }
    }
    if (options_.nodes.node == 0) {
      coordinator_ = std::make_unique<JobCoordinator>(
          options_,
          JobCoordinator::Hooks{.broadcast = [this](const NodeCommand& command) { commands_.push_back(command); },
                                .print = [this](const std::string& text) { local_.print(text); }});
    }
    try {
      NodeEvent joined = event(NodeEvent::Kind::kJoined);
      joined.num_nodes = options_.nodes.num_nodes;
      joined.num_ranks = options_.num_ranks;
      joined.gdb_rank = options_.gdb_rank.value_or(-1);
      joined.text = host_name();
      report(joined);
      execute_commands();
      if (coordinator_ && link_) remote_hosts_.start(options_.nodes, link_->port());
      while (!result_ || local_.running()) step();
    } catch (const Error& e) {
      finish_with_error(e.what());
      throw;
    }
    if (remote_hosts_.running()) response_deadline_ = Clock::now() + kRemoteExitTimeout;
    while (remote_hosts_.running() && response_deadline_ != Clock::time_point::max()) {
      step();  // resets an expired deadline
      if (interrupt_ == 0 && !local_.flush(0)) response_deadline_ = Clock::now() + kRemoteExitTimeout;
    }
    while (interrupt_ == 0 && !local_.flush(0)) step();
    local_.flush(kFlushTimeoutMs);
    if (link_ && !node0_lost_) link_->leave(coordinator_ ? coordinator_->lost_nodes() : std::vector<int>());
    return *result_;
  }

 private:
  NodeEvent event(NodeEvent::Kind kind) const {
    NodeEvent event;
    event.kind = kind;
    event.node = options_.nodes.node;
    return event;
  }
  void report(const NodeEvent& event);
  void execute_commands();
  void execute(const NodeCommand& command);
  void start(const NodeCommand& command);
  void step();
  void take_signals();
  void handle_messages();
  void interrupt(int signal);
  void abandon_job(const std::string& why);
  void finish_with_error(const std::string& why);

  const JobOptions& options_;
  LauncherSignals signals_;
  LocalRanks local_;
  RemoteHosts remote_hosts_;
  std::unique_ptr<NodeLink> link_;               // null for a job on one host
  std::unique_ptr<JobCoordinator> coordinator_;  // null except on node 0
  std::deque<NodeCommand> commands_;
  std::optional<JobResult> result_;
  int interrupt_ = 0;
  bool interrupted_here_ = false;
  bool node0_lost_ = false;
  Clock::time_point response_deadline_ = Clock::time_point::max();
};

void NodeLauncher::report(const NodeEvent& event) {
  if (coordinator_) {
    coordinator_->on_event(event);
    return;
  }
  link_->send(encode(event));
}

void NodeLauncher::execute_commands() {
  for (; !commands_.empty(); commands_.pop_front()) {
    if (coordinator_ && link_) link_->send(encode(commands_.front()));
    execute(commands_.front());
  }
}

void NodeLauncher::execute(const NodeCommand& command) {
  switch (command.kind) {
    case NodeCommand::Kind::kStart: start(command); return;
    case NodeCommand::Kind::kStop:
      local_.stop(command.ranks);
      if (!coordinator_) response_deadline_ = Clock::now() + shutdown_timeout() + kStopMargin;
      return;
    case NodeCommand::Kind::kInterrupt: interrupt(command.signal); return;
    case NodeCommand::Kind::kKill: local_.kill_now(); return;
    case NodeCommand::Kind::kFinish:
      if (local_.running()) local_.kill_now();
      result_ = coordinator_ ? coordinator_->result() : JobResult{command.status, -1, command.text};
      return;
  }
}

void NodeLauncher::start(const NodeCommand& command) {
  RankAssignment first = command.assignment;
  first.node = options_.nodes.node;
  first.rank = command.ranks.at(static_cast<size_t>(first.node));
  first.local_world_size = options_.num_ranks;
  response_deadline_ = Clock::time_point::max();
  try {
    local_.start(first, command.no_deadlines);
    if (coordinator_) coordinator_->serve();
  } catch (const Error& e) {
    if (!link_) throw;
    NodeEvent failed = event(NodeEvent::Kind::kCannotStart);
    failed.text = e.what();
    report(failed);
  }
}

void NodeLauncher::step() {
  auto deadline = std::min({local_.next_deadline(), remote_hosts_.next_deadline(), response_deadline_});
  if (coordinator_) deadline = std::min(deadline, coordinator_->next_deadline());
  std::vector<pollfd> polled = {{signals_.fd(), POLLIN, 0},
                                {coordinator_ ? coordinator_->fd() : -1, POLLIN, 0},
                                {link_ ? link_->fd() : -1, POLLIN, 0}};
  local_.add_polled(&polled);
  remote_hosts_.add_polled(&polled);
  if (poll(polled.data(), polled.size(), milliseconds_until(deadline)) < 0 && errno != EINTR) {
    throw IoError(str("launch: poll failed: ", std::strerror(errno)));
  }
  take_signals();
  for (RankExit& exit : local_.step()) {
    NodeEvent ended = event(NodeEvent::Kind::kEnded);
    ended.exit = std::move(exit);
    const bool first = ended.exit.wait_status != 0 && response_deadline_ == Clock::time_point::max();
    if (first && !coordinator_) response_deadline_ = Clock::now() + kStopTimeout;
    report(ended);
  }
  for (const auto& [node, why] : remote_hosts_.step()) coordinator_->on_lost(node, why);
  if (coordinator_) coordinator_->step();
  if (link_) handle_messages();
  if (response_deadline_ <= Clock::now()) abandon_job("node 0 does not respond");
  execute_commands();
}

void NodeLauncher::take_signals() {
  while (const int signal = signals_.next()) {
    NodeEvent interrupted = event(interrupted_here_ ? NodeEvent::Kind::kKilled : NodeEvent::Kind::kInterrupted);
    interrupted.signal = signal;
    if (interrupted_here_) {
      local_.kill_now();
    } else {
      interrupt(signal);
    }
    interrupted_here_ = true;
    report(interrupted);
  }
}

void NodeLauncher::interrupt(int signal) {
  if (interrupt_ != 0) return;
  interrupt_ = signal;
  local_.interrupt(signal);
}

void NodeLauncher::handle_messages() {
  const auto lost = link_->lost();
  for (const std::string& message : link_->received()) {
    if (coordinator_) {
      coordinator_->on_event(decode_event(message));
    } else {
      execute(decode_command(message));
    }
  }
  for (const auto& [node, why] : lost) {
    if (coordinator_) {
      TANDEM_CHECK(CommError, node != 0, "launch: ", why);
      coordinator_->on_lost(node, why);
    } else if (node == 0) {
      abandon_job("node 0's launcher was lost: " + why);
    }
  }
}

void NodeLauncher::abandon_job(const std::string& why) {
  response_deadline_ = Clock::time_point::max();
  if (result_) return;
  node0_lost_ = true;
  result_ = {interrupt_ != 0 ? 128 + interrupt_ : 1, -1, "launch: " + why};
  local_.stop_all();
}

void NodeLauncher::finish_with_error(const std::string& why) {
  if (!coordinator_ || !link_) return;
  NodeCommand command;
  command.kind = NodeCommand::Kind::kFinish;
  command.status = 1;
  command.text = why;
  link_->send(encode(command));
  link_->leave();
}

}  // namespace

JobResult run_job(const JobOptions& options) {
  const JobResult result = NodeLauncher(options).run();
  std::error_code ignored;
  if (options.is_record_dir_temporary && result.status == 0) std::filesystem::remove_all(options.record_dir, ignored);
  return result;
}

}}}  // namespace tandem::v0::distributed
