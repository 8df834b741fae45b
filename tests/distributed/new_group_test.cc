// Context::new_group with every way to start ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>
#include <tandem/distributed/init.h>
#include <tandem/distributed/launch.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/notification_time.h>
#include <tandem/tests/support/error_text.h>

namespace {

using namespace std::chrono_literals;
namespace td = tandem;
using namespace td::distributed;
using td::testing::error_text;

/// Checks the sum over members of (rank in the job + 1), and the group's ranks.
void check_group(ProcessGroup& group, int rank) {
  const std::vector<int>& members = group.ranks();
  EXPECT_TRUE(std::is_sorted(members.begin(), members.end()));
  ASSERT_EQ(static_cast<size_t>(group.size()), members.size());
  EXPECT_EQ(members[static_cast<size_t>(group.rank())], rank);
  float expected = 0;
  for (const int member : members) expected += static_cast<float>(member + 1);
  const td::Tensor t = td::full({3}, rank + 1.0);
  group.all_reduce(t);
  EXPECT_EQ(t.to_vector<float>(), std::vector<float>(3, expected));
}

/// Groups used in a different order on each rank; a rank waits only for members.
void check_many_groups(Context& context) {
  const int n = context.world_size();
  for (int round = 0; round < 2; ++round) {
    check_group(*context.new_group({context.rank()}), context.rank());
    std::vector<int> all;
    for (int r = n - 1; r >= 0; --r) all.push_back(r);
    check_group(*context.new_group(all), context.rank());
    std::vector<int> half;
    for (int r = context.rank() % 2; r < n; r += 2) half.push_back(r);
    const auto mine = context.new_group(half, {.name = "half"});
    EXPECT_EQ(mine->name(), round == 0 ? "half" : "half #2");
    check_group(*mine, context.rank());
  }
}

TEST(NewGroup, ThreadRanksFormSubgroups) {
  for (const int n : {1, 2, 3, 4, 7}) run_threads(n, check_many_groups);
}

TANDEM_RANK_MAIN(many_groups) {
  check_many_groups(context);
  if (testing::Test::HasFailure()) throw td::Error("a group is wrong");
}

TEST(NewGroup, ProcessRanksFormSubgroups) {
  for (const int n : {2, 4}) spawn(n, "many_groups");
}

TEST(NewGroup, DuplicateNamesAreNumbered) {
  run_threads(4, [](Context& context) {
    if (context.rank() == 2) return;
    const auto group = context.new_group({3, 0, 1});
    EXPECT_EQ(group->name(), "ranks 0-1 3");
    EXPECT_EQ(context.new_group({0, 1, 3})->name(), "ranks 0-1 3 #2");
    // Two groups with one name are separate groups.
    if (context.rank() != 3) {
      const auto a = context.new_group({0, 1}, {.name = "x"});
      const auto b = context.new_group({1, 0}, {.name = "x"});
      EXPECT_EQ(b->name(), "x #2");
      check_group(*b, context.rank());
      check_group(*a, context.rank());
    }
    const auto c = context.new_group({0, 1, 3}, {.name = "x"});
    EXPECT_EQ(c->name(), "x");
    check_group(*c, context.rank());
    check_group(*group, context.rank());
  });
}

TEST(NewGroup, ThreadsCreateGroupsConcurrently) {
  constexpr int kRanks = 4;
  run_threads(kRanks, [](Context& context) {
    // All pairs concurrently, each on its own thread.
    std::vector<std::thread> threads;
    std::atomic<int> made{0};
    for (int other = 0; other < kRanks; ++other) {
      if (other == context.rank()) continue;
      threads.emplace_back([&, other] {
        for (int i = 0; i < 3; ++i) {
          const auto group = context.new_group({other, context.rank()}, {.timeout = 60s});
          check_group(*group, context.rank());
          ++made;
        }
      });
    }
    threads.emplace_back([&] {
      check_group(*context.new_group({0, 1, 2, 3}), context.rank());
      ++made;
    });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(made.load(), 3 * (kRanks - 1) + 1);
  });
}

TEST(NewGroup, RandomGroupsWorkInAnyOrder) {
  // Each rank creates and uses its groups in its own order on one thread.
  constexpr int kRanks = 5;
  std::mt19937 random(3);
  std::vector<std::vector<int>> groups;
  for (int g = 0; g < 8; ++g) {
    std::vector<int> members;
    for (int r = 0; r < kRanks; ++r) {
      if (random() % 2 == 0) members.push_back(r);
    }
    if (!members.empty()) groups.push_back(members);
  }
  run_threads(kRanks, [&](Context& context) {
    std::vector<size_t> order;
    for (size_t g = 0; g < groups.size(); ++g) {
      if (std::count(groups[g].begin(), groups[g].end(), context.rank()) > 0) order.push_back(g);
    }
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(context.rank())));
    std::vector<std::shared_ptr<ProcessGroup>> made;
    std::vector<td::Tensor> sums;
    std::vector<td::Work> works;
    for (const size_t g : order) {
      made.push_back(context.new_group(groups[g], {.timeout = 60s, .name = std::to_string(g)}));
      sums.push_back(td::full({3}, context.rank() + 1.0));
      works.push_back(made.back()->all_reduce_async(sums.back()));
    }
    for (size_t i = 0; i < order.size(); ++i) {
      works[i].wait();
      float expected = 0;
      for (const int member : groups[order[i]]) expected += static_cast<float>(member + 1);
      EXPECT_EQ(sums[i].to_vector<float>(), std::vector<float>(3, expected));
    }
  });
}

TEST(NewGroup, GroupsCreatedInOppositeOrderWork) {
  for (const std::string backend : {"shm", "gloo"}) {
    run_threads(3, [&](Context& context) {
      const auto make = [&](const std::vector<int>& ranks) { return context.new_group(ranks, {.backend = backend}); };
      if (context.rank() == 2) return check_group(*make({0, 1, 2}), 2);
      std::shared_ptr<ProcessGroup> all;
      std::shared_ptr<ProcessGroup> some;
      if (context.rank() == 0) all = make({0, 1, 2});
      some = make({0, 1});
      if (context.rank() == 1) all = make({0, 1, 2});
      // Messages also wait for the members, in order.
      const int other = 1 - context.rank();
      const td::Tensor sent = td::full({2}, context.rank() + 1.0);
      const td::Tensor first = td::zeros({2});
      const td::Tensor second = td::zeros({2});
      const std::vector<td::Work> works = {some->isend(sent, other), some->isend(td::full({2}, 7), other),
                                           some->irecv(first, other), some->irecv(second, other)};
      for (const td::Work& work : works) work.wait();
      EXPECT_EQ(first.to_vector<float>(), std::vector<float>(2, static_cast<float>(other + 1)));
      EXPECT_EQ(second.to_vector<float>(), std::vector<float>(2, 7.0F));
      check_group(*all, context.rank());
      check_group(*some, context.rank());
    });
  }
}

TEST(NewGroup, GroupWithoutPeersIsDestroyedQuickly) {
  run_threads(2, [](Context& context) {
    if (context.rank() == 1) {
      context.store()->get("destroyed", 20s);
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    context.new_group({0, 1});
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
    context.store()->set("destroyed", "");
  });
}

/// The error of an operation that waits for missing members while `f(group)` runs on this rank.
template <class Start, class F>
std::string ended_by(const Start& start, const F& f) {
  std::string text;
  run_threads(2, [&](Context& context) {
    if (context.rank() == 1) {
      context.store()->get("ended", 60s);
      return;
    }
    auto group = context.new_group({0, 1}, {.timeout = 20s});
    const td::Work work = start(*group);
    EXPECT_FALSE(work.wait(50ms));  // the worker has started it
    f(group);
    text = error_text<td::CommError>([&] { work.wait(); });
    context.store()->set("ended", "");
  });
  return text;
}

TEST(NewGroup, AbortAndDestroyFailOperationsAwaitingMembers) {
  const auto all_reduce = [](ProcessGroup& group) { return group.all_reduce_async(td::zeros({3})); };
  const auto receive = [](ProcessGroup& group) { return group.irecv(td::zeros({3}), 1); };
  const auto abort = [](const std::shared_ptr<ProcessGroup>& group) { group->abort("out of data"); };
  const auto destroy = [](std::shared_ptr<ProcessGroup>& group) { group.reset(); };
  const std::string all_reduce_failed = "[rank 0, group 'ranks 0-1'] all_reduce #1 failed\n  rank 0: ";
  const std::string receive_failed = "[rank 0, group 'ranks 0-1'] recv from rank 1 tag 0 failed\n  rank 0: ";
  EXPECT_EQ(ended_by(all_reduce, abort), all_reduce_failed + "out of data");
  EXPECT_EQ(ended_by(receive, abort), receive_failed + "out of data");
  const std::string destroyed = "destroyed its group while 1 operation was queued";
  EXPECT_EQ(ended_by(all_reduce, destroy), all_reduce_failed + destroyed);
  EXPECT_EQ(ended_by(receive, destroy), receive_failed + destroyed);
}

TEST(NewGroup, AbandonedGroupFailsOnOtherMembers) {
  const auto notified_by_rank_zero = [](Context& context, ProcessGroup& group, const std::string& reason) {
    try {
      group.barrier();
      ADD_FAILURE() << "rank 0 came";
    } catch (const td::CommError& e) {
      EXPECT_EQ(e.what(),
                td::str("[rank ", context.rank(), ", group '", group.name(), "'] barrier #1 failed\n  [rank ",
                        context.rank(), "] group '", group.name(), "': rendezvous failed\n  rank 0: ", reason));
      EXPECT_EQ(e.peer(), 0);
    }
  };
  run_threads(2, [&](Context& context) {
    if (context.rank() == 0) {
      context.new_group({0, 1});
      context.store()->set("destroyed", "");
      context.store()->get("heard", 60s);
      return;
    }
    context.store()->get("destroyed", 60s);
    notified_by_rank_zero(context, *context.new_group({0, 1}, {.timeout = 10s}),
                          "the group was destroyed before all members had joined");
    context.store()->set("heard", "");
  });
  // A rank that has joined stops waiting.
  run_threads(3, [&](Context& context) {
    if (context.rank() == 2) {
      context.store()->get("heard", 60s);
      return;
    }
    const auto group = context.new_group({0, 1, 2}, {.timeout = 10s});
    if (context.rank() == 0) {
      group->abort("out of data");
      context.store()->get("heard", 60s);
    } else {
      notified_by_rank_zero(context, *group, "out of data");
      context.store()->set("heard", "");
    }
  });
}

TEST(NewGroup, UnmatchedGroupsDoNotDelayException) {
  using Clock = std::chrono::steady_clock;
  const auto took = notification_time([] {
    Clock::time_point thrown;
    Clock::time_point notified;
    const std::string text = error_text<td::StateError>([&] {
      run_threads(2, [&](Context& context) {
        if (context.rank() == 1) {
          error_text<td::CommError>([&] { context.store()->get("never", 60s); });
          notified = Clock::now();
          return;
        }
        const std::vector<std::shared_ptr<ProcessGroup>> groups = {context.new_group({0, 1}), context.new_group({0, 1}),
                                                                   context.new_group({0, 1})};
        thrown = Clock::now();
        throw td::StateError("no disk");
      });
    });
    EXPECT_EQ(text, "no disk");
    return notified - thrown;
  });
  EXPECT_LT(took, kNotifiedWithin);
}

TEST(NewGroup, InvalidRankListsAreRejected) {
  run_threads(3, [](Context& context) {
    const auto error = [&](const std::vector<int>& ranks) {
      return error_text<td::ValueError>([&] { context.new_group(ranks); });
    };
    EXPECT_EQ(error({}), "new_group: ranks is empty");
    EXPECT_EQ(error({0, 1, 2, 3}), "new_group: rank 3 is not in [0, 3)");
    EXPECT_EQ(error({0, -1}), "new_group: rank -1 is not in [0, 3)");
    EXPECT_EQ(error({2, 1, 0, 1}), "new_group: rank 1 appears twice in ranks");
    if (context.rank() == 1) {
      EXPECT_EQ(error({0, 2}),
                "new_group: rank 1 is the calling rank but not one of ranks 0 2\n  only members may call new_group");
    }
    check_group(*context.new_group({0, 1, 2}), context.rank());
  });
}

TEST(NewGroup, JoinTimeoutNamesMissingRank) {
  run_threads(3, [](Context& context) {
    if (context.rank() == 2) {
      // It stays in the job until the others have timed out.
      context.store()->get("given up", 20s);
      return;
    }
    if (context.rank() == 1) {
      const auto group = context.new_group({1, 2}, {.timeout = 50ms});
      const std::string text = error_text<td::CommError>([&] { group->barrier({.timeout = 20s}); });
      EXPECT_NE(text.find("[rank 1, group 'ranks 1-2'] barrier #1 failed\n  [rank 1] group 'ranks 1-2': rendezvous "
                          "timed out after 0.1 s"),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("missing: rank 2"), std::string::npos) << text;
      context.store()->set("given up", "");
    }
  });
}

TEST(NewGroup, EqualDeadlinesStillNameMissingRanks) {
  // Many groups, because the rendezvous and the operation time out at nearly the same time.
  run_threads(3, [](Context& context) {
    if (context.rank() > 0) {
      context.store()->get("given up", 60s);
      return;
    }
    std::vector<std::shared_ptr<ProcessGroup>> groups;
    std::vector<td::Work> works;
    for (int i = 0; i < 6; ++i) {
      groups.push_back(context.new_group({0, 1, 2}, {.timeout = 300ms}));
      works.push_back(i % 2 == 0 ? groups.back()->barrier_async() : groups.back()->irecv(td::zeros({3}), 2));
    }
    for (const td::Work& work : works) {
      try {
        work.wait();
        ADD_FAILURE() << "nobody came";
      } catch (const td::CommError& e) {
        const std::string text = e.what();
        EXPECT_NE(text.find(": rendezvous timed out after 0.3 s\n  missing: ranks 1 2"), std::string::npos) << text;
        EXPECT_EQ(e.peer(), 1) << text;
      }
    }
    context.store()->set("given up", "");
  });
}

TEST(NewGroup, ShorterOperationTimeoutNamesNoRank) {
  for (const auto timeout : {20000ms, 0ms}) {
    run_threads(2, [&](Context& context) {
      if (context.rank() == 1) {
        context.store()->get("given up", 60s);
        return;
      }
      const auto group = context.new_group({0, 1}, {.timeout = timeout, .name = "a"});
      const auto other = context.new_group({0, 1}, {.timeout = timeout, .name = "b"});
      const auto check = [&](const std::function<void()>& f, const std::string& title, const std::string& payload) {
        try {
          f();
          ADD_FAILURE() << "nobody came";
        } catch (const td::CommError& e) {
          EXPECT_EQ(e.what(), title + " timed out after 0.1 s\n  " + payload +
                                  "waiting for members\n  not all members have joined");
          EXPECT_EQ(e.peer(), -1);
        }
      };
      check([&] { group->barrier({.timeout = 100ms}); }, "[rank 0, group 'a'] barrier #1", "");
      check([&] { other->recv(td::zeros({3}), 1, 0, {.timeout = 100ms}); },
            "[rank 0, group 'b'] recv from rank 1 tag 0", "3 float32 (12 B), ");
      context.store()->set("given up", "");
    });
  }
}

/// Waits until the store reports the end of rank `ended`.
void wait_for_end(Store& store, int ended) {
  std::mutex mutex;
  std::condition_variable changed;
  bool known = false;
  const td::HookHandle watch = store.on_failure([&](int rank, const std::string&) {
    std::lock_guard lock(mutex);
    known = known || rank == ended;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return known; });
}

void check_without_rank_two(Context& context) {
  const auto before = context.new_group({0, 1, 3}, {.name = "before"});
  check_group(*before, context.rank());
  wait_for_end(*context.store(), 2);
  check_group(*before, context.rank());
  check_group(*context.new_group({0, 1, 3}, {.name = "after"}), context.rank());
  // A group with this rank cannot be created.
  const auto impossible = context.new_group({context.rank(), 2});
  const std::string text = error_text<td::CommError>([&] { impossible->barrier(); });
  EXPECT_NE(text.find("rank 2: "), std::string::npos) << text;
}

TEST(NewGroup, NonMemberFailureDoesNotAffectGroup) {
  run_threads(4, [](Context& context) {
    if (context.rank() == 2) {
      context.store()->announce_failure(2, "out of luck");
    } else {
      check_without_rank_two(context);
    }
  });
}

TEST(NewGroup, NonMemberConnectionLossDoesNotAffectGroup) {
  // Each rank has its own store; rank 2 loses its connection.
  const auto tcp = [](int rank, int port) {
    return make_tcp_store({.port = port, .is_host = rank == 0, .rank = rank, .world_size = 4, .timeout = 60s});
  };
  int port = 0;
  {
    // Any free port.
    for (port = 20011; port < 20100; ++port) {
      try {
        make_tcp_store({.port = port, .is_host = true, .rank = 0, .world_size = 1})->leave(0);
        break;
      } catch (const td::IoError&) {
        continue;
      }
    }
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      if (rank == 2) {
        tcp(rank, port)->set("was here", "");
        return;
      }
      const auto store = tcp(rank, port);
      store->get_from("was here", {rank}, 60s);
      td::RankContext rank_context;
      const td::RankContext::Use use(rank_context);
      wait_for_end(*store, 2);
      ProcessGroupOptions options{.store = make_prefix_store("group/", store),
                                  .rank = rank == 3 ? 2 : rank,
                                  .world_size = 3,
                                  .timeout = 60s,
                                  .ranks = {0, 1, 3}};
      const auto group = ProcessGroup::create(options);
      check_group(*group, rank);
      store->leave(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(NewGroup, TracesShowGlobalRanks) {
  td::start_trace();
  run_threads(3, [](Context& context) {
    if (context.rank() == 0) return;
    const auto group = context.new_group({1, 2});
    group->barrier({.name = "x"});
    group->barrier_async({.name = "x"}).wait();
  });
  std::vector<int> ranks;
  for (const td::TraceEvent& event : td::stop_trace()) {
    if (event.name == "x" || event.name == "launch x") ranks.push_back(event.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  EXPECT_EQ(ranks, (std::vector<int>{1, 1, 1, 2, 2, 2}));
}

}  // namespace
