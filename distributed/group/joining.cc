#include <tandem/distributed/group/joining.h>

#include <atomic>
#include <exception>
#include <utility>

#include <tandem/base/rank_context.h>
#include <tandem/base/thread.h>
#include <tandem/distributed/rendezvous/failure_board.h>
#include <tandem/distributed/rendezvous/forwarding_store.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

constexpr std::chrono::seconds kDestroyGrace{1};

/// Reports also the failure of the group as the end of a rank, and then ends all waits.
class EndableStore final : public ForwardingStore {
 public:
  explicit EndableStore(std::shared_ptr<Store> store)
      : ForwardingStore(std::move(store)), ends_(store_->on_failure([this](int rank, const std::string& reason) {
          board_.report({.rank = rank, .end = RankEnd::kFailed, .reason = reason});
        })) {}
  ~EndableStore() override { ends_.remove(); }
  EndableStore(const EndableStore&) = delete;
  EndableStore& operator=(const EndableStore&) = delete;

  void end(const Failure& failure) {
    board_.report({.rank = failure.culprit, .end = RankEnd::kFailed, .reason = failure.reason});
    // A part of the group, such as the ranks of a host, ignores the ends of other ranks.
    board_.report({.rank = -1, .end = RankEnd::kFailed, .reason = failure.reason});
    has_ended_ = true;
  }
  std::string get_from(const std::string& key, const std::vector<int>& ranks,
                       std::chrono::milliseconds timeout) override {
    if (has_ended_) throw CommError("the group has failed", -1, 0);  // Rendezvous finds the reason
    return ForwardingStore::get_from(key, ranks, timeout);
  }
  HookHandle on_failure(std::function<void(int rank, const std::string& reason)> f) override {
    return board_.on_failure(std::move(f));
  }

 private:
  FailureBoard board_;
  std::atomic<bool> has_ended_{false};
  HookHandle ends_;
};

}  // namespace

Joining::Joining(const std::shared_ptr<GroupQueue>& queue, Make make) : queue_(*queue) {
  FailureLatch& latch = *queue_.executor().latch();
  const auto store = std::make_shared<EndableStore>(queue_.executor().options().store);
  latch.listen([store](const FailureLatch::Known& known) {
    if (known.failure) store->end(*known.failure);
  });
  thread_ = start_thread([this, &latch, store, make = std::move(make), context = RankContext::current()]() mutable {
    const RankContext::Use use(context);
    ProcessGroupOptions options = queue_.executor().options();
    options.store = store;
    Failure failure{job_rank(options, options.rank), {}};
    failure.member = options.rank;
    failure.is_joining = true;
    try {
      queue_.set_backend(make(options));
      return is_over_.set_value();
    } catch (const CommError& e) {
      failure.culprit = e.peer();
      failure.reason = e.what();
      failure.headline = headline_of(e);
    } catch (const std::exception& e) {
      failure.reason = e.what();
    }
    latch.set(failure);
    is_over_.set_value();
  });
}

Joining::~Joining() {
  // An exception that ends this rank must be reported immediately.
  const std::chrono::seconds grace(std::uncaught_exceptions() == 0 ? kDestroyGrace : std::chrono::seconds(0));
  if (is_over_.get_future().wait_for(grace) != std::future_status::ready) {
    queue_.executor().fail_group({.culprit = queue_.executor().own_job_rank(),
                                  .reason = "the group was destroyed before all members had joined"});
  }
  thread_.join();
}

}}}  // namespace tandem::v0::distributed
