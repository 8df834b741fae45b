// Collectives of a group that are captured in a cuda::Graph, and the replays of the graph.
//
// A captured collective has a consistency check of its own, like any collective. Each replay has one check for all
// collectives of its graph, which names the graph by the number of its first collective, equal on all ranks. It is
// complete before the graph is launched: nothing could stop an optimizer's step in the graph from using the data.
#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <tandem/base/log.h>
#include <tandem/distributed/group/gpu_group.h>
#include <tandem/tensor/cuda_capture.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// A collective of a graph. It keeps the tensors that replays use.
class CapturedWork final : public GpuWork {
 public:
  CapturedWork(CollectiveOperation& operation, std::shared_ptr<const cuda::CapturePoint> point)
      : shown_(str(operation.title(), operation.name().empty() ? "" : str(" '", operation.name(), "'"))),
        capture_id_(cuda::capture_id()),
        point_(std::move(point)),
        kept_(operation.kept.begin(), operation.kept.end()) {
    for (const auto* copies : {&operation.before, &operation.after}) {
      for (const CopyStep& copy : *copies) kept_.insert(kept_.end(), {copy.from, copy.to});
    }
  }

  void join() override {
    if (cuda::capture_id() == capture_id_) {
      cuda::join_capture(*point_);
      is_joined_ = true;
      // The graph owns this memory, and later work of the captured stream may reuse it.
      std::erase_if(kept_, [](const Tensor& tensor) { return cuda::is_allocated_in_capture(tensor); });
    }
    check_joined();
  }
  void check_joined() const {
    TANDEM_CHECK(StateError, is_joined_, "Graph: ", shown_,
                 " was captured, but wait() was not called during the capture; call it before the captured function "
                 "returns");
  }

 private:
  const std::string shown_;
  const uint64_t capture_id_;
  const std::shared_ptr<const cuda::CapturePoint> point_;
  std::vector<Tensor> kept_;
  bool is_joined_ = false;
};

/// The collectives of one group in one graph.
class GpuGroup::CapturedCollectives final : public cuda::ReplayObserver {
 public:
  CapturedCollectives(std::weak_ptr<GpuGroup> group, std::shared_ptr<NcclBackend> nccl)
      : capture_id_(cuda::capture_id()), group_(std::move(group)), nccl_(std::move(nccl)) {}

  uint64_t capture_id() const { return capture_id_; }
  std::shared_ptr<GpuWork> add(CollectiveOperation& operation) {
    auto point = nccl_->capture(operation);
    if (works_.empty()) {
      first_ = operation.number();
      name_ = operation.shown_name();
      where_ = operation.collective.where;
      timeout_ = operation.timeout;
    }
    const bool is_endless = timeout_.count() == 0 || operation.timeout.count() == 0;
    timeout_ = is_endless ? std::chrono::milliseconds(0) : std::max(timeout_, operation.timeout);
    works_.push_back(std::make_shared<CapturedWork>(operation, std::move(point)));
    return works_.back();
  }

  void end_capture() override {
    if (!works_.empty()) works_.back()->check_joined();  // the others are complete before it
  }
  void begin_replay(bool is_first) override;
  void launch(const std::function<void()>& launch) override { nccl_->launch_graph(*check_, agreed_, launch); }
  void end_replay(const std::exception_ptr& error) noexcept override;

 private:
  const uint64_t capture_id_;
  const std::weak_ptr<GpuGroup> group_;
  const std::shared_ptr<NcclBackend> nccl_;  // NCCL requires that its communicator outlives the graph
  std::vector<std::shared_ptr<CapturedWork>> works_;
  int64_t first_ = 0;  // number of the first collective
  std::string name_;   // of the first collective
  std::source_location where_;
  std::chrono::milliseconds timeout_{0};
  // Of the running replay:
  std::shared_ptr<GpuGroup> replaying_;                // after a successful consistency check
  std::optional<DeferCompletions> defer_completions_;  // while launch_order_ is locked
  std::unique_lock<std::mutex> launch_order_;          // other threads must not start collectives before the launch
  std::shared_ptr<CollectiveOperation> check_;
  NcclBackend::AgreedTime agreed_;
};

void GpuGroup::CapturedCollectives::begin_replay(bool is_first) {
  const auto group = group_.lock();
  TANDEM_CHECK(StateError, group != nullptr && group->nccl_backend() != nullptr,
               "Graph: the process group of its collectives was destroyed; create another group and capture a new "
               "Graph");
  Collective c;  // a barrier
  c.on_gpu = true;
  c.name = str(is_first ? "first run" : "replay", " of the graph with ", works_.size(), " collectives from #", first_,
               " '", name_, "'");
  c.name_hash = hash_name(c.name);
  c.where = where_;
  agreed_ = std::make_shared<NcclBackend::AgreedTime::element_type>();
  check_ = make_check(std::move(c), timeout_, agreed_);
  defer_completions_.emplace();
  launch_order_ = std::unique_lock(group->launch_mutex_);
  group->queue_->run(*check_);
  check_->at_end = group->executor_.recorder().end_on_gpu(*check_);
  replaying_ = group;
}

void GpuGroup::CapturedCollectives::end_replay(const std::exception_ptr& error) noexcept {
  const auto group = std::exchange(replaying_, nullptr);
  if (launch_order_.owns_lock()) launch_order_.unlock();
  defer_completions_.reset();
  if (error == nullptr || group == nullptr || group->executor_.latch()->is_failing()) return;
  // The other ranks have launched the graph.
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    try {
      group->abort(str("a replay of a cuda::Graph threw: ", error_text(e)));
    } catch (const std::exception& of_abort) {
      log(LogLevel::kError, "Graph: cannot abort the process group: ", of_abort.what());
    }
  } catch (...) {  // no error of tandem
  }
}

std::function<std::shared_ptr<GpuWork>(CollectiveOperation&)> GpuGroup::begin_capture(
    const Collective& first, const std::shared_ptr<NcclBackend>& nccl) {
  TANDEM_CHECK(StateError, nccl != nullptr, "Graph: ", to_string(first.kind), " is the first collective of group '",
               options_.name, "' on ", first.device,
               ", which cannot be captured; run the function once before the capture");
  TANDEM_CHECK(StateError, cuda::is_capturing(first.device), "Graph: ", first.device,
               " cannot be used while a graph of another GPU is captured");
  auto captured = captured_.lock();
  if (captured == nullptr || captured->capture_id() != cuda::capture_id()) {
    captured = std::make_shared<CapturedCollectives>(weak_from_this(), nccl);
    captured_ = captured;
    cuda::observe_replays(captured);
  }
  return [captured](CollectiveOperation& operation) { return captured->add(operation); };
}

}}}  // namespace tandem::v0::distributed
