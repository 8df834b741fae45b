#include <tandem/distributed/launch/rank_function.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>

#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/group/flight_recorder.h>
#include <tandem/distributed/launch/context_access.h>
#include <tandem/distributed/launch/interrupts.h>
#include <tandem/distributed/launch/job_store.h>
#include <tandem/distributed/rendezvous/memory_store.h>
#include <tandem/distributed/rendezvous/missing_ranks.h>
#include <tandem/tensor/generator.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

// How long a failed rank keeps its store running for ranks that have not joined yet, so that they receive the failure.
constexpr std::chrono::milliseconds kLateJoinGrace{30000};

// How long a rank that failed because of a peer waits for that peer to announce its own failure.
constexpr std::chrono::milliseconds kRootCauseGrace{500};

void print_failure(int rank, int world_size, const std::string& text) {
  std::fprintf(stderr, "%s\n", describe_failure(str("rank ", rank, " of ", world_size), "", text).c_str());
}

/// Exit status of a rank whose function returned: 130 or 143 if a signal stopped the job, else 0.
int status_of(bool should_stop) {
  if (!should_stop && interrupt_signal() == 0) return 0;
  return 128 + (interrupt_signal() != 0 ? interrupt_signal() : SIGTERM);
}

int run_only_rank(std::chrono::milliseconds timeout, Device device, const RankFunction& f) {
  RankContext rank_context = RankContext::current();
  const RankContext::Use use(rank_context);
  if (!device.is_cpu()) set_rank_device(device);
  const auto store = std::make_shared<MemoryStore>();
  const auto context = ContextAccess::install(
      rank_context, {.num_threads = rank_context.num_threads, .device = device, .timeout = timeout, .store = store});
  const RankOutcome outcome = call_rank_function(f, *context, store->failures());
  ContextAccess::drop_group(*context);
  if (!outcome.error) return status_of(context->should_stop());
  print_failure(0, 1, outcome.text);
  return 1;
}

/// Waits until the store reports a failure. A peer's abort arrives through shared memory earlier than its announcement
/// through the store; waiting lets the root cause be reported first.
void wait_for_failure(FailureBoard& failures, std::chrono::milliseconds time) {
  std::mutex mutex;
  std::condition_variable changed;
  bool failed = false;
  const HookHandle watch = failures.on_failure([&](int, const std::string&) {
    if (!failures.first_failure()) return;  // a rank left the job
    std::lock_guard lock(mutex);
    failed = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait_for(lock, time, [&] { return failed; });
}

/// Announces the failure to the other ranks, unless it is secondary. Prints the failure if the launcher does not.
void report_failure(const RankEnvironment& env, const RankOutcome& outcome, TcpStore& store) {
  if (outcome.is_secondary) {
    // Print failures that no other process reports: the death of a rank without tandem's launcher, or the loss of this
    // rank's own connection.
    const auto first = store.failures().first_failure();
    if (first && (first->rank < 0 || (!env.launched_here && first->end != RankEnd::kFailed))) {
      print_failure(env.rank, env.world_size, outcome.text);
    }
    return;
  }
  bool announced = false;
  try {
    store.announce_failure(env.rank, outcome.text);
    announced = true;
  } catch (const CommError&) {
    // The store is lost: this process prints the failure.
  }
  if (!announced || !env.launched_here) print_failure(env.rank, env.world_size, outcome.text);
}

}  // namespace

RankOutcome call_rank_function(const RankFunction& f, Context& context, FailureBoard& failures) {
  RankOutcome outcome;
  try {
    f(context);
    return outcome;
  } catch (const CommError& e) {
    // The rank whose error names the missing ranks waits for a shorter time, so its failure is recorded first. Ranks
    // that were only notified of the failure are recorded later.
    const bool names_missing = !headline_of(e).empty();
    if (e.peer() >= 0 && e.peer() != context.rank())
      wait_for_failure(failures, names_missing ? kRootCauseGrace / 2 : kRootCauseGrace);
    const auto first = failures.first_failure();
    outcome.is_secondary = first && first->rank != context.rank();
    outcome.text = failure_to_announce(e);
    outcome.is_comm_error = true;
    outcome.error = names_missing ? std::make_exception_ptr(CommError(outcome.text, e.rank(), e.peer(), e.seq()))
                                  : std::current_exception();
  } catch (const std::exception& e) {
    outcome.text = error_text(e);
    outcome.error = std::current_exception();
  } catch (...) {
    outcome.text = "an exception that is not a std::exception";
    outcome.error = std::current_exception();
  }
  return outcome;
}

int run_device_ranks(const std::vector<Device>& devices, std::chrono::milliseconds timeout, const RankFunction& f) {
  const InterruptHandlers interrupts(true);
  try {
    const ThreadJobResult result = run_thread_ranks(devices, timeout, f);
    if (!result.error) return status_of(result.stopped);
    print_failure(result.rank, static_cast<int>(devices.size()), result.text);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "launch: %s\n", error_text(e).c_str());
  }
  return 1;
}

int run_rank_process(const RankEnvironment* environment, std::chrono::milliseconds timeout, Device device,
                     const RankFunction& f) {
  const InterruptHandlers interrupts(environment == nullptr || !environment->launched_here);
  if (environment == nullptr) return run_only_rank(timeout, device, f);
  const RankEnvironment& env = *environment;
  RankContext rank_context = RankContext::current();
  const RankContext::Use use(rank_context);
  if (!device.is_cpu()) set_rank_device(device);
  const auto limit = timeout.count() > 0 ? timeout : kNoLimit;
  rank_context.rank = env.rank;  // before joining, because log lines of the store show it
  rank_context.world_size = env.world_size;

  JobStore job;
  try {
    job = join_job_store(env, timeout);
  } catch (const std::exception& e) {
    print_failure(env.rank, env.world_size, error_text(e));
    return 1;
  }
  const std::shared_ptr<TcpStore>& store = job.store;
  const int share = std::max(1, available_cores() / env.local_world_size);
  const auto context =
      ContextAccess::install(rank_context, {.rank = env.rank,
                                            .world_size = env.world_size,
                                            .local_rank = env.local_rank,
                                            .local_world_size = env.local_world_size,
                                            .num_threads = env.num_threads > 0 ? env.num_threads : share,
                                            .device = device,
                                            .timeout = timeout,
                                            .store = store});
  const RankOutcome outcome = call_rank_function(f, *context, store->failures());
  const int status = outcome.error ? 1 : status_of(context->should_stop());
  if (outcome.error) {
    // Before the other ranks end, and the launcher this one.
    FlightRecorder::write_all((outcome.is_comm_error ? "" : kRankThrew) + outcome.text, true);
    report_failure(env, outcome, *store);
    store->leave();  // before the group is destroyed, which waits for a store whose host is stopped
  }
  ContextAccess::drop_group(*context);
  if (!outcome.error) store->leave();
  // Keep the store until the other ranks have left, so that ranks that join late receive the failure.
  if (job.server) job.server->wait_until_empty(outcome.error ? std::min(limit, kLateJoinGrace) : limit, true);
  return status;
}

}}}  // namespace tandem::v0::distributed
