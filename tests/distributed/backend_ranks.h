// Thread ranks, each with a backend that the test drives directly.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/store.h>

namespace tandem { inline namespace v0 { namespace distributed {

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
                                                  const std::function<void(Backend&, int)>& f,
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
        const std::unique_ptr<Backend> backend = make(options);
        try {
          f(*backend, rank);
        } catch (const GroupError& e) {
          error = e.what();
          backend->do_abort(e.culprit(), e.reason());
        } catch (const std::exception& e) {
          error = e.what();
          backend->do_abort(rank, e.what());
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
inline void run_backend_ranks(int world_size, const MakeBackend& make, const std::function<void(Backend&, int)>& f) {
  const std::vector<std::string> errors = try_backend_ranks(world_size, make, f);
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank].empty()) throw StateError(str("rank ", rank, ": ", errors[rank]));
  }
}

}}}  // namespace tandem::v0::distributed
