#include <algorithm>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/launch/context_access.h>
#include <tandem/distributed/launch/rank_function.h>
#include <tandem/distributed/store/memory_store.h>

namespace tandem::inline v0::distributed {

namespace {

/// What the ranks' threads share.  `mutex` guards the exceptions.
struct ThreadJob {
  int num_ranks;
  const RankFunction& f;
  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  std::mutex mutex = {};
  std::exception_ptr root_cause = {};
  std::exception_ptr consequence = {};  // shown where a rank announced a failure without throwing
};

void run_rank(ThreadJob& job, int rank) {
  RankContext rank_context;
  const RankContext::Use use(rank_context);
  const auto context =
      ContextAccess::install(rank_context, {.rank = rank,
                                            .world_size = job.num_ranks,
                                            .local_rank = rank,
                                            .local_world_size = job.num_ranks,
                                            .num_threads = std::max(1, available_cores() / job.num_ranks),
                                            .thread_ranks = true,
                                            .store = job.store});
  const RankOutcome outcome = call_rank_function(job.f, *context, job.store->failures());
  if (outcome.error) {
    {
      std::lock_guard lock(job.mutex);
      std::exception_ptr& kept = outcome.consequence ? job.consequence : job.root_cause;
      if (!kept) kept = outcome.error;
    }
    job.store->announce_failure(rank, outcome.text);
  }
  ContextAccess::drop_group(*context);
  job.store->leave(rank);
}

}  // namespace

void run_threads(int n, const RankFunction& f) {
  TANDEM_CHECK(ValueError, n >= 1 && n <= 1024, "run_threads: expected 1 to 1024 ranks, got ", n);
  ThreadJob job{.num_ranks = n, .f = f};
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < n; ++rank) threads.emplace_back([&job, rank] { run_rank(job, rank); });
  } catch (const std::system_error& e) {
    for (int rank = static_cast<int>(threads.size()); rank < n; ++rank) {
      job.store->announce_failure(rank, str("its thread could not be started: ", e.what()));
    }
    for (std::thread& thread : threads) thread.join();
    throw;
  }
  for (std::thread& thread : threads) thread.join();
  if (job.root_cause) std::rethrow_exception(job.root_cause);
  if (job.consequence) std::rethrow_exception(job.consequence);
}

}  // namespace tandem::inline v0::distributed
