#include <tandem/distributed/launch/job_coordinator.h>

#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <tandem/base/error.h>
#include <tandem/base/log.h>
#include <tandem/distributed/launch/flight_records.h>
#include <tandem/distributed/launch/interrupts.h>
#include <tandem/distributed/rendezvous/missing_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

// A launcher that does not respond for this long after one of its ranks died, or must have been killed, counts as lost.
constexpr std::chrono::seconds kResponseTimeout{3};

// A killed process may reset its connection. If the connection was lost earlier than this before the exit, the loss
// came first.
constexpr std::chrono::seconds kKillResetWindow{1};

// The limit of parse_num_ranks; messages from other launchers must be checked as well.
constexpr int kMaxRanksPerNode = 1024;

// Exit status of programs for usage errors, which a restart cannot fix.
constexpr int kUsageError = 2;

std::string list(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += str(" ", number);
  return text;
}

}  // namespace

JobCoordinator::JobCoordinator(const JobOptions& options, Hooks hooks)
    : options_(options),
      hooks_(std::move(hooks)),
      failure_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      nodes_(static_cast<size_t>(options.nodes.num_nodes)),
      run_id_(options.run_id.empty() ? str("tandem-", getpid()) : options.run_id),
      join_deadline_(options.nodes.timeout.count() > 0 ? Clock::now() + options.nodes.timeout
                                                       : Clock::time_point::max()) {
  TANDEM_CHECK(IoError, bool{failure_fd_}, "launch: cannot create an eventfd: ", std::strerror(errno));
  for (size_t n = 0; n < options.nodes.hosts.size(); ++n) nodes_[n].host = options.nodes.hosts[n];
}

void JobCoordinator::on_event(const NodeEvent& event) {
  if (finished_) return;
  switch (event.kind) {
    case NodeEvent::Kind::kJoined: on_joined(event); return;
    case NodeEvent::Kind::kConflict:
      if (ranks_.empty()) return finish(kUsageError, "launch: " + event.text);
      log(LogLevel::kWarning, "launch: ", event.text, "; the second one was rejected");
      return;
    case NodeEvent::Kind::kEnded: on_ended(event.exit); return;
    case NodeEvent::Kind::kCannotStart:
      if (is_node(event.node)) finish(1, node_text(event.node) + ": " + event.text);
      return;
    case NodeEvent::Kind::kInterrupted: {
      if (interrupt_ != 0) return;
      interrupt_ = event.signal;
      NodeCommand command;
      command.kind = NodeCommand::Kind::kInterrupt;
      command.signal = event.signal;
      hooks_.broadcast(command);
      if (ranks_.empty()) finish(128 + interrupt_, "");
      return;
    }
    case NodeEvent::Kind::kKilled: {
      NodeCommand command;
      command.kind = NodeCommand::Kind::kKill;
      hooks_.broadcast(command);
      return;
    }
  }
}

void JobCoordinator::on_joined(const NodeEvent& event) {
  const int num_nodes = static_cast<int>(nodes_.size());
  if (event.num_nodes != num_nodes) {
    return finish(kUsageError, str("launch: node ", event.node, " (", event.text, ") was started with --nnodes ",
                                   event.num_nodes, ", node 0 with --nnodes ", num_nodes));
  }
  if (!is_node(event.node) || event.num_ranks < 1 || event.num_ranks > kMaxRanksPerNode) {
    return finish(1,
                  str("launch: received an invalid message: node ", event.node, " with ", event.num_ranks, " ranks"));
  }
  Node& node = nodes_[static_cast<size_t>(event.node)];
  if (node.joined) return;
  node.joined = true;
  node.host = event.text;
  node.num_ranks = event.num_ranks;
  node.gdb_rank = event.gdb_rank;
  if (!std::all_of(nodes_.begin(), nodes_.end(), [](const Node& n) { return n.joined; })) return;
  join_deadline_ = Clock::time_point::max();
  int first = 0;
  for (Node& each : nodes_) {
    each.first_rank = first;
    first += each.num_ranks;
  }
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const Node& each = nodes_[n];
    const int last = each.first_rank + each.num_ranks - 1;
    if (each.gdb_rank < 0 || (each.gdb_rank >= each.first_rank && each.gdb_rank <= last)) continue;
    return finish(kUsageError, str("launch: --gdb ", each.gdb_rank, ": ", node_text(static_cast<int>(n)), " has ranks ",
                                   each.first_rank, " to ", last));
  }
  start_attempt();
}

void JobCoordinator::start_attempt() {
  NodeCommand command;
  command.kind = NodeCommand::Kind::kStart;
  ranks_.clear();
  for (size_t n = 0; n < nodes_.size(); ++n) {
    command.ranks.push_back(nodes_[n].first_rank);
    no_deadlines_ = no_deadlines_ || nodes_[n].gdb_rank >= 0;
    for (int i = 0; i < nodes_[n].num_ranks; ++i) ranks_.emplace_back().node = static_cast<int>(n);
  }
  command.no_deadlines = no_deadlines_;
  failed_ = false;
  next_response_deadline_ = Clock::time_point::max();
  watch_.remove();
  server_.reset();  // frees the port, which the new server may use
  const std::string token = wire::random_token();
  server_ = std::make_unique<StoreServer>(
      StoreServerOptions{.host = nodes_.size() > 1 ? listening_address(options_.nodes.host) : options_.store_host,
                         .port = nodes_.size() > 1 ? 0 : options_.store_port,
                         .token = token,
                         .world_size = static_cast<int>(ranks_.size())});
  command.assignment = {.world_size = static_cast<int>(ranks_.size()),
                        .num_nodes = static_cast<int>(nodes_.size()),
                        .store_host = nodes_.size() > 1 ? options_.nodes.host : options_.store_host,
                        .store_port = server_->port(),
                        .token = token,
                        .run_id = restart_ == 0 ? run_id_ : str(run_id_, "-restart-", restart_),
                        .restart = restart_,
                        .max_restarts = options_.max_restarts};
  hooks_.broadcast(command);
}

void JobCoordinator::serve() {
  server_->start();
  watch_ = server_->failures().on_failure([fd = failure_fd_.get()](int, const std::string&) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(fd, &one, sizeof(one));
  });
}

void JobCoordinator::on_ended(const RankExit& exit) {
  if (exit.rank < 0 || exit.rank >= static_cast<int>(ranks_.size())) return;
  Rank& rank = ranks_[static_cast<size_t>(exit.rank)];
  if (rank.ended) return;
  rank.ended = true;
  rank.wait_status = exit.wait_status;
  rank.when = Clock::now();
  rank.exit = exit;
  const bool success = exit.wait_status == 0;
  server_->report_exit(exit.rank, success, status_text(exit.wait_status));
  if (!success) notice_failure();
  finish_attempt_if_all_ended();
}

void JobCoordinator::on_lost(int node, const std::string& why) {
  if (finished_ || !is_node(node)) return;
  Node& lost = nodes_[static_cast<size_t>(node)];
  if (!lost.lost.empty()) return;
  lost.lost = why;
  if (ranks_.empty()) {
    finish(1, str(node_text(node), ": its launcher ", why));
    return;
  }
  for (Rank& rank : ranks_) {
    if (rank.node != node || rank.ended) continue;
    rank.ended = true;
    rank.when = Clock::now();
    const int number = static_cast<int>(&rank - ranks_.data());
    server_->report({number, RankEnd::kDied, str("died (its launcher ", why, ")")});
  }
  notice_failure();
  finish_attempt_if_all_ended();
}

void JobCoordinator::notice_failure() {
  if (failed_) return;
  failed_ = true;
  NodeCommand command;
  command.kind = NodeCommand::Kind::kStop;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (!ranks_[r].ended && !server_->has_joined(static_cast<int>(r))) command.ranks.push_back(static_cast<int>(r));
  }
  hooks_.broadcast(command);
  exit_deadline_ = Clock::now() + shutdown_timeout() + kResponseTimeout;
  next_response_deadline_ = Clock::now();  // the next step() computes the deadline
}

void JobCoordinator::step() {
  uint64_t failures = 0;
  const bool changed = read(failure_fd_.get(), &failures, sizeof(failures)) > 0;
  if (finished_) return;
  if (changed && server_->failures().first_failure()) notice_failure();
  const auto now = Clock::now();
  if (join_deadline_ <= now) {
    std::vector<int> missing;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (!nodes_[n].joined) missing.push_back(static_cast<int>(n));
    }
    finish(1, str("launch: not all launchers of ", nodes_.size(), " nodes joined within ",
                  format_seconds(options_.nodes.timeout), "\n  missing: node", list(missing),
                  loopback_hint(options_.nodes.host)));
  }
  if (failed_) drop_unresponsive_nodes();
}

void JobCoordinator::drop_unresponsive_nodes() {
  std::vector<Clock::time_point> response_deadlines(ranks_.size(), exit_deadline_);
  for (const RankEndEvent& event : server_->failures().events()) {
    // The process of a rank under gdb is gdb itself, which keeps running after the program.
    const bool reported_late = event.end == RankEnd::kDied && !no_deadlines_;
    auto& end = response_deadlines[static_cast<size_t>(event.rank)];
    if (reported_late) end = std::min(end, event.when + kResponseTimeout);
  }
  next_response_deadline_ = Clock::time_point::max();
  for (size_t r = 0; r < ranks_.size() && !finished_ && failed_; ++r) {
    if (ranks_[r].ended || ranks_[r].node == options_.nodes.node) continue;
    if (response_deadlines[r] <= Clock::now()) {
      on_lost(ranks_[r].node, "does not respond");
    } else {
      next_response_deadline_ = std::min(next_response_deadline_, response_deadlines[r]);
    }
  }
}

JobCoordinator::Clock::time_point JobCoordinator::next_deadline() const {
  return finished_ ? Clock::time_point::max() : std::min(join_deadline_, next_response_deadline_);
}

void JobCoordinator::finish_attempt_if_all_ended() {
  if (!finished_ && std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.ended; })) finish_attempt();
}

void JobCoordinator::finish_attempt() {
  server_->wait_until_empty(std::chrono::seconds(1));  // connections of dead processes close immediately
  JobResult result = attempt_result();
  if (options_.max_restarts == 0 || result.failed_rank < 0 || interrupt_ != 0) {
    return finish(result.status, result.message, result.failed_rank);
  }
  if (const int node = lost_node(); node >= 0) {
    return finish(result.status, str(result.message, "\nno restart: ", node_text(node), " was lost"),
                  result.failed_rank);
  }
  const int wait_status = ranks_[static_cast<size_t>(result.failed_rank)].wait_status;
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kUsageError) {
    return finish(result.status, result.message + "\nno restart: exit status 2 means a usage error",
                  result.failed_rank);
  }
  if (restart_ == options_.max_restarts) {
    return finish(result.status,
                  str(result.message, "\nno restart: --max-restarts ", options_.max_restarts, " is reached"),
                  result.failed_rank);
  }
  ++restart_;
  hooks_.print(str(result.message, "\nrestart ", restart_, " of ", options_.max_restarts));
  start_attempt();
}

JobResult JobCoordinator::attempt_result() const {
  // The root cause is the earliest event: an announced failure, a lost connection to the store, or an exited process.
  // The store may detect the death of a rank later than a secondary failure, so exit times are compared as well.
  const auto events = server_->failures().events();
  std::vector<const RankEndEvent*> event_of(ranks_.size(), nullptr);
  for (const RankEndEvent& event : events) event_of[static_cast<size_t>(event.rank)] = &event;
  int number = -1;
  auto when = Clock::time_point::max();
  int stopped = 0;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const Rank& rank = ranks_[r];
    const RankEndEvent* event = event_of[r];
    const bool failed = event != nullptr && event->end != RankEnd::kLeft;
    const int status = WIFEXITED(rank.wait_status) ? WEXITSTATUS(rank.wait_status) : -1;
    if (!failed && rank.wait_status == 0) continue;
    if (!failed && (status == 128 + SIGINT || status == 128 + SIGTERM)) {
      stopped = status;  // a signal was sent to the ranks directly
      continue;
    }
    const auto ended = failed ? std::min(event->when, rank.when) : rank.when;
    if (ended < when) {
      number = static_cast<int>(r);
      when = ended;
    }
  }
  JobResult result;
  result.status = interrupt_ != 0 ? 128 + interrupt_ : number >= 0 ? 1 : stopped;
  const int lost = number >= 0 ? ranks_[static_cast<size_t>(number)].node : lost_node();
  if (lost >= 0 && !nodes_[static_cast<size_t>(lost)].lost.empty()) {
    result.status = std::max(result.status, 1);
    result.message = str(node_text(lost), ": its launcher ", nodes_[static_cast<size_t>(lost)].lost);
    return result;
  }
  if (number < 0) return result;
  const Rank& rank = ranks_[static_cast<size_t>(number)];
  // A rank terminated by the forwarded signal, or by the launcher's SIGKILL after it, did not fail.
  if (interrupt_ != 0 && WIFSIGNALED(rank.wait_status)) return result;
  result.failed_rank = number;
  const RankEndEvent* event = event_of[static_cast<size_t>(number)];
  std::string reason;
  if (event != nullptr && event->end == RankEnd::kFailed) {
    reason = event->reason;
  } else if (event != nullptr && event->end == RankEnd::kLost &&
             (!WIFSIGNALED(rank.wait_status) || rank.when - event->when > kKillResetWindow)) {
    reason = "it " + event->reason;
  } else if (rank.wait_status == kUnknownStatus) {
    reason =
        "a SIGCHLD handler or another thread of the launching program has waited for it; wait only for own children";
  } else if (rank.wait_status == 0) {
    reason = "it exited before its function returned";
  }
  result.message = describe_failure(
      str("rank ", number, " of ", ranks_.size(), nodes_.size() > 1 ? " on " + node_text(rank.node) : ""),
      str(" (", status_text(rank.wait_status), ")"), reason);
  const std::string& tail = rank.exit.log_tail;
  if (!tail.empty())
    result.message += str("\n  last lines of ", rank.exit.log_path, ":\n", tail.substr(0, tail.size() - 1));
  std::vector<std::string> records;
  for (const Rank& each : ranks_) records.push_back(each.exit.records);
  const std::string difference = describe_first_difference(records);
  if (!difference.empty()) result.message += str("\n  ", difference);
  return result;
}

int JobCoordinator::lost_node() const {
  const auto lost = std::find_if(nodes_.begin(), nodes_.end(), [](const Node& n) { return !n.lost.empty(); });
  return lost == nodes_.end() ? -1 : static_cast<int>(lost - nodes_.begin());
}

std::vector<int> JobCoordinator::lost_nodes() const {
  std::vector<int> lost;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (!nodes_[n].lost.empty()) lost.push_back(static_cast<int>(n));
  }
  return lost;
}

std::string JobCoordinator::node_text(int node) const {
  const std::string& host = nodes_.at(static_cast<size_t>(node)).host;
  return host.empty() ? str("node ", node) : str("node ", node, " (", host, ")");  // unknown until it has joined
}

void JobCoordinator::finish(int status, const std::string& message, int failed_rank) {
  finished_ = true;
  result_ = {.status = status, .failed_rank = failed_rank, .message = message};
  NodeCommand command;
  command.kind = NodeCommand::Kind::kFinish;
  command.status = status;
  command.text = message;
  hooks_.broadcast(command);
}

}}}  // namespace tandem::v0::distributed
