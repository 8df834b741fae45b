#include <tandem/distributed/group/operation_watch.h>

#include <algorithm>
#include <utility>

#include <tandem/base/log.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/thread.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

constexpr std::chrono::milliseconds kUnknownGrace{500};
// Joining on this rank fails with a better reason than a deadline.
constexpr std::chrono::milliseconds kJoiningGrace{100};

std::chrono::milliseconds to_milliseconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration);
}

/// Claims the `number`-th stall report of operation `seq` in the store. Returns false if another rank has made this
/// report or a later one. Returns true if the store fails, so that this rank reports.
bool claims_report(const ProcessGroupOptions& options, int64_t seq, int number) {
  const std::string mine = wire::PayloadWriter().number(seq).number(number).number(options.rank).take();
  std::string last;
  try {
    for (;;) {
      const std::string found = options.store->compare_set(str("group/", options.name, "/stall"), last, mine);
      if (found == mine) return true;
      wire::PayloadReader reader(found);
      const int64_t found_seq = reader.number();
      if (std::pair(found_seq, reader.number()) >= std::pair(seq, int64_t{number})) return false;
      last = found;
    }
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

std::vector<int> job_ranks(const ProcessGroupOptions& options) {
  std::vector<int> ranks;
  for (int rank = 0; rank < options.world_size; ++rank) ranks.push_back(job_rank(options, rank));
  return ranks;
}

std::string rank_label(const ProcessGroupOptions& options) {
  return options.ranks.empty() ? str("[rank ", options.rank, " of ", options.world_size, "]")
                               : str("[rank ", job_rank(options, options.rank), ", group '", options.name, "']");
}

MissingRanks missing_ranks(const ProcessGroupOptions& options, std::string operation,
                           std::chrono::milliseconds timeout) {
  return {.world_size = options.ranks.empty() ? options.world_size : 0,
          .group = options.ranks.empty() ? "" : options.name,
          .operation = std::move(operation),
          .timeout = timeout};
}

std::string describe_ranks(const ProcessGroupOptions& options, std::span<const int> ranks, const Backend& backend,
                           const char* last_word) {
  std::string text;
  for (const int rank : ranks) {
    text += str(text.empty() ? "rank " : ", rank ", job_rank(options, rank), " (",
                describe_last(backend.do_last_started(rank), last_word), ")");
  }
  return text;
}

std::thread start_rank_thread(std::function<void()> f) {
  RankContext context = RankContext::current();
  context.grad_enabled = true;
  context.autocast = -1;
  context.module_scope = nullptr;
  return start_thread([f = std::move(f), context]() mutable {
    const RankContext::Use use(context);
    f();
  });
}

void OperationWatch::begin(Operation& operation) const {
  operation.began = Clock::now();
  if (operation.is_internal) return;
  operation.next_report = operation.began + stall_;
  if (operation.timeout.count() > 0) operation.deadline = operation.began + operation.timeout;
}

OperationWatch::Ranks OperationWatch::ranks_of(const Operation& operation, Backend& backend) const {
  if (const auto* const message = dynamic_cast<const Message*>(&operation))
    return {.started = {options_.rank}, .missing = {message->transfer.peer}};
  Ranks ranks;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const bool has_started = rank == options_.rank || backend.do_last_started(rank).seq >= operation.number();
    (has_started ? ranks.started : ranks.missing).push_back(rank);
  }
  ranks.have_started = ranks.missing.empty();
  if (ranks.have_started) ranks.missing = backend.do_awaited();
  return ranks;
}

// --- deadlines ---

std::optional<GroupError> OperationWatch::find_late(Operation& operation, Clock::time_point now, Backend* backend,
                                                    const std::optional<Failure>& failure) const {
  if (now < operation.deadline) return std::nullopt;
  if (backend == nullptr) {
    // Joining began earlier, has the group's timeout, and its error names the missing ranks.
    const bool joining_ends = options_.timeout.count() > 0 && operation.timeout >= options_.timeout;
    if (!joining_ends) return timed_out(operation, "waiting for members", "not all members have joined", -1, {});
    operation.deadline = now + kJoiningGrace;
    return std::nullopt;
  }
  // "reached #1873: ranks 0 1 2.  missing: rank 3 (last reached all_gather #1860 'control record', 31.2 s ago)"
  const Ranks ranks = ranks_of(operation, *backend);
  const int64_t seq = operation.number();
  const char* const subject = ranks.have_started ? "data of " : "";
  std::string progress = subject + describe_ranks(options_, ranks.missing, *backend, "last reached");
  if (ranks.missing.empty()) {
    if (failure) return failure->error();
    // A rank that can name no missing rank lets the others fail first.
    if (!std::exchange(operation.is_extended, true)) {
      operation.deadline += std::min(operation.timeout / 4, kUnknownGrace);
      return std::nullopt;
    }
    progress = "unknown (this rank waits for no rank that is known to be stuck)";
  }
  MissingRanks shown = missing_ranks(options_, operation.title(), operation.timeout);
  shown.have_started = ranks.have_started;
  for (const int rank : ranks.missing) shown.missing.push_back(job_rank(options_, rank));
  const int culprit = shown.missing.empty() ? -1 : shown.missing.front();
  std::sort(shown.missing.begin(), shown.missing.end());
  std::string started;
  for (const int rank : ranks.started) {
    started += str(" ", job_rank(options_, rank));
    if (std::find(ranks.missing.begin(), ranks.missing.end(), rank) == ranks.missing.end())
      shown.waiting.push_back(job_rank(options_, rank));
  }
  if (seq > 0) {
    shown.operation = str(operation.title().substr(0, operation.title().find(' ')), " (collective ", seq, ")");
    progress = str("reached #", seq, ": ranks", started, ".  missing: ", progress);
  }
  return timed_out(operation, backend->name(), progress, culprit, shown.missing.empty() ? "" : to_headline(shown));
}

GroupError OperationWatch::timed_out(const Operation& operation, const char* where, const std::string& progress,
                                     int culprit, const std::string& headline) const {
  const std::string after = format_seconds(operation.timeout);
  std::string subject;
  for (const std::string& part : {operation.name(), operation.payload(), std::string(where)}) {
    if (!part.empty()) subject += str(subject.empty() ? "" : ", ", part);
  }
  return {str(" timed out after ", after, "\n  ", subject, "\n  ", progress),
          str(operation.title(), " timed out after ", after, "; ", progress), culprit, headline};
}

// --- stalls ---

void OperationWatch::report_stall(Operation& operation, Clock::time_point now, Backend* backend) {
  std::string waited_for = " for members to join";
  if (backend != nullptr) {
    const Ranks ranks = ranks_of(operation, *backend);
    const auto lower =
        std::count_if(ranks.started.begin(), ranks.started.end(), [&](int rank) { return rank < options_.rank; });
    operation.is_report_delayed = lower > 0 && !operation.is_report_delayed;
    if (operation.is_report_delayed) {
      operation.next_report = now + std::min(lower * stall_ / 10, stall_);
      return;
    }
    waited_for = ranks.missing.empty() ? "; all ranks have started it"
                                       : str(ranks.have_started ? " for data of " : " for ",
                                             describe_ranks(options_, ranks.missing, *backend, "last:"));
  }
  operation.next_report = now + (now - operation.began);
  const std::string shown = operation.name().empty() ? "" : str(" '", operation.name(), "'");
  const std::string line = str("group '", options_.name, "': ", operation.title(), shown, " has been waiting for ",
                               format_seconds(to_milliseconds(now - operation.began)), waited_for);
  if (++operation.num_reports == 1) recorder_.write(line, false);
  if (operation.number() < 0) return log(LogLevel::kWarning, line);
  if (logging_->exchange(true)) return;
  try {
    // On its own thread, for which no thread waits: the store may be the component that does not respond.
    start_rank_thread([options = options_, line, seq = operation.number(), number = operation.num_reports,
                       logging = logging_] {
      if (claims_report(options, seq, number)) log(LogLevel::kWarning, line);
      *logging = false;
    }).detach();
  } catch (const ResourceError&) {
    *logging_ = false;
    log(LogLevel::kWarning, line);  // two reports are better than none
  }
}

}}}  // namespace tandem::v0::distributed
