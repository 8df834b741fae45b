// Ranks of a shared-memory backend, driven directly: the test builds the collectives and messages.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/shm/shm_backend.h>
#include <tandem/distributed/store.h>
#include <tandem/tests/distributed/backend_ranks.h>
#include <tandem/tests/support/sanitizers.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// One rank, driven as ProcessGroup drives it.
class ShmRank {
 public:
  ShmRank(const ProcessGroupOptions& options, const shm::Tuning& tuning = {})
      : rank(options.rank),
        size(options.world_size),
        backend(std::make_unique<RankBackend>(options, shm::make_shm_backend(options, tuning))) {}

  /// Runs one collective until it is complete.
  void run(Collective collective) {
    collective.seq = ++seq_;
    finish([&] { return step(collective); });
  }

  /// Starts one collective and advances it `moves` times, but does not complete it.
  void run_partly(Collective collective, int moves) {
    collective.seq = ++seq_;
    for (int moved = 0; moved < moves;) {
      const Advance last = step(collective);
      TANDEM_CHECK(StateError, last != Advance::kDone, "the collective is over");
      moved += last == Advance::kMoved;
    }
  }

  /// Runs messages until they are complete.
  void run(std::vector<P2pRequest*> transfers) {
    for (P2pRequest* transfer : transfers) start(*transfer);
    wait(transfers);
  }
  void start(P2pRequest& transfer) {
    transfer.seq = ++transfer_seq_;
    guarded([&] {
      backend->do_start_p2p(transfer);
      return Advance::kMoved;
    });
  }
  void wait(const std::vector<P2pRequest*>& transfers) {
    finish([&] {
      const Advance moved = guarded([&] { return backend->do_advance_p2p(); });
      for (const P2pRequest* transfer : transfers) {
        if (!transfer->done) return moved;
      }
      return Advance::kDone;
    });
  }

  const int rank;
  const int size;
  const std::unique_ptr<RankBackend> backend;

 private:
  /// Aborts the peers with the reason, as ProcessGroup does.
  template <class F>
  Advance guarded(const F& f) {
    try {
      return f();
    } catch (const GroupError& e) {
      backend->fail(e);
      throw;
    }
  }

  Advance step(const Collective& collective) {
    return guarded([&] {
      if (started_ != collective.seq) {
        started_ = collective.seq;
        backend->do_start(collective);
      }
      return backend->do_advance();
    });
  }

  template <class F>
  void finish(const F& advance) {
    for (Advance last = advance(); last != Advance::kDone; last = advance()) {
      if (last != Advance::kIdle) continue;
      bool done = false;
      backend->do_sleep(
          [&] {
            const Advance moved = advance();
            done = moved == Advance::kDone;
            return moved != Advance::kIdle;
          },
          Backend::Clock::now() + std::chrono::seconds(1));
      if (done) return;
    }
  }

  int64_t seq_ = 0;
  int64_t started_ = 0;
  int64_t transfer_seq_ = 0;
};

/// Runs f on `world_size` thread ranks; returns their errors, "" without error.
inline std::vector<std::string> run_shm_threads(int world_size, const shm::Tuning& tuning,
                                                const std::function<void(ShmRank&)>& f) {
  const auto store = make_memory_store();
  std::vector<std::string> thrown(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ShmRank self({.store = store, .rank = rank, .world_size = world_size, .thread_ranks = true}, tuning);
        try {
          f(self);
        } catch (const GroupError&) {
          throw;  // already reported by peers
        } catch (const std::exception& e) {
          self.backend->fail(rank, e.what());
          throw;
        }
      } catch (const std::exception& e) {
        thrown[static_cast<size_t>(rank)] = e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

/// Numbers of ranks of the parameterized tests.
inline std::vector<int> shm_worlds() {
  std::vector<int> worlds = {1, 2, 3, 4};
  if (!testing::kThreadSanitizer) worlds.push_back(7);
  return worlds;
}

}}}  // namespace tandem::v0::distributed
