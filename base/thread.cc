#include <tandem/base/thread.h>

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>
#include <vector>

#include <tandem/base/log.h>
#include <tandem/base/parallel_for.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>

namespace tandem { inline namespace v0 {

namespace {

/// Blocks all signals of the calling thread; threads that it starts inherit this.
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

/// Whether a thread's stack can be allocated. If not, pthread_create fails with EAGAIN, as it does at the thread limit.
bool has_room_for_stack() {
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) != 0) return true;
  size_t num_bytes = 0;
  pthread_attr_getstacksize(&attributes, &num_bytes);
  pthread_attr_destroy(&attributes);
  void* const stack = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return false;
  munmap(stack, num_bytes);
  return true;
}

[[noreturn]] void throw_no_thread(const std::system_error& e) {
  const int error = e.code().value() == EAGAIN && !has_room_for_stack() ? ENOMEM : e.code().value();
  throw ResourceError(str("cannot start a thread ", resource_limit_text(error)));
}

constinit std::atomic<bool> has_warned{false};

}  // namespace

std::thread start_program_thread(std::function<void()> f) {
  try {
    return std::thread(std::move(f));
  } catch (const std::system_error& e) {
    throw_no_thread(e);
  } catch (const std::bad_alloc&) {
    throw ResourceError(str("cannot start a thread ", resource_limit_text(ENOMEM)));
  }
}

std::thread start_thread(std::function<void()> f) {
  const SignalsBlocked blocked;
  return start_program_thread(std::move(f));
}

std::string resource_limit_text(int error) {
  std::string text = str("(", std::strerror(error), ")");
  if (error == EAGAIN) text += ": the limit on processes and threads (ulimit -u, cgroup pids.max) is reached; ";
  if (error == ENOMEM) text += ": the memory limit (ulimit -v, cgroup memory.max) is reached; ";
  if (error == EPERM) text += ": an old container runtime may block clone3; update it";
  if (error == EAGAIN || error == ENOMEM) text += "raise it, or use fewer ranks, workers and threads";
  return text;
}

void warn_fewer_threads(const char* operation, const ResourceError& e) {
  if (!has_warned.exchange(true))
    log(LogLevel::kWarning, operation, ": ", e.what(), "\n  continues with fewer threads");
}

void use_all_cores() {
  cpu_set_t process_mask;
  if (sched_getaffinity(getpid(), sizeof(process_mask), &process_mask) == 0) {
    sched_setaffinity(0, sizeof(process_mask), &process_mask);
  }
}

void run_concurrently(int n, FunctionRef<void(int i)> fn) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(n));
  RankContext share = RankContext::current();
  share.num_threads = std::max(1, num_threads() / std::max(1, n));
  const auto run = [&](int i) {
    RankContext mine = share;
    if (i > 0) mine.trace_thread = kFirstConcurrentThread + i;
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
    } catch (const ResourceError& e) {
      warn_fewer_threads("run_concurrently", e);
      run(i);
    }
  }
  if (n > 0) run(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}}  // namespace tandem::v0
