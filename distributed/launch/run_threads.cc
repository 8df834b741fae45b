#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/thread.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/launch/context_access.h>
#include <tandem/distributed/launch/rank_function.h>
#include <tandem/distributed/rendezvous/memory_store.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/generator.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// State shared by the threads of the ranks. `mutex` guards the members after it.
struct ThreadJob {
  const std::vector<Device>& devices;  // of the ranks
  std::chrono::milliseconds timeout;
  const RankFunction& f;
  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  std::mutex mutex = {};
  ThreadJobResult root_cause = {};
  ThreadJobResult secondary = {};  // reported if a rank announced a failure without throwing
  bool stopped = false;
};

void run_rank(ThreadJob& job, int rank) {
  RankContext rank_context;
  const RankContext::Use use(rank_context);
  const int num_ranks = static_cast<int>(job.devices.size());
  const Device device = job.devices[static_cast<size_t>(rank)];
  set_rank_device(device);  // makes random numbers depend on the rank, not on the device
  const auto context = ContextAccess::install(rank_context, {.rank = rank,
                                                             .world_size = num_ranks,
                                                             .local_rank = rank,
                                                             .local_world_size = num_ranks,
                                                             .num_threads = std::max(1, available_cores() / num_ranks),
                                                             .device = device,
                                                             .thread_ranks = true,
                                                             .timeout = job.timeout,
                                                             .store = job.store});
  const RankOutcome outcome = call_rank_function(job.f, *context, job.store->failures());
  {
    std::lock_guard lock(job.mutex);
    ThreadJobResult& result = outcome.is_secondary ? job.secondary : job.root_cause;
    if (outcome.error && !result.error) result = {.error = outcome.error, .rank = rank, .text = outcome.text};
    job.stopped = job.stopped || context->should_stop();
  }
  if (outcome.error) job.store->announce_failure(rank, outcome.text);
  ContextAccess::drop_group(*context);
  job.store->leave(rank);
}

}  // namespace

ThreadJobResult run_thread_ranks(const std::vector<Device>& devices, std::chrono::milliseconds timeout,
                                 const RankFunction& f) {
  const int n = static_cast<int>(devices.size());
  TANDEM_CHECK(ValueError, n >= 1 && n <= 1024, "run_threads: expected 1 to 1024 ranks, got ", n);
  for (const Device device : devices)
    static_cast<void>(memory_stats(device));  // throws DeviceError if the device does not exist
  ThreadJob job{.devices = devices, .timeout = timeout, .f = f};
  std::vector<std::thread> threads;
  threads.reserve(devices.size());
  try {
    for (int rank = 0; rank < n; ++rank) {
      threads.push_back(start_program_thread([&job, rank] { run_rank(job, rank); }));
    }
  } catch (const std::exception& e) {
    for (int rank = static_cast<int>(threads.size()); rank < n; ++rank) {
      job.store->announce_failure(rank, error_text(e));
    }
    for (std::thread& thread : threads) thread.join();
    throw;
  }
  for (std::thread& thread : threads) thread.join();
  ThreadJobResult result = job.root_cause.error ? job.root_cause : job.secondary;
  result.stopped = job.stopped;
  return result;
}

namespace {

void run_or_throw(const std::vector<Device>& devices, const RankFunction& f) {
  const ThreadJobResult result = run_thread_ranks(devices, ContextOptions().timeout, f);
  if (result.error) std::rethrow_exception(result.error);
}

}  // namespace

void run_threads(int n, const RankFunction& f) {
  TANDEM_CHECK(ValueError, n >= 1, "run_threads: expected 1 to 1024 ranks, got ", n);
  run_or_throw(std::vector<Device>(static_cast<size_t>(n)), f);
}

void run_threads(const std::vector<Device>& devices, const RankFunction& f) { run_or_throw(devices, f); }

}}}  // namespace tandem::v0::distributed
