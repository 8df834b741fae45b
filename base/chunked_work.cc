#include <tandem/base/chunked_work.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/base/future.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/thread.h>
#include <tandem/base/trace.h>

namespace tandem { inline namespace v0 {

namespace {

class Run;

/// The threads that run chunks, and the unfinished work.
class CopyWorkers {
 public:
  static CopyWorkers& instance() {
    static CopyWorkers* const workers = new CopyWorkers;  // never destroyed: its threads run until the process ends
    return *workers;
  }

  void add(const std::shared_ptr<Run>& run);

  std::mutex mutex;                 // guards all members below, and the counters of each Run
  std::condition_variable changed;  // notified when a chunk can be taken
  std::deque<std::shared_ptr<Run>> runs;

 private:
  void run_worker(int number);
  bool start_one();

  int num_threads_ = 0;
  int num_idle_ = 0;
};

class Run final : public RunningChunks, public std::enable_shared_from_this<Run> {
 public:
  explicit Run(ChunkWork work) : work_(std::move(work)), context_(RankContext::current()) {
    TANDEM_CHECK(ValueError, work_.num_chunks >= 1 && work_.max_in_flight >= 1, work_.name, ": num_chunks (",
                 work_.num_chunks, ") and max_in_flight (", work_.max_in_flight, ") must be positive");
    context_.num_threads = 1;
    context_.grad_enabled = false;
    context_.autocast = -1;
  }

  bool help() override {
    const std::optional<int64_t> chunk = [&] {
      std::unique_lock lock(CopyWorkers::instance().mutex);
      freed_.wait(lock, [&] { return can_take() || finished_ || stopped() || next_ == work_.num_chunks; });
      return take();
    }();
    if (!chunk) return false;
    run_chunk(*chunk, RankContext::current().trace_thread);
    return true;
  }

  bool cancel() override {
    std::unique_lock lock(CopyWorkers::instance().mutex);
    if (finished_ || error_) return cancelled_;
    cancelled_ = true;
    freed_.notify_all();
    finish_if_over(lock);
    return true;
  }

  // The caller of the next two functions holds the mutex of the copy workers.
  bool can_take() const { return !stopped() && next_ < work_.num_chunks && num_in_flight_ < work_.max_in_flight; }
  std::optional<int64_t> take() {
    if (!can_take()) return std::nullopt;
    ++num_in_flight_;
    return next_++;
  }

  /// Runs a chunk returned by take(); trace_thread is the number of the calling thread in traces.
  void run_chunk(int64_t chunk, int trace_thread) {
    std::exception_ptr error;
    {
      RankContext context = context_;
      context.trace_thread = trace_thread;
      const RankContext::Use use(context);
      try {
        work_.run(chunk);
        if (work_.progress) {
          std::lock_guard lock(progress_mutex_);
          work_.progress(++num_reported_);
        }
      } catch (...) {
        error = std::current_exception();
      }
    }
    std::unique_lock lock(CopyWorkers::instance().mutex);
    --num_in_flight_;
    if (!error) ++num_done_;
    if (error && !stopped()) error_ = std::move(error);  // the first of failure and cancellation counts
    freed_.notify_all();
    finish_if_over(lock);
    // A helping thread may stop helping after this chunk, so a copy worker is notified to take the next one.
    if (lock.owns_lock() && can_take()) CopyWorkers::instance().changed.notify_one();
  }

 private:
  bool stopped() const { return cancelled_ || error_; }

  /// Finishes the work if it is over, and then returns with the lock released.
  void finish_if_over(std::unique_lock<std::mutex>& lock) {
    if (finished_ || num_in_flight_ > 0 || !(stopped() || next_ == work_.num_chunks)) return;
    finished_ = true;
    std::erase(CopyWorkers::instance().runs, shared_from_this());
    std::exception_ptr error = std::move(error_);
    if (!error && cancelled_) {
      error = std::make_exception_ptr(
          CancelledError(str(work_.name, ": cancelled after ", num_done_, " of ", work_.num_chunks, " chunks")));
    }
    const auto finish = std::move(work_.finish);
    {
      const ChunkWork work = std::exchange(work_, {});
      const RankContext context = std::exchange(context_, {});
      lock.unlock();
    }  // captures are destroyed before `finish` announces the end
    if (finish) finish(std::move(error));
  }

  ChunkWork work_;
  RankContext context_;
  std::condition_variable
      freed_;  // wakes help() when fewer chunks are in flight, or no chunk is left; used with the copy workers' mutex
  std::mutex progress_mutex_;
  int64_t num_reported_ = 0;
  int64_t next_ = 0;
  int64_t num_done_ = 0;
  int num_in_flight_ = 0;
  bool cancelled_ = false;
  bool finished_ = false;
  std::exception_ptr error_;
};

void CopyWorkers::add(const std::shared_ptr<Run>& run) {
  {
    std::lock_guard lock(mutex);
    runs.push_back(run);
    if (num_idle_ == 0 && num_threads_ < available_cores()) {
      if (start_one()) ++num_threads_;
    }
    if (num_threads_ > 0) {
      changed.notify_one();
      return;
    }
  }
  while (run->help()) {
  }
}

bool CopyWorkers::start_one() {
  try {
    start_thread([this, number = num_threads_] { run_worker(number); }).detach();
    return true;
  } catch (const ResourceError& e) {
    warn_fewer_threads("chunks", e);
    return false;
  }
}

void CopyWorkers::run_worker(int number) {
  use_all_cores();
  std::unique_lock lock(mutex);
  for (;;) {
    const auto found = std::find_if(runs.begin(), runs.end(), [](const auto& run) { return run->can_take(); });
    if (found == runs.end()) {
      ++num_idle_;
      changed.wait(lock);
      --num_idle_;
      continue;
    }
    // Round robin: all work makes progress concurrently.
    std::shared_ptr<Run> run = *found;
    const std::optional<int64_t> chunk = run->take();
    std::rotate(found, found + 1, runs.end());
    // One wake-up leads to the next while chunks are left.
    const bool more = std::any_of(runs.begin(), runs.end(), [](const auto& other) { return other->can_take(); });
    if (more && num_idle_ > 0) changed.notify_one();
    if (more && num_idle_ == 0 && num_threads_ < available_cores() && start_one()) ++num_threads_;
    lock.unlock();
    run->run_chunk(*chunk, kFirstCopyWorkerThread + number);
    run.reset();  // without the lock: this may be the last reference
    lock.lock();
  }
}

}  // namespace

std::shared_ptr<RunningChunks> start_chunks(ChunkWork work) {
  auto run = std::make_shared<Run>(std::move(work));
  CopyWorkers::instance().add(run);
  return run;
}

void run_chunks(ChunkWork work) {
  const Promise<void> promise;
  work.finish = [promise, finish = std::move(work.finish)](std::exception_ptr error) {
    if (finish) finish(error);
    error ? promise.set_exception(std::move(error)) : promise.set_value();
  };
  const Work done = promise.future();
  // Without concurrency the calling thread needs no copy worker.
  const bool alone = work.num_chunks == 1 || work.max_in_flight == 1;
  const std::shared_ptr<RunningChunks> run =
      alone ? std::make_shared<Run>(std::move(work)) : start_chunks(std::move(work));
  while (run->help()) {
  }
  done.wait();
}

}}  // namespace tandem::v0
