// Messages of a group in its queue.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include <tandem/distributed/group/gpu_messages.h>
#include <tandem/distributed/group/group_queue.h>
#include <tandem/distributed/rendezvous/failure_board.h>

namespace tandem { inline namespace v0 { namespace distributed {

Advance GroupQueue::advance_messages() {
  Advance result = Advance::kIdle;
  for (; num_begun_ < active_.size(); ++num_begun_) {
    Message& message = *active_[num_begun_];
    try {
      begin(message);
      backend_->do_start_p2p(message.transfer);
    } catch (const GroupError& e) {
      fail(message, e);
      result = Advance::kDone;
    } catch (...) {
      fail_with_current_exception(message);
      result = Advance::kDone;
    }
  }
  try {
    // The backend has dropped failed messages, so they must not be advanced any more.
    if (has_failed_) throw known_.failure->error();
    if (running_messages_ != nullptr) running_messages_->provide_data(active_);
    Advance moved = backend_->do_advance_p2p();
    if (moved == Advance::kIdle && knows_ends()) {
      moved = backend_->do_advance_p2p();
      if (moved == Advance::kIdle) fail_if_needed(0, [&](int rank) { return backend_->do_needs_p2p(rank); });
    }
    result = std::max(result, moved);
    if (running_messages_ != nullptr) {
      std::vector<std::shared_ptr<Message>> added;
      if (running_messages_->advance(active_, added)) result = std::max(result, Advance::kMoved);
      std::move(added.begin(), added.end(), std::back_inserter(active_));
    }
  } catch (const GroupError& e) {
    fail_messages(e);
    return Advance::kDone;
  } catch (...) {
    for (const auto& message : active_) {
      if (!message->ended) fail_with_current_exception(*message);
    }
    return Advance::kDone;
  }
  if (result != Advance::kMoved && running_messages_ == nullptr) return result;
  for (const auto& message : active_) {
    if (message->ended) continue;
    if (message->gpu != nullptr && message->gpu->error()) {
      fail_on_gpu(*message);
    } else if (!message->is_complete()) {
      continue;
    }
    message->ended = true;
    result = Advance::kDone;
  }
  return result;
}

/// If the backend has marked some messages as failed, only these get its error, and the others a general error. Else
/// all get its error.
void GroupQueue::fail_messages(const GroupError& error) {
  const bool is_of_some = std::any_of(active_.begin(), active_.end(), [](const auto& m) { return m->transfer.failed; });
  const GroupError of_others(failure_text(" failed", error.culprit(), error.reason()), error.reason(), error.culprit());
  for (const auto& message : active_) {
    if (message->ended) continue;
    if (message->is_complete()) {
      message->ended = true;
    } else {
      fail(*message, is_of_some && !message->transfer.failed ? of_others : error);
    }
  }
}

/// A copy or the launch of the message has failed.
void GroupQueue::fail_on_gpu(Message& message) {
  message.error = message.gpu->error();
  message.ended = true;
  suppress_deferred_errors();
  int culprit = own_job_rank();
  std::string reason;
  try {
    std::rethrow_exception(message.error);
  } catch (const CommError& error) {
    if (error.peer() >= 0) culprit = error.peer();
    reason = error.what();
  } catch (const std::exception& error) {
    reason = str(message.title(), " threw: ", error_text(error));
  }
  fail_group(culprit, reason);
}

void GroupQueue::prepare_gpu_messages(std::span<const std::shared_ptr<Message>> messages) {
  const auto first = std::find_if(messages.begin(), messages.end(), [](const auto& m) { return m->gpu != nullptr; });
  if (first == messages.end()) return;
  std::shared_ptr<GpuMessages> shared = gpu_messages();
  if (shared == nullptr) {
    auto made = std::make_shared<GpuMessages>(options_, (*first)->gpu->tensor.device(), message_hooks());
    std::lock_guard lock(mutex_);
    if (gpu_messages_ == nullptr) gpu_messages_ = std::move(made);
    shared = gpu_messages_;
  }
  shared->prepare(messages);
}

GpuMessages::Hooks GroupQueue::message_hooks() {
  return {.start_thread = start_rank_thread,
          .nccl_options = [this](Device device) { return nccl_options(device); },
          .wake = [this] { wake_executor(); },
          .is_failing = [this] { return latch_.is_failing(); }};
}

}}}  // namespace tandem::v0::distributed
