#include <tandem/distributed/group/executor.h>

#include <algorithm>
#include <exception>
#include <utility>

#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed {

Executor::Executor(const ProcessGroupOptions& options, std::unique_ptr<Backend> backend,
                   std::chrono::milliseconds stall, std::mutex& mutex)
    : options_(options),
      latch_(std::make_shared<FailureLatch>(options)),
      recorder_(options, mutex),
      watch_(options, stall, recorder_),
      owned_(std::move(backend)),
      backend_(owned_.get()) {}

void Executor::set_backend(std::unique_ptr<Backend> backend) {
  owned_ = std::move(backend);
  backend_ = owned_.get();
  // Either this thread sees the failure, or fail_group() sees the backend.
  const auto cause = latch_->cause();
  if (cause && cause->member == options_.rank) owned_->do_cancel();
}

void Executor::add(Operations& arrived) {
  for (auto& operation : arrived) {
    if (operation->number() >= 0) {
      collectives_.push_back(std::static_pointer_cast<CollectiveOperation>(std::move(operation)));
      continue;
    }
    messages_.push_back(std::static_pointer_cast<Message>(std::move(operation)));
    if (messages_.back()->gpu != nullptr) gpu_messages_ = messages_.back()->gpu->owner;
  }
  arrived.clear();
}

Advance Executor::step() {
  Advance result = Advance::kIdle;
  again_ = Clock::time_point::max();
  if (!collectives_.empty()) result = advance_collective();
  if (!messages_.empty()) result = std::max(result, advance_messages());
  return result;
}

Advance Executor::advance_collective() {
  CollectiveOperation& head = *collectives_.front();
  Backend* const backend = this->backend();
  try {
    if (!head.started) {
      begin(head, known_);
      if (backend == nullptr) return Advance::kIdle;
      for (const CopyStep& copy : head.before) primitives::copy(copy.from, copy.to);
      head.started = true;
      backend->do_start(head.collective);
    }
    const auto needs = [&](int rank) { return backend->do_needs(rank); };
    const Advance result = advance_or_fail({head.number(), needs}, [&] { return backend->do_advance(); });
    head.ended = result == Advance::kDone;
    if (head.ended) completed_.store(head.number(), std::memory_order_release);
    // The backend may be able to continue after it has received the signatures of later collectives.
    return !head.ended && prefetch_signatures() ? Advance::kMoved : result;
  } catch (const GroupError& e) {
    if (!messages_.empty()) advance_messages();  // messages that the failed rank has received still complete
    fail(head, e, e.culprit());
  } catch (...) {
    fail(head, std::current_exception());
  }
  return Advance::kDone;
}

/// Sends the signatures of the collectives behind the first one to the peers. Returns whether it sent any.
bool Executor::prefetch_signatures() {
  bool any = false;
  for (; num_prefetched_ + 1 < collectives_.size(); ++num_prefetched_) {
    const CollectiveOperation& before = *collectives_[num_prefetched_];
    const CollectiveOperation& next = *collectives_[num_prefetched_ + 1];
    const bool input_is_ready = before.after.empty() && next.before.empty();
    if (!backend()->do_prefetch_signature(next.collective, input_is_ready)) break;
    any = true;
  }
  return any;
}

// --- messages ---

Advance Executor::advance_messages() {
  Backend* const backend = this->backend();
  Advance result = start_messages(backend);
  if (backend == nullptr) return result;
  try {
    latch_->read(known_);
    // The backend has dropped failed messages, so they must not be advanced any more.
    if (known_.has_failed_operation) throw known_.failure->error();
    const auto needs = [&](int rank) { return backend->do_needs_p2p(rank); };
    result = std::max(result, advance_or_fail({0, needs}, [&] { return backend->do_advance_p2p(); }));
    if (gpu_messages_ != nullptr && gpu_messages_->advance(messages_)) result = std::max(result, Advance::kMoved);
  } catch (const GroupError& e) {
    fail_messages(e);
    return Advance::kDone;
  } catch (...) {
    for (const auto& message : messages_) {
      if (!message->ended) fail(*message, std::current_exception());
    }
    return Advance::kDone;
  }
  if (result != Advance::kMoved && gpu_messages_ == nullptr) return result;
  for (const auto& message : messages_) {
    if (message->ended) continue;
    if (message->gpu != nullptr && message->gpu->error()) {
      fail(*message, message->gpu->error());
    } else if (!message->is_complete()) {
      continue;
    }
    message->ended = true;
    result = Advance::kDone;
  }
  return result;
}

/// Returns kDone if one has failed.
Advance Executor::start_messages(Backend* backend) {
  Advance result = Advance::kIdle;
  for (size_t i = num_started_; i < messages_.size(); ++i) {
    if (backend != nullptr) ++num_started_;
    Message& message = *messages_[i];
    if (message.ended) continue;
    try {
      begin(message, known_);
      if (backend == nullptr) continue;
      for (const CopyStep& copy : message.before) primitives::copy(copy.from, copy.to);
      backend->do_start_p2p(message.transfer);
    } catch (...) {
      fail(message, std::current_exception());
      result = Advance::kDone;
    }
  }
  return result;
}

/// If the backend has marked some messages as failed, only these get its error, and the others a general error. Else
/// all get its error.
void Executor::fail_messages(const GroupError& error) {
  const bool is_of_some =
      std::any_of(messages_.begin(), messages_.end(), [](const auto& m) { return m->transfer.failed; });
  const GroupError of_others(failure_text(" failed", error.culprit(), error.reason()), error.reason(), error.culprit());
  for (const auto& message : messages_) {
    if (message->ended) continue;
    if (message->is_complete()) {
      message->ended = true;
    } else {
      fail(*message, is_of_some && !message->transfer.failed ? of_others : error, error.culprit());
    }
  }
}

// --- begin and end of an operation ---

/// Does nothing if it has begun, except that it throws the failure of the group. `known`: of the calling thread.
void Executor::begin(Operation& operation, FailureLatch::Known& known) {
  latch_->read(known);
  if (known.has_failed_operation) throw known.failure->error(": the group has already failed");
  if (known.failure && known.failure->member == options_.rank) throw known.failure->error();
  if (operation.began != Clock::time_point()) return;
  watch_.begin(operation);
  recorder_.mark(operation, FlightRecorder::Time::kStarted, operation.began.time_since_epoch().count());
  if (!operation.is_internal && trace_enabled()) operation.trace_begin_ns = trace_now_ns();
}

void Executor::finish(Operation& operation) {
  if (!operation.error) {
    try {
      for (const CopyStep& copy : operation.after) primitives::copy(copy.from, copy.to);
      if (operation.at_end) operation.at_end();
    } catch (...) {
      operation.error = std::current_exception();  // only of this rank: the other ranks have their data
    }
  }
  recorder_.mark_end(operation);
  if (operation.trace_begin_ns == 0) return;
  const int thread = RankContext::current().trace_thread;
  record_trace({operation.shown_name(), operation.trace_category, own_job_rank(), thread, operation.trace_begin_ns,
                trace_now_ns(), operation.num_bytes()});
}

Operations& Executor::take_ended() {
  ended_.clear();
  if (!collectives_.empty() && collectives_.front()->ended) {
    ended_.push_back(std::move(collectives_.front()));
    collectives_.pop_front();
    if (num_prefetched_ > 0) --num_prefetched_;
  }
  for (auto& message : messages_) {
    if (message->ended) ended_.push_back(std::move(message));
  }
  const auto started = messages_.begin() + static_cast<std::ptrdiff_t>(num_started_);
  num_started_ -= static_cast<size_t>(std::count(messages_.begin(), started, nullptr));
  std::erase(messages_, nullptr);
  for (const auto& operation : ended_) finish(*operation);
  return ended_;
}

void Executor::run_single_rank(CollectiveOperation& operation) {
  FailureLatch::Known known;
  known.version = 1;  // nothing has happened yet
  try {
    begin(operation, known);
    for (const CopyStep& copy : operation.before) primitives::copy(copy.from, copy.to);
    const Collective& c = operation.collective;
    const int64_t count = c.outputs.empty() ? c.num_elements : c.outputs[0].num_elements;
    if (c.data_to(0) != c.data_from(0)) {  // each result is a copy of the input
      primitives::copy_bytes(c.device, c.data_from(0), c.data_to(0), count * size_of(c.dtype));
    }
    finish(operation);
  } catch (const GroupError& error) {
    fail(operation, error, error.culprit());
  }
  if (operation.error) std::rethrow_exception(operation.error);
}

// --- times ---

bool Executor::check_times(Clock::time_point now) {
  bool failed = false;
  const auto is_due = [&](Operation& operation) {
    if (operation.ended) return false;
    const auto error = watch_.find_late(operation, now, backend(), known_.failure);
    if (error) fail(operation, *error, own_job_rank());
    failed = failed || error;
    return !error && now >= operation.next_report;
  };
  if (!collectives_.empty() && is_due(*collectives_.front()))
    watch_.report_stall(*collectives_.front(), now, backend());
  Message* due = nullptr;  // one report for all messages
  for (const auto& message : messages_) {
    if (is_due(*message) && due == nullptr) due = message.get();
  }
  if (due == nullptr) return failed;
  watch_.report_stall(*due, now, backend());
  for (const auto& message : messages_) message->next_report = std::max(message->next_report, due->next_report);
  return failed;
}

Executor::Clock::time_point Executor::wake_at() const {
  Clock::time_point first = again_;
  const auto consider = [&](const Operation& operation) {
    first = std::min({first, operation.deadline, operation.next_report});
  };
  if (!collectives_.empty()) consider(*collectives_.front());
  for (const auto& message : messages_) consider(*message);
  return gpu_messages_ != nullptr ? std::min(first, gpu_messages_->wake_at()) : first;
}

// --- failures ---

/// Calls advance(). If nothing moves, and this rank knows now that the group has failed or that a member has ended,
/// throws the failure if the operation cannot complete.
Advance Executor::advance_or_fail(const Waiting& operation, FunctionRef<Advance()> advance) {
  const Advance result = advance();
  if (result != Advance::kIdle) return result;
  latch_->read(known_);
  bool any = !known_.is_empty();
  for (int rank = 0; rank < options_.world_size && !any; ++rank) any = backend()->do_peer_end(rank) != nullptr;
  if (!any) return result;
  const Advance since = advance();  // what arrived before the ends were known counts
  if (since != Advance::kIdle) return since;
  const auto failure = still_needed(operation, known_, *backend(), options_, Clock::now(), again_);
  if (failure) throw failure->error();
  return since;
}

void Executor::fail(Operation& operation, const GroupError& error, int culprit) {
  const std::string text = str(rank_label(options_), " ", operation.title(), error.what());
  operation.error = error.headline().empty()
                        ? std::make_exception_ptr(CommError(text, own_job_rank(), error.culprit(), operation.number()))
                        : std::make_exception_ptr(MissingRanksError(error.headline(), text, own_job_rank(),
                                                                    error.culprit(), operation.number()));
  operation.ended = true;
  Failure failure{.culprit = culprit, .reason = error.reason(), .is_mismatch = error.is_mismatch()};
  if (culprit != error.culprit()) failure.missing = error.culprit();
  fail_group(std::move(failure), true);
}

/// An error that is not the group's is this rank's; or another rank's, if it is of a message between GPUs.
void Executor::fail(Operation& operation, const std::exception_ptr& error) {
  operation.error = error;
  operation.ended = true;
  Failure failure{own_job_rank(), str(operation.title(), " threw an exception")};
  try {
    std::rethrow_exception(error);
  } catch (const GroupError& e) {
    return fail(operation, e, e.culprit());
  } catch (const CommError& e) {
    if (e.peer() >= 0) failure.culprit = e.peer();
    failure.reason = e.what();
  } catch (const std::exception& e) {
    failure.reason = str(operation.title(), " threw: ", error_text(e));
  } catch (...) {  // not a std::exception
  }
  fail_group(std::move(failure), true);
}

void Executor::cancel() {
  if (Backend* const backend = this->backend()) backend->do_cancel();
}

void Executor::fail_group(Failure failure, bool is_of_operation) {
  const bool was_joining = backend() == nullptr;
  cancel();
  failure.member = options_.rank;
  failure.first_failed = completed_.load(std::memory_order_acquire) + 1;
  latch_->set(failure, is_of_operation);
  if (was_joining) cancel();  // see set_backend()
  recorder_.write(failure_text("failed:", failure.culprit, failure.reason), true);
}

}}}  // namespace tandem::v0::distributed
