// Operations that begin while members have not joined yet, or while the worker waits for peers.
#include <tandem/distributed/group/joining.h>

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include <tandem/base/error.h>
#include <tandem/distributed/group/process_group_access.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/meeting_backend.h>
#include <tandem/tests/distributed/thrown.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using std::chrono::milliseconds;

/// Whether f() becomes true within 20 s.
bool becomes(const std::function<bool()>& f) {
  for (int i = 0; i < 2000 && !f(); ++i) std::this_thread::sleep_for(milliseconds(10));
  return f();
}

TEST(Joining, WaitingOperationsBeginAtOnce) {
  for (const bool is_blocking : {true, false}) {
    std::promise<void> may_come;
    const auto group = ProcessGroupAccess::make(
        {make_memory_store(), 0, 1}, nullptr, std::chrono::hours(1), [&](const ProcessGroupOptions& its) {
          may_come.get_future().wait();
          return std::make_unique<MeetingBackend>(its, std::make_shared<Meeting>());
        });
    Work work;
    std::future<void> call;
    if (is_blocking) {
      call = std::async(std::launch::async, [&] { group->barrier(); });
    } else {
      work = group->barrier_async();
    }
    std::this_thread::sleep_for(milliseconds(100));  // until its thread waits
    may_come.set_value();
    const auto is_done = [&] {
      return is_blocking ? call.wait_for(milliseconds(0)) == std::future_status::ready : work.is_completed();
    };
    EXPECT_TRUE(becomes(is_done)) << is_blocking;
    if (!is_done()) group->abort("it waits");
  }
}

TEST(Joining, OperationsEndWhileMembersAreMissing) {
  for (const bool aborts : {true, false}) {
    std::promise<void> may_end;
    const auto group = ProcessGroupAccess::make({make_memory_store(), 0, 2}, nullptr, std::chrono::hours(1),
                                                [&](const ProcessGroupOptions&) -> std::unique_ptr<Backend> {
                                                  may_end.get_future().wait();
                                                  throw CommError("no other rank");
                                                });
    const Work first = group->barrier_async({.timeout = milliseconds(0)});
    std::thread waits;
    if (!aborts) waits = std::thread([&] { thrown_by([&] { first.wait(); }); });
    std::this_thread::sleep_for(milliseconds(100));  // until a thread waits for the members
    Work late = first;
    if (aborts) {
      group->abort("out of data");
    } else {
      late = group->irecv(zeros({3}), 1, 0, {.timeout = milliseconds(100)});
    }
    EXPECT_TRUE(becomes([&] { return late.is_completed(); })) << aborts;
    group->abort("the end");
    may_end.set_value();
    if (waits.joinable()) waits.join();
    EXPECT_NE(first.exception(), nullptr);
  }
}

TEST(GroupQueue, WorkerThatWaitsForPeersBeginsNewOperations) {
  const ProcessGroupOptions options{make_memory_store(), 0, 2};
  const auto group = ProcessGroupAccess::make(
      options, std::make_unique<MeetingBackend>(options, std::make_shared<Meeting>()), std::chrono::hours(1));
  const Work waits = group->barrier_async();
  std::this_thread::sleep_for(milliseconds(100));  // until the worker waits for rank 1
  Tensor x = zeros({1});
  const Work fails = group->irecv(x, 1);  // this backend has no messages
  EXPECT_TRUE(becomes([&] { return fails.is_completed(); }));
}

}}}}  // namespace tandem::v0::distributed
