#include <tandem/distributed/launch/rank_processes.h>

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>

#include <tandem/base/error.h>
#include <tandem/distributed/launch/interrupts.h>
#include <tandem/distributed/launch/job_coordinator.h>
#include <tandem/distributed/launch/local_ranks.h>
#include <tandem/distributed/launch/node_link.h>
#include <tandem/distributed/launch/node_messages.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

using Clock = std::chrono::steady_clock;

// How long a job's last output waits for somebody to read it, where it was interrupted or is started again.
constexpr int kLastOutputMs = 300;

// For how long after a rank's failure node 0 may be silent: before it says that all are to end, and until they have.
constexpr std::chrono::seconds kSilence{3};
constexpr std::chrono::seconds kEndingSilence{15};  // beyond shutdown_timeout()

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown host";
}

/// One launcher: executes node 0's commands and reports what happens on this host; node 0's has the coordinator.
class Launcher {
 public:
  explicit Launcher(const JobOptions& options)
      : options_(options), signals_(options.handle_signals), local_(options_, signals_) {}

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
          options_, JobCoordinator::Hooks{.tell = [this](const NodeCommand& command) { commands_.push_back(command); },
                                          .say = [this](const std::string& text) { say(text); }});
    }
    try {
      NodeEvent joined = event(NodeEvent::Kind::kJoined);
      joined.num_nodes = options_.nodes.num_nodes;
      joined.num_ranks = options_.num_ranks;
      joined.gdb_rank = options_.gdb_rank.value_or(-1);
      joined.text = host_name();
      report(joined);
      execute_commands();
      while (!result_ || local_.running()) step();
    } catch (const Error& e) {
      give_up(e.what());
      throw;
    }
    while (interrupt_ == 0 && !local_.flush(0)) step();
    local_.flush(kLastOutputMs);
    if (link_ && !deserted_) link_->leave(coordinator_ ? coordinator_->lost_nodes() : std::vector<int>());
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
  void read_letters();
  void interrupt(int signal);
  void desert(const std::string& why);
  void give_up(const std::string& why);
  void say(const std::string& text);

  const JobOptions& options_;
  LauncherSignals signals_;
  LocalRanks local_;
  std::unique_ptr<NodeLink> link_;               // where there are several hosts
  std::unique_ptr<JobCoordinator> coordinator_;  // on node 0
  std::deque<NodeCommand> commands_;
  std::optional<JobResult> result_;
  int interrupt_ = 0;
  bool interrupted_here_ = false;
  bool deserted_ = false;  // node 0 is gone
  Clock::time_point silence_ends_ = Clock::time_point::max();
};

void Launcher::report(const NodeEvent& event) {
  if (coordinator_) {
    coordinator_->on_event(event);
    return;
  }
  link_->send(encode(event));
}

void Launcher::execute_commands() {
  for (; !commands_.empty(); commands_.pop_front()) {
    if (coordinator_ && link_) link_->send(encode(commands_.front()));
    execute(commands_.front());
  }
}

void Launcher::execute(const NodeCommand& command) {
  switch (command.kind) {
    case NodeCommand::Kind::kStart: start(command); return;
    case NodeCommand::Kind::kStop:
      local_.stop(command.ranks);
      if (!coordinator_) silence_ends_ = Clock::now() + shutdown_timeout() + kEndingSilence;
      return;
    case NodeCommand::Kind::kInterrupt: interrupt(command.signal); return;
    case NodeCommand::Kind::kKill: local_.kill_now(); return;
    case NodeCommand::Kind::kFinish:
      if (local_.running()) local_.kill_now();
      result_ = coordinator_ ? coordinator_->result() : JobResult{command.status, -1, command.text};
      return;
  }
}

void Launcher::start(const NodeCommand& command) {
  RankPlace first = command.place;
  first.node = options_.nodes.node;
  first.rank = command.ranks.at(static_cast<size_t>(first.node));
  first.local_world_size = options_.num_ranks;
  silence_ends_ = Clock::time_point::max();
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

void Launcher::step() {
  auto deadline = std::min(local_.next_deadline(), silence_ends_);
  if (coordinator_) deadline = std::min(deadline, coordinator_->next_deadline());
  std::vector<pollfd> polled = {{signals_.fd(), POLLIN, 0},
                                {coordinator_ ? coordinator_->fd() : -1, POLLIN, 0},
                                {link_ ? link_->fd() : -1, POLLIN, 0}};
  local_.add_polled(&polled);
  if (poll(polled.data(), polled.size(), milliseconds_until(deadline)) < 0 && errno != EINTR) {
    throw IoError(str("launch: poll: ", std::strerror(errno)));
  }
  take_signals();
  for (RankExit& exit : local_.step()) {
    NodeEvent ended = event(NodeEvent::Kind::kEnded);
    ended.exit = std::move(exit);
    const bool first = ended.exit.wait_status != 0 && silence_ends_ == Clock::time_point::max();
    if (first && !coordinator_) silence_ends_ = Clock::now() + kSilence;
    report(ended);
  }
  if (coordinator_) coordinator_->step();
  if (link_) read_letters();
  if (silence_ends_ <= Clock::now()) desert("node 0 does not respond");
  execute_commands();
}

void Launcher::take_signals() {
  while (const int signal = signals_.next()) {
    NodeEvent told = event(interrupted_here_ ? NodeEvent::Kind::kKilled : NodeEvent::Kind::kInterrupted);
    told.signal = signal;
    if (interrupted_here_) {
      local_.kill_now();
    } else {
      interrupt(signal);
    }
    interrupted_here_ = true;
    report(told);
  }
}

void Launcher::interrupt(int signal) {
  if (interrupt_ != 0) return;
  interrupt_ = signal;
  local_.interrupt(signal);
}

void Launcher::read_letters() {
  const auto lost = link_->lost();
  for (const std::string& letter : link_->received()) {
    if (coordinator_) {
      coordinator_->on_event(decode_event(letter));
    } else {
      execute(decode_command(letter));
    }
  }
  for (const auto& [node, why] : lost) {
    if (coordinator_) {
      TANDEM_CHECK(CommError, node != 0, "launch: ", why);
      coordinator_->on_lost(node, why);
    } else if (node == 0) {
      desert("node 0's launcher was lost: " + why);
    }
  }
}

void Launcher::desert(const std::string& why) {
  silence_ends_ = Clock::time_point::max();
  if (result_) return;
  deserted_ = true;
  result_ = {interrupt_ != 0 ? 128 + interrupt_ : 1, -1, "launch: " + why};
  local_.stop_all();
}

void Launcher::give_up(const std::string& why) {
  if (!coordinator_ || !link_) return;
  NodeCommand command;
  command.kind = NodeCommand::Kind::kFinish;
  command.status = 1;
  command.text = why;
  link_->send(encode(command));
  link_->leave();
}

void Launcher::say(const std::string& text) {
  local_.flush(kLastOutputMs);
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace

JobResult run_job(const JobOptions& options) { return Launcher(options).run(); }

}}}  // namespace tandem::v0::distributed
