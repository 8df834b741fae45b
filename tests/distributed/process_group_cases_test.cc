// What users of other libraries do first with a process group, one case each, on four ranks.
#include <tandem/distributed/process_group.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <tandem/base/trace.h>
#include <tandem/tensor/device.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/closed_form.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/distributed/thrown.h>

namespace tandem::inline v0::distributed {
namespace {

/// Runs f on the ranks of a new group of four.
void on_four_ranks(const std::function<void(ProcessGroup&)>& f) {
  ThreadRanks ranks{.world_size = 4};
  ranks.run(f);
}

int wrong(const Tensor& tensor, double want) {
  return count_wrong(tensor, [&](int64_t) { return want; });
}

TEST(Cases, P1EveryRankSaysHelloWithItsNumber) {
  std::mutex mutex;
  std::multiset<std::string> lines;
  on_four_ranks([&](ProcessGroup& g) {
    std::lock_guard lock(mutex);
    lines.insert(str("hello from rank ", g.rank(), " of ", g.size()));
  });
  EXPECT_EQ(lines, (std::multiset<std::string>{"hello from rank 0 of 4", "hello from rank 1 of 4",
                                               "hello from rank 2 of 4", "hello from rank 3 of 4"}));
}

TEST(Cases, P2ReduceToRankZeroLeavesTheOthersAsTheyWere) {
  on_four_ranks([](ProcessGroup& g) {
    const std::pair<ReduceOp, double> results[] = {
        {ReduceOp::kSum, 4}, {ReduceOp::kProduct, 1}, {ReduceOp::kMax, 1}, {ReduceOp::kMin, 1}};
    for (const auto& [op, result] : results) {
      const Tensor x = ones({1});
      g.reduce(x, 0, op);
      EXPECT_EQ(x.item(), g.rank() == 0 ? result : 1);
      const Tensor y = full({1}, g.rank() + 2);
      g.reduce(y, 0, op);
      const double of_two_to_five = op == ReduceOp::kSum       ? 14
                                    : op == ReduceOp::kProduct ? 120
                                    : op == ReduceOp::kMax     ? 5
                                                               : 2;
      EXPECT_EQ(y.item(), g.rank() == 0 ? of_two_to_five : g.rank() + 2);
    }
  });
}

TEST(Cases, P3AllReduceGivesFourEverywhere) {
  on_four_ranks([](ProcessGroup& g) {
    const std::pair<ReduceOp, double> results[] = {
        {ReduceOp::kSum, 4}, {ReduceOp::kProduct, 1}, {ReduceOp::kMax, 1}, {ReduceOp::kMin, 1}};
    for (const auto& [op, result] : results) {
      const Tensor x = ones({1});
      g.all_reduce(x, op);
      EXPECT_EQ(x.item(), result);
    }
  });
}

TEST(Cases, P4ScatterGivesEachRankItsElement) {
  on_four_ranks([](ProcessGroup& g) {
    const Tensor x = zeros({1});
    std::vector<Tensor> list;
    if (g.rank() == 0) list = {tensor({1.0f}), tensor({2.0f}), tensor({3.0f}), tensor({4.0f})};
    g.scatter(x, list, 0);
    EXPECT_EQ(x.item(), g.rank() + 1);
  });
}

TEST(Cases, P5GatherCollectsOnRankZero) {
  on_four_ranks([](ProcessGroup& g) {
    std::vector<Tensor> list;
    if (g.rank() == 0) list = {zeros({1}), zeros({1}), zeros({1}), zeros({1})};
    g.gather(list, full({1}, g.rank()), 0);
    for (size_t r = 0; r < list.size(); ++r) EXPECT_EQ(list[r].item(), static_cast<double>(r));
  });
}

TEST(Cases, P5GatherOfDifferentShapesIsAnErrorOnEveryRank) {
  const auto thrown = run_all({.world_size = 4}, [](ProcessGroup& g) {
    const int64_t n = g.rank() == 2 ? 5 : 4;
    g.gather(g.rank() == 0 ? zeros({4, n}) : Tensor(), zeros({n}), 0, {.name = "scores"});
  });
  for (const Thrown& t : thrown) {
    // Seen by itself, or heard from another who saw it first.
    EXPECT_NE(t.text.find("] gather #1"), std::string::npos) << t.text;
    EXPECT_NE(t.text.find("ranks do not agree on what to exchange\n"), std::string::npos) << t.text;
    EXPECT_NE(t.text.find("  rank 2  gather to 0 float32 [5], 'scores', "), std::string::npos) << t.text;
  }
}

TEST(Cases, P6AllGatherGivesAllToAll) {
  on_four_ranks([](ProcessGroup& g) {
    const std::vector<Tensor> list = {zeros({1}), zeros({1}), zeros({1}), zeros({1})};
    g.all_gather(list, full({1}, g.rank()));
    for (size_t r = 0; r < list.size(); ++r) EXPECT_EQ(list[r].item(), static_cast<double>(r));
    const Tensor all = zeros({4, 1});
    g.all_gather(all, full({1}, g.rank()));
    EXPECT_EQ(all.to_vector<float>(), (std::vector<float>{0, 1, 2, 3}));
  });
}

TEST(Cases, P7BroadcastGivesRankZerosTensor) {
  on_four_ranks([](ProcessGroup& g) {
    const Tensor x = full({10, 10}, g.rank() + 7);
    g.broadcast(x, 0);
    EXPECT_EQ(wrong(x, 7), 0);
  });
}

TEST(Cases, P8BroadcastOfHalfTheBytes) {
  on_four_ranks([](ProcessGroup& g) {
    const Tensor x = full({1000, 100}, g.rank() + 0.5, {kFloat16});
    g.broadcast(x, 0);
    EXPECT_EQ(wrong(x, 0.5), 0);
    EXPECT_EQ(x.num_bytes(), 200000);
  });
}

TEST(Cases, P9OtherWorkRunsWhileAnAllReduceDoes) {
  start_trace();
  on_four_ranks([](ProcessGroup& g) {
    const Tensor x = full({1000, 1000}, g.rank());
    const Work work = g.all_reduce_async(x, ReduceOp::kSum, {.name = "gradients"});
    {
      const TraceSpan span("other work", "op");
      std::vector<double> sums(1, 0);
      // As long as the exchange takes, and then some.
      while (!work.is_completed()) sums[0] += 1;
    }
    work.wait();
    EXPECT_EQ(wrong(x, 6), 0);
  });
  std::vector<TraceEvent> exchanges;
  std::vector<TraceEvent> work;
  for (const TraceEvent& event : stop_trace()) {
    if (event.name == "gradients") exchanges.push_back(event);
    if (event.name == "other work") work.push_back(event);
  }
  ASSERT_EQ(exchanges.size(), 4u);
  ASSERT_EQ(work.size(), 4u);
  // On each rank the worker's exchange lies, at least in part, in the time of the work.
  const auto by_rank = [](const TraceEvent& a, const TraceEvent& b) { return a.rank < b.rank; };
  std::sort(exchanges.begin(), exchanges.end(), by_rank);
  for (const TraceEvent& exchange : exchanges) {
    EXPECT_EQ(exchange.thread, 1);
    EXPECT_TRUE(std::any_of(work.begin(), work.end(), [&](const TraceEvent& w) {
      return w.begin_ns < exchange.end_ns && exchange.begin_ns < w.end_ns;
    }));
  }
}

TEST(Cases, P10ATensorOnAnotherDeviceIsNamedOnEveryRank) {
  const auto thrown = run_all({.world_size = 4}, [](ProcessGroup& g) {
    float memory[3] = {};
    const auto storage = Storage::adopt(Device(DeviceType::kCuda, 0), memory, sizeof(memory), {});
    const Tensor far = make_view(storage, kFloat32, {3}, {1}, 0);
    try {
      g.all_reduce(g.rank() == 1 ? far : zeros({3}));
    } catch (const DeviceError& e) {
      // As the launchers do with an exception that leaves a rank's function.
      EXPECT_STREQ(e.what(), "all_reduce: this group moves CPU tensors\n  tensor  float32 [3] on cuda:0");
      g.abort(e.what());
      g.barrier();
    }
  });
  for (const Thrown& t : thrown) {
    EXPECT_NE(t.text.find("rank 1: all_reduce: this group moves CPU tensors\n  tensor  float32 [3] on cuda:0"),
              std::string::npos)
        << t.text;
  }
}

TEST(Cases, P10DifferentSizesAndDtypesAreShownOnEveryRank) {
  const auto sizes = run_all({.world_size = 4}, [](ProcessGroup& g) { g.all_reduce(zeros({3 + g.rank() / 3})); });
  const auto dtypes = run_all({.world_size = 4},
                              [](ProcessGroup& g) { g.all_reduce(zeros({3}, {g.rank() == 3 ? kFloat64 : kFloat32})); });
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_NE(sizes[rank].text.find("  rank 3  all_reduce sum float32 [4], "), std::string::npos) << sizes[rank].text;
    EXPECT_NE(dtypes[rank].text.find("  rank 3  all_reduce sum float64 [3], "), std::string::npos) << dtypes[rank].text;
  }
}

TEST(Cases, UnequalAllGatherComparesAllSizesThatAnybodyStates) {
  const auto thrown = run_all({.world_size = 2}, [](ProcessGroup& g) {
    // The sums are equal; what rank 1 thinks of rank 0's size is not.
    const std::vector<Tensor> outputs =
        g.rank() == 0 ? std::vector{zeros({2}), zeros({4})} : std::vector{zeros({3}), zeros({3})};
    g.all_gather(outputs, zeros({g.rank() == 0 ? 2 : 3}));
  });
  for (const Thrown& t : thrown) {
    EXPECT_NE(t.text.find("rank 0  all_gather float32 [2], 'into [2] [4]', "), std::string::npos) << t.text;
    EXPECT_NE(t.text.find("rank 1  all_gather float32 [3], "), std::string::npos) << t.text;
  }
}

}  // namespace
}  // namespace tandem::inline v0::distributed
