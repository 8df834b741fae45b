// A minimal backend, in memory, for thread ranks: the example of docs/adding_a_backend.md. It replaces the network in
// tests, and can be slowed down.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/tensor/reduce.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Shared state of the ranks of one group.
struct Meeting {
  /// What one rank has published: its call with the signature, and copies of its data.
  struct Posted {
    Collective call;
    std::vector<std::vector<std::byte>> inputs;  ///< one, or one per rank
  };
  using Round = std::map<int, Posted>;  ///< one collective, by rank

  std::mutex mutex;
  std::condition_variable changed;
  std::map<int64_t, Round> rounds;   ///< by number
  std::map<int64_t, int> completed;  ///< number of ranks that have completed a round
  std::map<int, std::function<void()>> wakes;
  std::map<int, Backend::PeerEnd> ends;  ///< of ranks that have cancelled or destroyed their backend
  int64_t events = 0;                    ///< number of changes, by which do_sleep detects one that it missed

  /// The mutex must be locked.
  void notify() {
    ++events;
    changed.notify_all();
    for (const auto& [rank, wake] : wakes) wake();
  }
};

class MeetingBackend : public Backend {
 public:
  /// Collectives complete only at every `dawdle`-th do_advance. `on_start` is called with the number of each
  /// collective before it starts.
  MeetingBackend(const ProcessGroupOptions& options, std::shared_ptr<Meeting> meeting, int dawdle = 1,
                 std::function<void(int64_t number)> on_start = {})
      : options_(options), meeting_(std::move(meeting)), dawdle_(dawdle), on_start_(std::move(on_start)) {}
  ~MeetingBackend() override {
    MeetingBackend::do_cancel();
    std::lock_guard lock(meeting_->mutex);
    meeting_->wakes.erase(options_.rank);
  }

  const char* name() const override { return "meeting"; }
  std::string describe() const override { return "a meeting"; }
  int max_polls() const override { return 1; }

  void do_start(const Collective& call) override {
    call_ = &call;
    ++number_;
    if (on_start_) on_start_(number_);
    Meeting::Posted posted{call, {}};
    const auto add = [&](const std::byte* data, int64_t count) {
      if (call.moves_data && count > 0) {
        posted.inputs.emplace_back(data, data + count * size_of(call.dtype));
      } else {
        posted.inputs.emplace_back();
      }
    };
    const auto rank = static_cast<size_t>(options_.rank);
    const bool gathers = call.kind == CollectiveKind::kAllGather && call.moves_data;
    const bool sends = call.input != nullptr && (call.kind != CollectiveKind::kBroadcast || is_root());
    if (call.inputs.empty()) add(call.input, gathers ? call.outputs[rank].num_elements : sends ? call.num_elements : 0);
    for (const Part& part : call.inputs) add(part.data, part.num_elements);
    std::lock_guard lock(meeting_->mutex);
    meeting_->rounds[number_].emplace(options_.rank, std::move(posted));
    meeting_->notify();
  }

  Advance do_advance() override {
    std::lock_guard lock(meeting_->mutex);
    const Meeting::Round& round = meeting_->rounds[number_];
    throw_if_calls_differ(round);
    if (static_cast<int>(round.size()) < options_.world_size) return Advance::kIdle;
    if (++polls_ % dawdle_ != 0) return Advance::kMoved;
    if (call_->moves_data) finish(round);
    if (++meeting_->completed[number_] == options_.world_size) {
      meeting_->rounds.erase(number_);
      meeting_->completed.erase(number_);
    }
    return Advance::kDone;
  }

  void do_start_p2p(P2pRequest&) override { throw StateError("meeting: no messages"); }
  Advance do_advance_p2p() override { return Advance::kIdle; }

  void do_sleep(FunctionRef<bool()> changed, Clock::time_point until) override {
    std::unique_lock lock(meeting_->mutex);
    const int64_t before = meeting_->events;
    lock.unlock();
    if (changed()) return;
    lock.lock();
    const auto woken = [&] { return meeting_->events != before; };
    if (until == Clock::time_point::max()) {
      meeting_->changed.wait(lock, woken);
    } else {
      meeting_->changed.wait_until(lock, until, woken);
    }
  }
  void do_wake() override {
    std::lock_guard lock(meeting_->mutex);
    ++meeting_->events;
    meeting_->changed.notify_all();
  }
  void do_cancel() override {  // what was posted stays valid
    std::lock_guard lock(meeting_->mutex);
    if (meeting_->ends.emplace(options_.rank, PeerEnd{true, "left the group", Clock::now()}).second) meeting_->notify();
  }
  const PeerEnd* do_peer_end(int rank) override {
    std::lock_guard lock(meeting_->mutex);
    const auto end = meeting_->ends.find(rank);
    return end == meeting_->ends.end() ? nullptr : &end->second;
  }
  bool do_needs(int rank) override {
    std::lock_guard lock(meeting_->mutex);
    const auto round = meeting_->rounds.find(number_);
    return round != meeting_->rounds.end() && round->second.count(rank) == 0;
  }
  bool do_needs_p2p(int) override { return false; }
  void do_notify(const std::function<void()>& wake) override {
    std::lock_guard lock(meeting_->mutex);
    meeting_->wakes[options_.rank] = wake;
  }
  LastStarted do_last_started(int rank) const override {
    std::lock_guard lock(meeting_->mutex);
    LastStarted last;
    for (const auto& [number, round] : meeting_->rounds) {
      if (const auto found = round.find(rank); found != round.end()) last.seq = found->second.call.seq;
    }
    return last;
  }
  std::vector<int> do_awaited() override { return {}; }

 private:
  bool is_root() const { return call_->root == options_.rank; }

  void throw_if_calls_differ(const Meeting::Round& round) const {
    const auto shown = [&](int rank) {
      const Collective& c = round.at(rank).call;
      return RankCall{rank, describe_call(c, c.shape, c.tensors, c.name, c.where.file_name(), c.where.line())};
    };
    for (const auto& [rank, posted] : round) {
      if (!(static_cast<const Signature&>(posted.call) == *call_))
        throw_call_mismatch(options_, shown(options_.rank), shown(rank));
    }
  }

  /// Computes the result from the inputs of all ranks.
  void finish(const Meeting::Round& round) const {
    const auto rank = static_cast<size_t>(options_.rank);
    const auto combine = [&](size_t part) {
      std::vector<const std::byte*> inputs;
      for (const auto& [peer, posted] : round) inputs.push_back(posted.inputs[part].data());
      if (call_->num_elements > 0)
        primitives::reduce(call_->op, call_->dtype, inputs, call_->num_elements, call_->output);
    };
    switch (call_->kind) {
      case CollectiveKind::kBarrier: return;
      case CollectiveKind::kAllReduce: return combine(0);
      case CollectiveKind::kReduce:
        if (is_root()) combine(0);
        return;
      case CollectiveKind::kReduceScatter: return combine(rank);
      case CollectiveKind::kBroadcast: {
        const std::vector<std::byte>& data = round.at(call_->root).inputs[0];
        if (!data.empty() && !is_root()) std::memcpy(call_->output, data.data(), data.size());
        return;
      }
      case CollectiveKind::kAllGather:
        for (const auto& [peer, posted] : round) {
          const std::vector<std::byte>& data = posted.inputs[0];
          if (!data.empty()) std::memcpy(call_->outputs[static_cast<size_t>(peer)].data, data.data(), data.size());
        }
        return;
      case CollectiveKind::kAllToAll:
        for (const auto& [peer, posted] : round) {
          const std::vector<std::byte>& data = posted.inputs[rank];
          if (!data.empty()) std::memcpy(call_->outputs[static_cast<size_t>(peer)].data, data.data(), data.size());
        }
        return;
      default: throw StateError(str("meeting: no ", to_string(call_->kind)));
    }
  }

  const ProcessGroupOptions options_;
  const std::shared_ptr<Meeting> meeting_;
  const int dawdle_;
  const std::function<void(int64_t)> on_start_;
  const Collective* call_ = nullptr;
  int64_t number_ = 0;
  int polls_ = 0;
};

}}}  // namespace tandem::v0::distributed
