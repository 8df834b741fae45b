#include <tandem/base/future.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

using std::chrono::nanoseconds;

TEST(Future, GetReturnsValueSetByAnotherThread) {
  Promise<std::string> promise;
  const Future<std::string> future = promise.future();
  EXPECT_FALSE(future.is_completed());
  std::thread producer([&] { promise.set_value("done"); });
  EXPECT_EQ(future.get(), "done");
  producer.join();
  EXPECT_TRUE(future.is_completed());
  EXPECT_EQ(future.exception(), nullptr);
  EXPECT_EQ(future.get(), "done");  // a second time, by a copy
  EXPECT_EQ(Future<std::string>(future).get(), "done");
}

TEST(Future, WaitReturnsFalseAtTimeout) {
  const Promise<void> promise;
  const Work work = promise.future();
  EXPECT_FALSE(work.wait(nanoseconds(1)));
  EXPECT_FALSE(work.wait(nanoseconds(0)));
  promise.set_value();
  EXPECT_TRUE(work.wait(nanoseconds(0)));
}

TEST(Future, MaximumTimeoutWaitsForCompletion) {
  Promise<void> promise;
  const Work work = promise.future();
  std::thread producer([&] { promise.set_value(); });
  EXPECT_TRUE(work.wait(nanoseconds::max()));
  producer.join();
}

TEST(Future, WaitAndGetRethrowTheFailure) {
  const Promise<int> promise;
  const Future<int> future = promise.future();
  promise.set_exception(std::make_exception_ptr(CommError("peer 3 is gone", 1, 3)));
  EXPECT_NE(future.exception(), nullptr);
  EXPECT_TRUE(future.is_completed());
  EXPECT_THROW(future.wait(), CommError);
  EXPECT_THROW(future.wait(nanoseconds(1)), CommError);
  try {
    static_cast<void>(future.get());
    FAIL();
  } catch (const CommError& error) {
    EXPECT_EQ(error.peer(), 3);
  }
}

TEST(Future, ValueIsReleasedWithTheLastFuture) {
  const auto value = std::make_shared<int>(3);
  const Promise<std::shared_ptr<int>> promise;
  Future<std::shared_ptr<int>> future = promise.future();
  Future<std::shared_ptr<int>> other = promise.future();
  promise.set_value(value);
  future = {};
  EXPECT_EQ(value.use_count(), 2);
  EXPECT_EQ(other.get(), value);
  other = {};
  EXPECT_EQ(value.use_count(), 1) << "the promise keeps it";
  EXPECT_TRUE(promise.future().is_completed());
  EXPECT_THROW(static_cast<void>(promise.future().get()), StateError);
}

TEST(Future, FailureIsReportedAfterLastFutureIsReleased) {
  const Promise<int> promise;
  Future<int> future = promise.future();
  promise.set_exception(std::make_exception_ptr(std::runtime_error("lost")));
  future = {};
  for (int i = 0; i < 2; ++i) {
    EXPECT_ERROR(StateError, promise.future().wait(),
                 "Future: the operation failed; its error was released with the last Future");
  }
}

TEST(Future, UnreadValueIsKeptForLaterFutures) {
  const Promise<int> promise;
  static_cast<void>(promise.future());  // destroyed before completion
  promise.set_value(3);
  EXPECT_EQ(promise.future().get(), 3);
}

TEST(Future, CancelCallbackIsReleasedWithBothEnds) {
  const auto held = std::make_shared<int>(3);
  for (const bool future_is_last : {true, false}) {
    Future<int> future;
    {
      Promise<int> promise;
      promise.set_cancel([held] { return *held == 0; });
      future = promise.future();
      promise.set_value(1);
      if (!future_is_last) future = {};
    }
    future = {};
    EXPECT_EQ(held.use_count(), 1);
  }
}

TEST(Future, CancelInvokesTheProducersCallback) {
  Promise<int> promise;
  EXPECT_FALSE(promise.future().cancel());  // no set_cancel
  int asked = 0;
  promise.set_cancel([&, promise] {
    ++asked;
    promise.set_exception(std::make_exception_ptr(CancelledError("op: cancelled")));
    return true;
  });
  const Future<int> future = promise.future();
  EXPECT_TRUE(future.cancel());
  EXPECT_EQ(asked, 1);
  EXPECT_THROW(static_cast<void>(future.get()), CancelledError);
  promise.set_cancel({});  // breaks a reference cycle
  EXPECT_THROW(static_cast<void>(Future<int>().cancel()), StateError);
}

TEST(Future, FirstResultWins) {
  const Promise<int> promise;
  promise.set_value(7);
  promise.set_value(8);
  promise.set_exception(std::make_exception_ptr(StateError("late")));
  EXPECT_EQ(promise.future().get(), 7);
}

TEST(Future, ThenCallbackRunsExactlyOnce) {
  const Promise<void> promise;
  const Work work = promise.future();
  std::string order;
  work.then([&] { order += "a"; });
  work.then([&] { order += work.is_completed() ? "b" : "?"; });
  EXPECT_EQ(order, "");
  promise.set_value();
  EXPECT_EQ(order, "ab");
  work.then([&] { order += "c"; });
  EXPECT_EQ(order, "abc");
  promise.set_value();
  EXPECT_EQ(order, "abc");
}

TEST(Future, ThenCallbackRunsAfterFailure) {
  const Promise<void> promise;
  const Work work = promise.future();
  bool ran = false;
  work.then([&] { ran = work.exception() != nullptr; });
  promise.set_exception(std::make_exception_ptr(IoError("disk full")));
  EXPECT_TRUE(ran);
}

TEST(Future, HelpCallbackRunsOnTheWaitingThread) {
  Promise<int> promise;
  const Promise<int> finish = promise;
  int steps = 0;
  std::thread::id helper;
  promise.set_help([&](std::chrono::steady_clock::time_point) {
    helper = std::this_thread::get_id();
    if (++steps == 3) finish.set_value(33);
    return true;
  });
  const Future<int> future = promise.future();
  EXPECT_EQ(future.get(), 33);
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(helper, std::this_thread::get_id());
  EXPECT_EQ(future.get(), 33);  // completed: help is not called
  EXPECT_EQ(steps, 3);
}

TEST(Future, HelpCallbackReceivesTheWaitDeadline) {
  Promise<void> promise;
  auto reported = std::chrono::steady_clock::time_point::min();
  promise.set_help([&](std::chrono::steady_clock::time_point deadline) {
    reported = deadline;
    return false;
  });
  EXPECT_FALSE(promise.future().wait(nanoseconds(1)));
  EXPECT_GT(reported, std::chrono::steady_clock::time_point::min());
  EXPECT_LE(reported, std::chrono::steady_clock::now());
}

TEST(Future, AllWaitersGetTheSameResult) {
  for (int round = 0; round < 33; ++round) {
    Promise<int> promise;
    std::vector<int> results(7);
    std::vector<std::thread> waiters;
    for (int& result : results) waiters.emplace_back([&, future = promise.future()] { result = future.get(); });
    promise.set_value(round + 1);
    for (auto& waiter : waiters) waiter.join();
    EXPECT_EQ(results, std::vector<int>(7, round + 1));
  }
}

TEST(Future, WaitOnDefaultConstructedFutureThrows) {
  const Work work;
  EXPECT_FALSE(work.valid());
  EXPECT_ERROR(StateError, work.wait(), "Future: not valid (default-constructed or moved from)");
}

}}  // namespace tandem
