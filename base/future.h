// Results that arrive later.  Future<T> is the consumer's end, Promise<T> the producer's; Work is what a collective
// returns: a Future<void> that can also help to finish what it waits for.
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

/// Shared by the two ends.  Safe from many threads.  Invariant: once `done`, value and error do not change.
template <class T>
struct FutureState {
  std::mutex mutex;
  std::condition_variable changed;
  int num_futures = 0;  // that refer to it: value and error go with the last of them
  bool done = false;
  std::optional<T> value;
  std::exception_ptr error;
  std::vector<std::function<void()>> continuations;
  /// Runs part of what is awaited on the waiting thread; returns false where there is nothing left to help with.
  std::function<bool(std::chrono::steady_clock::time_point deadline)> help;
  /// Asks the producer to stop; returns whether it will.
  std::function<bool()> cancel;
  /// Called by each waiter on its thread once the result is there.
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

/// A future's reference.  The producer may hold the state for some moments after it has finished it, on a thread that may not
/// run just then; what it finished must not take memory for as long.
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
    std::optional<T> value;  // destroyed outside of the lock
    std::exception_ptr error;
    std::lock_guard lock(state_->mutex);
    state_->num_futures += change;
    if (state_->num_futures > 0) return;
    value.swap(state_->value);
    if (state_->error == nullptr) return;
    // What was thrown may be read by its receiver for long.  That it failed is remembered.
    error = std::exchange(
        state_->error,
        std::make_exception_ptr(StateError("Future: it failed, and the failure is gone with the last future")));
  }
  std::shared_ptr<FutureState<T>> state_;
};

}  // namespace detail

template <class T>
class Promise;

/// The consumer's end of a result.  Copies refer to the same result, whose value goes with the last of them; safe from many
/// threads.
template <class T>
class [[nodiscard]] Future {
 public:
  using Value = std::conditional_t<std::is_void_v<T>, detail::Unit, T>;

  Future() = default;
  bool valid() const { return state_.get() != nullptr; }

  bool is_completed() const {
    std::lock_guard lock(state().mutex);
    return state().done;
  }

  /// The failure, or null where there is none (yet).
  std::exception_ptr exception() const {
    std::lock_guard lock(state().mutex);
    return state().error;
  }

  /// Blocks until completed; rethrows the failure.
  void wait() const {
    wait_until(std::chrono::steady_clock::time_point::max());
    rethrow();
  }

  /// Blocks for `timeout` at most; false if it passed first.  Rethrows the failure.
  bool wait(std::chrono::nanoseconds timeout) const {
    using Clock = std::chrono::steady_clock;
    const auto now = Clock::now();
    const bool forever = timeout > Clock::time_point::max() - now;  // the sum would overflow
    if (!wait_until(forever ? Clock::time_point::max() : now + timeout)) return false;
    rethrow();
    return true;
  }

  /// Does at once what waits do when the result is there (see Promise::set_join), for who looks at completion later; may throw.
  void join() const {
    if (state().join) state().join();
  }

  /// Blocks, then returns the value; rethrows the failure.
  T get() const {
    wait();
    if constexpr (!std::is_void_v<T>) {
      TANDEM_CHECK(StateError, state().value, "Future: the value is gone with the last future");
      return *state().value;
    }
  }

  /// Asks that no more be done for this result, of which other copies of the future wait too.  True: it ends, or has
  /// ended, with CancelledError, at the latest when what is being done this moment is done.  False: it is complete, has
  /// failed, or cannot be cancelled (a collective, in which other ranks take part).
  bool cancel() const {
    auto& s = state();
    return s.cancel && s.cancel();
  }

  /// Runs f() when completed, with or without failure: at once on this thread, or later on the completing one.  f does not
  /// throw: get() of a future that failed does, so look at exception() first.
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
    TANDEM_CHECK(StateError, state_.get() != nullptr,
                 "Future: has no result to wait for (default-constructed or moved from)");
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

/// The producer's end.  The first of set_value and set_exception counts; later ones are ignored.
template <class T>
class Promise {
 public:
  using Value = typename Future<T>::Value;

  Promise() : state_(std::make_shared<detail::FutureState<Value>>()) {}
  Future<T> future() const { return Future<T>(state_); }
  void set_value(Value value = Value()) const { state_->finish(std::move(value), nullptr); }
  void set_exception(std::exception_ptr error) const { state_->finish(std::nullopt, std::move(error)); }
  /// Before the future is handed out: what a waiter may do to speed the result up.
  void set_help(std::function<bool(std::chrono::steady_clock::time_point)> help) { state_->help = std::move(help); }
  /// Before the future is handed out: what each wait() and get() does on its own thread when the result is there, as where a GPU's
  /// streams are put in order; it may throw.
  void set_join(std::function<void()> join) { state_->join = std::move(join); }
  /// Before the future is handed out: how a consumer stops the production; returns whether it will stop.
  void set_cancel(std::function<bool()> cancel) { state_->cancel = std::move(cancel); }

 private:
  std::shared_ptr<detail::FutureState<Value>> state_;
};

/// Handle of an asynchronous collective: wait(), wait(timeout), is_completed(), exception(), then().
using Work = Future<void>;

}}  // namespace tandem::v0
