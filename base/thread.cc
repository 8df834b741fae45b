#include <tandem/base/thread.h>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <vector>

#include <tandem/base/parallel_for.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>

namespace tandem::inline v0 {

namespace {

/// Blocks all signals for the calling thread, and so for threads that it starts.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::thread start_thread(std::function<void()> f) {
  const SignalsBlocked blocked;
  return std::thread(std::move(f));
}

void use_all_cores() {
  cpu_set_t process_mask;
  if (sched_getaffinity(getpid(), sizeof(process_mask), &process_mask) == 0) {
    sched_setaffinity(0, sizeof(process_mask), &process_mask);
  }
}

void run_together(int n, FunctionRef<void(int i)> fn) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(n));
  RankContext share = RankContext::current();
  share.num_threads = std::max(1, num_threads() / std::max(1, n));
  const auto run = [&](int i) {
    RankContext mine = share;
    if (i > 0) mine.trace_thread = kFirstTogetherThread + i;
    const RankContext::Use use(mine);
    try {
      fn(i);
    } catch (...) {
      errors[static_cast<size_t>(i)] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(n));
  for (int i = 1; i < n; ++i) {
    try {
      threads.push_back(start_thread([&run, i] {
        use_all_cores();
        run(i);
      }));
    } catch (...) {
      run(i);  // the system gives no more threads, or no memory for one
    }
  }
  if (n > 0) run(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

void without_signals(const std::function<void()>& f) {
  const SignalsBlocked blocked;
  f();
}

}  // namespace tandem::inline v0
