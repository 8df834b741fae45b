// Timeouts, stall reports and failures of a group.
#include <algorithm>
#include <utility>

#include <tandem/base/format.h>
#include <tandem/base/log.h>
#include <tandem/distributed/group/group_queue.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/distributed/rendezvous/missing_ranks.h>
#include <tandem/distributed/rendezvous/rendezvous.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

constexpr const char* kMembersMissing = "not all members have joined";
constexpr std::chrono::milliseconds kUnknownGrace{500};
// Joining on this rank fails with a better reason than other ranks' failures or a deadline.
constexpr std::chrono::milliseconds kJoiningGrace{100};

std::chrono::milliseconds to_milliseconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration);
}

/// Claims the `number`-th stall report of operation `seq` in the store. Returns false if another rank has made this
/// report or a later one. Returns true if the store fails, so that this rank reports.
bool claims_report(const ProcessGroupOptions& options, int64_t seq, int number) {
  const std::string mine = str(seq, " ", number, " ", options.rank);
  std::string last;
  try {
    for (;;) {
      const std::string found = options.store->compare_set(str("group/", options.name, "/stall"), last, mine);
      if (found == mine) return true;
      const size_t first = found.find(' ');
      const size_t second = found.find(' ', first + 1);
      const int64_t found_seq = parse_integer(found.substr(0, first)).value_or(0);
      const int64_t found_number = parse_integer(found.substr(first + 1, second - first - 1)).value_or(0);
      if (std::pair(found_seq, found_number) >= std::pair(seq, int64_t{number})) return false;
      last = found;
    }
  } catch (const CommError&) {
    return true;
  }
}

}  // namespace

Backend::Clock::time_point GroupQueue::wake_at() const {
  Clock::time_point first = Clock::time_point::max();
  const auto consider = [&](const Operation& operation) {
    first = std::min({first, operation.deadline, operation.next_report});
  };
  if (head_ != nullptr) consider(*head_);
  for (const auto& message : active_) consider(*message);
  if (running_messages_ != nullptr) first = std::min(first, running_messages_->wake_at());
  first = std::min(first, again_);
  return first;
}

/// Whether the operation's deadline has passed. Joining began earlier, has the group's timeout, and its error names the
/// missing ranks. So while members are missing, the deadline is extended briefly: joining can then fail first.
bool GroupQueue::is_due(Operation& operation, Clock::time_point now) const {
  if (now < operation.deadline) return false;
  const bool joining_ends = options_.timeout.count() > 0 && operation.timeout >= options_.timeout;
  if (!joining_ends || backend_->has_members()) return true;
  operation.deadline = now + kJoiningGrace;
  return false;
}

/// Reports operations that wait for long, and fails those whose deadline had passed `now`. Returns whether one failed.
bool GroupQueue::check_times(Clock::time_point now) {
  bool failed = false;
  if (head_ != nullptr && !head_->ended) {
    if (is_due(*head_, now)) {
      failed = expire(*head_);
    } else if (now >= head_->next_report) {
      report_stall(*head_, now);
    }
  }
  Message* due = nullptr;  // one report for all messages
  for (const auto& message : active_) {
    if (message->ended) continue;
    if (is_due(*message, now)) {
      expire(*message);
      failed = true;
    } else if (now >= message->next_report && due == nullptr) {
      due = message.get();
    }
  }
  if (due == nullptr) return failed;
  report_stall(*due, now);
  const Clock::time_point next = now + (now - due->began);
  for (const auto& message : active_) message->next_report = std::max(message->next_report, next);
  return failed;
}

// --- timeouts ---

/// Returns false if the deadline was extended briefly: a rank that can name no missing rank lets the others fail first.
bool GroupQueue::expire(CollectiveOperation& operation) {
  if (!backend_->has_members()) {
    time_out(operation, kMembersMissing, -1, {});
    return true;
  }
  // "reached #1873: ranks 0 1 2. missing: rank 3 (last reached all_gather #1860 'control record', 31.2 s ago)"
  const int64_t seq = operation.collective.seq;
  std::string there;
  std::string missing;
  int first_missing = -1;
  MissingRanks ranks =
      missing_ranks(str(to_string(operation.collective.kind), " (collective ", seq, ")"), operation.timeout);
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const int shown = job_rank(options_, rank);
    const LastStarted last = backend_->do_last_started(rank);
    if (last.seq >= seq) {
      there += str(" ", shown);
      ranks.waiting.push_back(shown);
      continue;
    }
    if (missing.empty()) first_missing = shown;
    missing += str(missing.empty() ? "" : ", ", "rank ", shown, " (", describe_last(last, "last reached"), ")");
    ranks.missing.push_back(shown);
  }
  if (missing.empty()) {
    ranks.have_started = true;
    for (const int rank : backend_->do_awaited()) {
      const int shown = job_rank(options_, rank);
      if (missing.empty()) first_missing = shown;
      missing += str(missing.empty() ? "data of rank " : ", rank ", shown, " (",
                     describe_last(backend_->do_last_started(rank), "last reached"), ")");
      ranks.missing.push_back(shown);
      std::erase(ranks.waiting, shown);
    }
    std::sort(ranks.missing.begin(), ranks.missing.end());
  }
  if (missing.empty()) {
    latch_.read(known_);
    if (known_.failure) {
      fail(operation, known_.failure->error());
      return true;
    }
    if (!std::exchange(operation.is_extended, true)) {
      operation.deadline += std::min(operation.timeout / 4, kUnknownGrace);
      return false;
    }
    missing = "unknown (this rank waits for no rank that is known to be stuck)";
  }
  time_out(operation, str("reached #", seq, ": ranks", there, ".  missing: ", missing), first_missing, ranks);
  return true;
}

void GroupQueue::expire(Message& message) {
  if (!backend_->has_members()) return time_out(message, kMembersMissing, -1, {});
  const LastStarted last = backend_->do_last_started(message.transfer.peer);
  MissingRanks ranks = missing_ranks(message.title(), message.timeout);
  ranks.missing = {message.shown_peer};
  ranks.waiting = {own_job_rank()};
  time_out(message, str("rank ", message.shown_peer, " (", describe_last(last, "last reached"), ")"),
           message.shown_peer, ranks);
}

MissingRanks GroupQueue::missing_ranks(std::string operation, std::chrono::milliseconds timeout) const {
  return {.world_size = is_whole_job_ ? options_.world_size : 0,
          .group = is_whole_job_ ? "" : options_.name,
          .operation = std::move(operation),
          .timeout = timeout};
}

void GroupQueue::time_out(Operation& operation, const std::string& progress, int culprit, const MissingRanks& ranks) {
  const std::string after = format_seconds(operation.timeout);
  std::string subject;
  for (const std::string& part : {operation.name(), operation.payload(), std::string(backend_->name())}) {
    if (!part.empty()) subject += str(subject.empty() ? "" : ", ", part);
  }
  const std::string what = str(" timed out after ", after, "\n  ", subject, "\n  ", progress);
  const std::string reason = str(operation.title(), " timed out after ", after, "; ", progress);
  const std::string headline = ranks.missing.empty() ? "" : to_headline(ranks);
  fail(operation, GroupError(what, reason, culprit, headline), own_job_rank());
}

// --- stalls ---

/// Logs one line for the group, from the lowest rank that waits and is alive. The first rank that claims the k-th
/// report of a wait in the store makes it. Before that, each rank waits briefly for the lower ranks that have started
/// the operation.
void GroupQueue::report_stall(CollectiveOperation& operation, Clock::time_point now) {
  const int64_t seq = operation.collective.seq;
  std::string missing;
  int lower = 0;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    if (rank == options_.rank) continue;
    const LastStarted last = backend_->do_last_started(rank);
    if (rank < options_.rank && last.seq >= seq) ++lower;
    if (last.seq >= seq) continue;
    missing +=
        str(missing.empty() ? " for rank " : ", rank ", job_rank(options_, rank), " (", describe_last(last), ")");
  }
  if (missing.empty()) {
    for (const int rank : backend_->do_awaited()) {
      missing += str(missing.empty() ? " for data of rank " : ", rank ", job_rank(options_, rank), " (",
                     describe_last(backend_->do_last_started(rank)), ")");
    }
  }
  operation.is_report_delayed = lower > 0 && !operation.is_report_delayed;
  if (operation.is_report_delayed) {
    operation.next_report = now + std::min(lower * stall_ / 10, stall_);
    return;
  }
  operation.next_report = now + (now - operation.began);
  const std::string line = describe_stall(operation, now, missing.empty() ? "; all ranks have started it" : missing);
  if (++operation.num_reports == 1) recorder_.write(line, false);
  log_once(operation, line);
}

void GroupQueue::report_stall(Message& message, Clock::time_point now) {
  const LastStarted last = backend_->do_last_started(message.transfer.peer);
  const std::string line =
      describe_stall(message, now, str(" for rank ", message.shown_peer, " (", describe_last(last), ")"));
  if (++message.num_reports == 1) recorder_.write(line, false);
  log(LogLevel::kWarning, line);
}

std::string GroupQueue::describe_stall(const Operation& operation, Clock::time_point now,
                                       const std::string& waited_for) const {
  const std::string shown = operation.name().empty() ? "" : str(" '", operation.name(), "'");
  return str("group '", options_.name, "': ", operation.title(), shown, " has been waiting for ",
             format_seconds(to_milliseconds(now - operation.began)),
             backend_->has_members() ? waited_for : " for members to join");
}

/// Runs on its own thread, for which no thread waits: the store may be the component that does not respond.
void GroupQueue::log_once(const CollectiveOperation& operation, const std::string& line) {
  if (reporting_->exchange(true)) return;
  try {
    start_rank_thread([options = options_, line, seq = operation.collective.seq, number = operation.num_reports,
                       reporting = reporting_] {
      if (claims_report(options, seq, number)) log(LogLevel::kWarning, line);
      *reporting = false;
    }).detach();
  } catch (const ResourceError&) {
    *reporting_ = false;
    log(LogLevel::kWarning, line);  // two reports are better than none
  }
}

// --- failures ---

/// Whether the group has failed, or a member has ended, as far as this rank knows now.
bool GroupQueue::knows_ends() {
  again_ = Clock::time_point::max();
  latch_.read(known_);
  bool any = !known_.is_empty();
  for (int rank = 0; rank < options_.world_size && !any; ++rank) any = backend_->do_peer_end(rank) != nullptr;
  return any;
}

/// Throws the failure of an operation that has made no progress since knows_ends(), if it cannot complete.
void GroupQueue::fail_if_needed(int64_t number, FunctionRef<bool(int rank)> needs) {
  const auto failure = still_needed({number, needs}, known_, *backend_, options_, Clock::now(), again_);
  if (!failure) return;
  if (backend_->has_members() || failure->member == options_.rank) throw failure->error();
  if (known_.failure && Clock::now() < known_.failed_at + kJoiningGrace) {
    again_ = std::min(again_, known_.failed_at + kJoiningGrace);
    return;
  }
  try {
    fail_to_join(options_, failure_text("rendezvous failed", failure->culprit, failure->reason));
  } catch (const CommError& e) {
    throw GroupError(str(" failed\n  ", e.what()), e.what(), failure->culprit);
  }
}

void GroupQueue::fail(Operation& operation, const GroupError& error, int culprit) {
  const std::string text = str(who(), " ", operation.title(), error.what());
  operation.error = error.headline().empty()
                        ? std::make_exception_ptr(CommError(text, own_job_rank(), error.culprit(), operation.number()))
                        : std::make_exception_ptr(MissingRanksError(error.headline(), text, own_job_rank(),
                                                                    error.culprit(), operation.number()));
  operation.ended = true;
  has_failed_ = true;
  suppress_deferred_errors();
  fail_group(culprit, error.reason(), error.what() == ": " + error.reason());
  latch_.read(known_);
}

void GroupQueue::fail_with_current_exception(Operation& operation) {
  operation.error = std::current_exception();
  operation.ended = true;
  has_failed_ = true;
  std::string reason = str(operation.title(), " threw an exception");
  try {
    std::rethrow_exception(operation.error);
  } catch (const std::exception& e) {
    reason = str(operation.title(), " threw: ", error_text(e));
  } catch (...) {  // not a std::exception
  }
  fail_group(own_job_rank(), reason);
  latch_.read(known_);
}

void GroupQueue::fail_group(int culprit, const std::string& reason, bool is_mismatch) {
  backend_->do_cancel();
  latch_.set({.culprit = culprit,
              .reason = reason,
              .is_mismatch = is_mismatch,
              .member = options_.rank,
              .first_failed = completed_.load(std::memory_order_acquire) + 1});
  recorder_.write(failure_text("failed:", culprit, reason), true);
}

void GroupQueue::on_failure_change(const FailureLatch::Known& known) {
  backend_->do_wake();
  if (known.has_own_ended) suppress_deferred_errors();
  const auto stop = [&](int culprit, const std::string& reason) {
    // This rank's own failure is written after the other ranks were notified, in fail_group().
    const bool is_own = known.failure && known.failure->member == options_.rank;
    if (!is_own && !std::exchange(has_written_failure_, true)) {
      recorder_.write(failure_text("failed:", culprit, reason), false);
    }
    abort_gpu(failure_text("failed", culprit, reason), culprit);
  };
  if (known.failure) return stop(known.failure->culprit, known.failure->reason);
  if (known.store) stop(-1, known.store->reason);
  // A rank that left has completed its collectives in progress. Any other collective fails in its consistency check.
  for (size_t rank = 0; rank < known.ended.size(); ++rank) {
    const auto& end = known.ended[rank];
    if (end && !end->has_left) stop(job_rank(options_, static_cast<int>(rank)), end->reason);
  }
}

}}}  // namespace tandem::v0::distributed
