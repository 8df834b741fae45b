// Futures. Future<T> is the consumer's end, Promise<T> the producer's. Work, the handle of an asynchronous collective,
// is a Future<void>. A thread that waits for a future may run parts of the operation that produces the result.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

namespace detail {

struct Unit {};

/// Shared state of both ends. Thread-safe. Invariant: once `done`, value and error change only when the last future
/// releases them.
template <class T>
struct FutureState {
  std::mutex mutex;
  std::condition_variable changed;
  int num_futures = 0;  // the last of them releases value and error
  bool done = false;
  std::optional<T> value;
  std::exception_ptr error;
  std::vector<std::function<void()>> continuations;
  /// Runs part of the awaited operation on the waiting thread; returns false if no part is left.
  std::function<bool(std::chrono::steady_clock::time_point deadline)> help;
  /// Requests that the producer stops; returns whether it will stop.
  std::function<bool()> cancel;
  /// Called by each waiting thread after completion.
  std::function<void()> join;

  void finish(std::optional<T> result, std::exception_ptr failure) {
    std::vector<std::function<void()>> run;
    {
      std::lock_guard lock(mutex);
      if (done) return;
      value = std::move(result);
      error = std::move(failure);
      done = true;
      run.swap(continuations);
      changed.notify_all();
    }
    for (auto& f : run) f();
  }
};

/// A future's reference to the state. The producer may keep the state alive for a while after completion (its thread
/// may be descheduled), so value and error are released with the last future, not with the state.
template <class T>
class FutureReference {
 public:
  FutureReference() = default;
  explicit FutureReference(std::shared_ptr<FutureState<T>> state) : state_(std::move(state)) { count(1); }
  FutureReference(const FutureReference& other) : FutureReference(other.state_) {}
  FutureReference(FutureReference&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  FutureReference& operator=(FutureReference other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~FutureReference() { count(-1); }
  FutureState<T>* get() const { return state_.get(); }

 private:
  void count(int change) {
    if (state_ == nullptr) return;
    std::optional<T> value;  // destroyed without the lock
    std::exception_ptr error;
    std::lock_guard lock(state_->mutex);
    state_->num_futures += change;
    if (state_->num_futures > 0) return;
    value.swap(state_->value);
    if (state_->error == nullptr) return;
    // The state keeps the fact of the failure, but not the exception object.
    error = std::exchange(state_->error,
                          std::make_exception_ptr(
                              StateError("Future: the operation failed; its error was released with the last Future")));
  }
  std::shared_ptr<FutureState<T>> state_;
};

}  // namespace detail

template <class T>
class Promise;

/// The consumer's end of a result. Copies refer to the same result; the last one releases its value. Thread-safe.
template <class T>
class [[nodiscard]] Future {
 public:
  /// Type of the stored value: T, or an empty type for void.
  using Value = std::conditional_t<std::is_void_v<T>, detail::Unit, T>;

  Future() = default;
  bool valid() const { return state_.get() != nullptr; }  ///< whether the future refers to a result

  /// Whether the operation has succeeded, failed or been cancelled. Does not block.
  bool is_completed() const {
    std::lock_guard lock(state().mutex);
    return state().done;
  }

  /// The failure; null if the operation succeeded or has not completed.
  std::exception_ptr exception() const {
    std::lock_guard lock(state().mutex);
    return state().error;
  }

  /// Blocks until completed; rethrows the failure.
  void wait() const {
    wait_until(std::chrono::steady_clock::time_point::max());
    rethrow();
  }

  /// Blocks for at most `timeout`; returns false on timeout. Rethrows the failure.
  bool wait(std::chrono::nanoseconds timeout) const {
    using Clock = std::chrono::steady_clock;
    const auto now = Clock::now();
    const bool unlimited = timeout > Clock::time_point::max() - now;  // the sum would overflow
    if (!wait_until(unlimited ? Clock::time_point::max() : now + timeout)) return false;
    rethrow();
    return true;
  }

  /// Runs the join action (Promise::set_join) now, without waiting for completion. For callers that poll
  /// is_completed(). May throw.
  void join() const {
    if (state().join) state().join();
  }

  /// Blocks until completed, then returns the value; rethrows the failure.
  T get() const {
    wait();
    if constexpr (!std::is_void_v<T>) {
      TANDEM_CHECK(StateError, state().value, "Future: the value was released with the last Future");
      return *state().value;
    }
  }

  /// Requests cancellation, for all copies of this future. Returns true if the result is or will be CancelledError;
  /// parts that are already running finish first. Returns false if the operation has completed or failed, or cannot be
  /// cancelled (a collective, because other ranks take part in it).
  bool cancel() const {
    auto& s = state();
    return s.cancel && s.cancel();
  }

  /// Runs f() after the operation has succeeded or failed: immediately on this thread if it has already completed, else
  /// later on the thread that completes it. f must not throw; get() of a failed future throws, so check exception()
  /// first.
  void then(std::function<void()> f) const {
    {
      std::lock_guard lock(state().mutex);
      if (!state().done) {
        state().continuations.push_back(std::move(f));
        return;
      }
    }
    f();
  }

 private:
  friend class Promise<T>;
  explicit Future(const std::shared_ptr<detail::FutureState<Value>>& state) : state_(state) {}

  detail::FutureState<Value>& state() const {
    TANDEM_CHECK(StateError, state_.get() != nullptr, "Future: not valid (default-constructed or moved from)");
    return *state_.get();
  }
  bool wait_until(std::chrono::steady_clock::time_point deadline) const {
    auto& s = state();
    if (s.help) {
      while (!is_completed() && s.help(deadline)) {
      }
    }
    std::unique_lock lock(s.mutex);
    if (deadline == std::chrono::steady_clock::time_point::max()) {
      s.changed.wait(lock, [&] { return s.done; });
      return true;
    }
    return s.changed.wait_until(lock, deadline, [&] { return s.done; });
  }
  void rethrow() const {
    std::exception_ptr error = exception();
    if (error) std::rethrow_exception(error);
    join();
  }

  detail::FutureReference<Value> state_;
};

/// The producer's end. The first call of set_value or set_exception counts; later calls are ignored.
template <class T>
class Promise {
 public:
  /// Type of the stored value: T, or an empty type for void.
  using Value = typename Future<T>::Value;

  Promise() : state_(std::make_shared<detail::FutureState<Value>>()) {}
  /// A future of this result. May be called any number of times.
  Future<T> future() const { return Future<T>(state_); }
  /// Completes the operation with a value and runs the continuations.
  void set_value(Value value = Value()) const { state_->finish(std::move(value), nullptr); }
  /// Completes the operation with a failure and runs the continuations.
  void set_exception(std::exception_ptr error) const { state_->finish(std::nullopt, std::move(error)); }
  /// Sets a function that waiting threads call; it runs a part of the operation. Call before the future is used.
  void set_help(std::function<bool(std::chrono::steady_clock::time_point)> help) { state_->help = std::move(help); }
  /// Sets a function that each wait() and get() runs on its own thread after completion, for example to order the
  /// streams of a GPU. It may throw. Call before the future is used.
  void set_join(std::function<void()> join) { state_->join = std::move(join); }
  /// Sets the function behind Future::cancel; it returns whether the operation will stop. Call before the future is
  /// used.
  void set_cancel(std::function<bool()> cancel) { state_->cancel = std::move(cancel); }

 private:
  std::shared_ptr<detail::FutureState<Value>> state_;
};

/// Handle of an asynchronous collective: wait(), wait(timeout), is_completed(), exception(), then().
using Work = Future<void>;

}}  // namespace tandem::v0
