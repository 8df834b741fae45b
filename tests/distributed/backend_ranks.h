// Thread ranks, each with a backend that the test drives directly.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/group/failure_latch.h>
#include <tandem/distributed/store.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// A backend whose collectives and messages fail as in a group's queue.
class RankBackend final : public Backend {
 public:
  RankBackend(const ProcessGroupOptions& options, std::unique_ptr<Backend> backend)
      : options_(options), backend_(std::move(backend)), latch_(options) {
    latch_.listen([this](const FailureLatch::Known&) { backend_->do_wake(); });
  }
  ~RankBackend() override { latch_.close(); }

  /// Fails the group.
  void fail(int culprit, const std::string& reason, bool is_mismatch = false) {
    backend_->do_cancel();
    latch_.set({culprit, reason, is_mismatch, options_.rank, completed_ + 1});
  }
  void fail(const GroupError& e) { fail(e.culprit(), e.reason(), e.what() == ": " + e.reason()); }
  /// Only this rank knows of that end.
  void note_end(int culprit, const std::string& reason) { latch_.note_end(culprit, reason); }

  const char* name() const override { return backend_->name(); }
  std::string describe() const override { return backend_->describe(); }
  int max_polls() const override { return backend_->max_polls(); }
  void do_start(const Collective& collective) override {
    ++started_;
    backend_->do_start(collective);
  }
  bool do_prefetch_signature(const Collective& next, bool input_is_ready) override {
    return backend_->do_prefetch_signature(next, input_is_ready);
  }
  Advance do_advance() override {
    const Advance result = advance(
        started_, [&] { return backend_->do_advance(); }, [&](int rank) { return backend_->do_needs(rank); });
    if (result == Advance::kDone) completed_ = started_;
    return result;
  }
  void do_start_p2p(P2pRequest& transfer) override { backend_->do_start_p2p(transfer); }
  Advance do_advance_p2p() override {
    return advance(
        0, [&] { return backend_->do_advance_p2p(); }, [&](int rank) { return backend_->do_needs_p2p(rank); });
  }
  void do_sleep(FunctionRef<bool()> changed, Clock::time_point until) override {
    backend_->do_sleep(changed, std::min(until, again_));
  }
  void do_wake() override { backend_->do_wake(); }
  void do_cancel() override { backend_->do_cancel(); }
  bool do_needs(int rank) override { return backend_->do_needs(rank); }
  bool do_needs_p2p(int rank) override { return backend_->do_needs_p2p(rank); }
  LastStarted do_last_started(int rank) const override { return backend_->do_last_started(rank); }
  std::vector<int> do_awaited() override { return backend_->do_awaited(); }

 private:
  template <class F>
  Advance advance(int64_t number, const F& f, FunctionRef<bool(int)> needs) {
    if (const Advance result = f(); result != Advance::kIdle) return result;
    latch_.read(known_);
    again_ = Clock::time_point::max();
    if (const Advance result = f(); result != Advance::kIdle) return result;
    if (const auto failure = still_needed({number, needs}, known_, *backend_, options_, Clock::now(), again_)) {
      throw failure->error();
    }
    return Advance::kIdle;
  }

  const ProcessGroupOptions options_;
  const std::unique_ptr<Backend> backend_;
  FailureLatch latch_;
  FailureLatch::Known known_;
  Clock::time_point again_ = Clock::time_point::max();
  int64_t started_ = 0;
  int64_t completed_ = 0;
};

using MakeBackend = std::function<std::unique_ptr<Backend>(const ProcessGroupOptions&)>;

/// Advances the started collective until it is complete; throws StateError after a minute.
inline void finish_collective(Backend& backend) {
  const auto deadline = Backend::Clock::now() + std::chrono::seconds(60);
  for (bool done = false; !done;) {
    backend.do_sleep(
        [&] {
          Advance result = Advance::kMoved;
          while (result == Advance::kMoved) result = backend.do_advance();
          done = result == Advance::kDone;
          return done;
        },
        deadline);
    if (!done && Backend::Clock::now() > deadline) throw StateError("a collective did not end");
  }
}

inline void run_collective(Backend& backend, const Collective& collective) {
  backend.do_start(collective);
  finish_collective(backend);
}

/// Advances the messages until they are complete; throws StateError after a minute.
inline void run_transfers(Backend& backend, std::vector<P2pRequest>& transfers) {
  const auto deadline = Backend::Clock::now() + std::chrono::seconds(60);
  for (P2pRequest& transfer : transfers) backend.do_start_p2p(transfer);
  const auto all_done = [&] {
    for (const P2pRequest& transfer : transfers) {
      if (!transfer.done) return false;
    }
    return true;
  };
  while (!all_done()) {
    backend.do_sleep(
        [&] {
          while (backend.do_advance_p2p() != Advance::kIdle) {
          }
          return all_done();
        },
        deadline);
    if (!all_done() && Backend::Clock::now() > deadline) throw StateError("a message did not end");
  }
}

/// Runs f(backend, rank) on `world_size` threads; an exception aborts the other ranks. Returns each rank's
/// error text, empty without error.
inline std::vector<std::string> try_backend_ranks(int world_size, const MakeBackend& make,
                                                  const std::function<void(RankBackend&, int)>& f,
                                                  const ProcessGroupOptions& common = {}) {
  std::vector<std::string> errors(static_cast<size_t>(world_size));
  const std::shared_ptr<Store> store = make_memory_store();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      std::string& error = errors[static_cast<size_t>(rank)];
      try {
        ProcessGroupOptions options = common;
        options.store = store;
        options.rank = rank;
        options.world_size = world_size;
        options.thread_ranks = true;
        if (options.timeout == ProcessGroupOptions{}.timeout) options.timeout = std::chrono::seconds(60);
        RankBackend backend(options, make(options));
        try {
          f(backend, rank);
        } catch (const GroupError& e) {
          error = e.what();
          backend.fail(e);
        } catch (const std::exception& e) {
          error = e.what();
          backend.fail(rank, e.what());
        }
      } catch (const std::exception& e) {
        error = e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// Runs f(backend, rank) on `world_size` threads; throws StateError with the first error.
inline void run_backend_ranks(int world_size, const MakeBackend& make,
                              const std::function<void(RankBackend&, int)>& f) {
  const std::vector<std::string> errors = try_backend_ranks(world_size, make, f);
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank].empty()) throw StateError(str("rank ", rank, ": ", errors[rank]));
  }
}

}}}  // namespace tandem::v0::distributed
