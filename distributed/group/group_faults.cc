// Failures of a group, and the times at which its operations are checked.
#include <algorithm>
#include <utility>

#include <tandem/distributed/group/group_queue.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/distributed/rendezvous/rendezvous.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

// Joining on this rank fails with a better reason than other ranks' failures or a deadline.
constexpr std::chrono::milliseconds kJoiningGrace{100};

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

/// Reports operations that wait for long, and fails those whose deadline had passed `now`. Returns whether one failed.
bool GroupQueue::check_times(Clock::time_point now) {
  Backend* const joined = backend_->has_members() ? backend_.get() : nullptr;
  bool failed = false;
  const auto is_due = [&](Operation& operation) {
    if (operation.ended) return false;
    const auto error = watch_.find_late(operation, now, joined);
    if (error) fail(operation, *error, own_job_rank());
    failed = failed || error;
    return !error && now >= operation.next_report;
  };
  if (head_ != nullptr && is_due(*head_)) watch_.report_stall(*head_, now, joined);
  Message* due = nullptr;  // one report for all messages
  for (const auto& message : active_) {
    if (is_due(*message) && due == nullptr) due = message.get();
  }
  if (due == nullptr) return failed;
  watch_.report_stall(*due, now, joined);
  for (const auto& message : active_) message->next_report = std::max(message->next_report, due->next_report);
  return failed;
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
  const std::string text = str(rank_label(options_), " ", operation.title(), error.what());
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
