// Common first uses of a process group, one test each, on four ranks. With CPU tensors, and with one GPU per
// rank.
#include <tandem/distributed/process_group.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/trace.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/device.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/distributed/closed_form.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/distributed/thrown.h>
#include <tandem/tests/support/rank_devices.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

const bool kOnGpus = !testing::test_device().is_cpu();
/// Its text in signatures.
const char* const kWhere = kOnGpus ? " on a GPU" : "";

ThreadRanks ranks_of(int world_size) { return {.world_size = world_size, .backend = kOnGpus ? "auto" : ""}; }

/// Runs f on the ranks of a new group of four.
void on_four_ranks(const std::function<void(ProcessGroup&)>& f) { ranks_of(4).run(f); }

/// Device of a rank's tensors.
TensorOptions on(const ProcessGroup& group, DType dtype = kFloat32) {
  return {dtype, testing::rank_devices(group.size())[static_cast<size_t>(group.rank())]};
}

int wrong(const Tensor& tensor, double want) {
  return count_wrong(tensor, [&](int64_t) { return want; });
}

TEST(ProcessGroup, RanksReportRankAndSize) {
  std::mutex mutex;
  std::multiset<std::string> lines;
  on_four_ranks([&](ProcessGroup& g) {
    std::lock_guard lock(mutex);
    lines.insert(str("hello from rank ", g.rank(), " of ", g.size()));
  });
  EXPECT_EQ(lines, (std::multiset<std::string>{"hello from rank 0 of 4", "hello from rank 1 of 4",
                                               "hello from rank 2 of 4", "hello from rank 3 of 4"}));
}

TEST(Reduce, OnlyRootTensorIsChanged) {
  on_four_ranks([](ProcessGroup& g) {
    const std::pair<ReduceOp, double> results[] = {
        {ReduceOp::kSum, 4}, {ReduceOp::kProduct, 1}, {ReduceOp::kMax, 1}, {ReduceOp::kMin, 1}};
    for (const auto& [op, result] : results) {
      const Tensor x = ones({1}, on(g));
      g.reduce(x, 0, op);
      EXPECT_EQ(x.item(), g.rank() == 0 ? result : 1);
      const Tensor y = full({1}, g.rank() + 2, on(g));
      g.reduce(y, 0, op);
      const double of_two_to_five = op == ReduceOp::kSum       ? 14
                                    : op == ReduceOp::kProduct ? 120
                                    : op == ReduceOp::kMax     ? 5
                                                               : 2;
      EXPECT_EQ(y.item(), g.rank() == 0 ? of_two_to_five : g.rank() + 2);
    }
  });
}

TEST(AllReduce, EveryRankGetsReducedValue) {
  on_four_ranks([](ProcessGroup& g) {
    const std::pair<ReduceOp, double> results[] = {
        {ReduceOp::kSum, 4}, {ReduceOp::kProduct, 1}, {ReduceOp::kMax, 1}, {ReduceOp::kMin, 1}};
    for (const auto& [op, result] : results) {
      const Tensor x = ones({1}, on(g));
      g.all_reduce(x, op);
      EXPECT_EQ(x.item(), result);
    }
  });
}

TEST(Scatter, EachRankGetsItsElement) {
  on_four_ranks([](ProcessGroup& g) {
    const Tensor x = zeros({1}, on(g));
    std::vector<Tensor> list;
    for (int r = 0; g.rank() == 0 && r < 4; ++r) list.push_back(full({1}, r + 1, on(g)));
    g.scatter(x, list, 0);
    EXPECT_EQ(x.item(), g.rank() + 1);
  });
}

TEST(Gather, RootCollectsValuesInRankOrder) {
  on_four_ranks([](ProcessGroup& g) {
    std::vector<Tensor> list;
    for (int r = 0; g.rank() == 0 && r < 4; ++r) list.push_back(zeros({1}, on(g)));
    g.gather(list, full({1}, g.rank(), on(g)), 0);
    for (size_t r = 0; r < list.size(); ++r) EXPECT_EQ(list[r].item(), static_cast<double>(r));
  });
}

TEST(Gather, DifferentShapesFailOnEveryRank) {
  const auto thrown = run_all(ranks_of(4), [](ProcessGroup& g) {
    const int64_t n = g.rank() == 2 ? 5 : 4;
    g.gather(g.rank() == 0 ? zeros({4, n}, on(g)) : Tensor(), zeros({n}, on(g)), 0, {.name = "scores"});
  });
  for (const Thrown& t : thrown) {
    // Detected by this rank, or by another rank that notified it.
    EXPECT_NE(t.text.find("] gather #1"), std::string::npos) << t.text;
    EXPECT_NE(t.text.find("calls do not match across ranks\n"), std::string::npos) << t.text;
    EXPECT_NE(t.text.find(str("  rank 2  gather to 0 float32 [5]", kWhere, ", 'scores', ")), std::string::npos)
        << t.text;
  }
}

TEST(AllGather, EveryRankGetsAllValues) {
  on_four_ranks([](ProcessGroup& g) {
    std::vector<Tensor> list;
    for (int r = 0; r < 4; ++r) list.push_back(zeros({1}, on(g)));
    g.all_gather(list, full({1}, g.rank(), on(g)));
    for (size_t r = 0; r < list.size(); ++r) EXPECT_EQ(list[r].item(), static_cast<double>(r));
    const Tensor all = zeros({4, 1}, on(g));
    g.all_gather(all, full({1}, g.rank(), on(g)));
    EXPECT_EQ(all.to_vector<float>(), (std::vector<float>{0, 1, 2, 3}));
  });
}

TEST(Broadcast, EveryRankGetsRootTensor) {
  on_four_ranks([](ProcessGroup& g) {
    const Tensor x = full({10, 10}, g.rank() + 7, on(g));
    g.broadcast(x, 0);
    EXPECT_EQ(wrong(x, 7), 0);
  });
}

TEST(Broadcast, LargeTensorNeedsNoSecondBuffer) {
  on_four_ranks([](ProcessGroup& g) {
    constexpr int64_t kBytes = int64_t{8} << 20;
    const Tensor x = full({2048, 2048}, g.rank() + 0.5, on(g, kFloat16));
    EXPECT_EQ(x.num_bytes(), kBytes);
    g.barrier();
    if (g.rank() == 0 || kOnGpus) reset_peak_memory(x.device());
    const int64_t before = memory_stats(x.device()).allocated;
    g.barrier();
    g.broadcast(x, 0);
    g.barrier();
    EXPECT_LT(memory_stats(x.device()).peak_allocated, before + kBytes / 10);
    EXPECT_EQ(wrong(x, 0.5), 0);
  });
}

TEST(AllReduce, AsyncCallOverlapsOtherWork) {
  std::atomic<int> done{0};  // number of ranks whose work is done
  start_trace();
  on_four_ranks([&](ProcessGroup& g) {
    const Tensor x = full({1000, 1000}, g.rank(), on(g));
    g.all_reduce(zeros({1000, 1000}, on(g)));  // on GPUs the first call of a kind and size opens connections and blocks
    if (g.rank() == 3) {
      while (done < 3) std::this_thread::yield();
    }
    const Work work = g.all_reduce_async(x, ReduceOp::kSum, {.name = "gradients"});
    if (g.rank() < 3) {
      {
        const TraceSpan span("other work", "op");
        EXPECT_EQ(wrong(full({1000}, 2), 2), 0);
      }
      EXPECT_FALSE(work.is_completed());  // rank 3 has not started
      ++done;
    }
    work.wait();
    EXPECT_EQ(wrong(x, 6), 0);
  });
  std::vector<TraceEvent> exchanges;
  std::vector<TraceEvent> work;
  const std::string category = kOnGpus ? "consistency check" : "comm";
  int on_gpu = 0;
  for (const TraceEvent& event : stop_trace()) {
    if (event.name == "gradients" && event.category == category) exchanges.push_back(event);
    if (event.name == "gradients" && event.thread == kNcclStreamThread) ++on_gpu;
    if (event.name == "other work") work.push_back(event);
  }
  ASSERT_EQ(exchanges.size(), 4u);
  ASSERT_EQ(work.size(), 3u);
  EXPECT_EQ(on_gpu, kOnGpus ? 4 : 0);
  for (const TraceEvent& w : work) {
    for (const TraceEvent& exchange : exchanges) EXPECT_TRUE(exchange.rank != w.rank || exchange.end_ns > w.end_ns);
  }
}

TEST(AllReduce, UnsupportedDeviceIsReportedOnEveryRank) {
  const std::string refused =
      cuda::is_built() ? "all_reduce: the group's backend 'shm' supports CPU tensors only; use 'cpu:shm,cuda:nccl'\n"
                         "  tensor  float32 [3] on cuda:0"
                       : "all_reduce: this build supports CPU tensors only; build with --config=cuda\n  tensor  "
                         "float32 [3] on cuda:0";
  const auto thrown = run_all({.world_size = 4, .backend = "shm"}, [&](ProcessGroup& g) {
    float memory[3] = {};
    const auto storage = Storage::adopt(Device(DeviceType::kCUDA, 0), memory, sizeof(memory), {});
    const Tensor far = make_view(storage, kFloat32, {3}, {1}, 0);
    try {
      g.all_reduce(g.rank() == 1 ? far : zeros({3}));
    } catch (const DeviceError& e) {
      // As the launchers do after an exception of a rank's function.
      EXPECT_EQ(e.what(), refused);
      g.abort(e.what());
      g.barrier();
    }
  });
  for (const Thrown& t : thrown) {
    EXPECT_NE(t.text.find("rank 1: " + refused), std::string::npos) << t.text;
  }
}

TEST(AllReduce, DifferentSizesAndDtypesFailOnEveryRank) {
  const auto sizes = run_all(ranks_of(4), [](ProcessGroup& g) { g.all_reduce(zeros({3 + g.rank() / 3}, on(g))); });
  const auto dtypes = run_all(
      ranks_of(4), [](ProcessGroup& g) { g.all_reduce(zeros({3}, on(g, g.rank() == 3 ? kFloat64 : kFloat32))); });
  for (size_t rank = 0; rank < 4; ++rank) {
    const std::string other_size = str("  rank 3  all_reduce sum float32 [4]", kWhere, ", ");
    const std::string other_dtype = str("  rank 3  all_reduce sum float64 [3]", kWhere, ", ");
    EXPECT_NE(sizes[rank].text.find(other_size), std::string::npos) << sizes[rank].text;
    EXPECT_NE(dtypes[rank].text.find(other_dtype), std::string::npos) << dtypes[rank].text;
  }
}

TEST(AllReduce, SumsTensorsOfTwoDevices) {
  ranks_of(2).run([](ProcessGroup& g) {
    const std::vector<float> sum = {5, 7, 9};
    const Tensor mine = zeros({3}, on(g));
    primitives::copy(g.rank() == 0 ? tensor({1.0, 2.0, 3.0}) : tensor({4.0, 5.0, 6.0}), mine);
    const std::vector<Tensor> both = {zeros({3}, on(g)), zeros({3}, on(g))};
    g.all_gather(both, mine);
    primitives::add_into(both[1], both[0]);
    EXPECT_EQ(both[0].to_vector<float>(), sum);
    g.all_reduce(mine);
    EXPECT_EQ(mine.to_vector<float>(), sum);
    EXPECT_EQ(mine.device(), on(g).device);
  });
}

TEST(AllGather, DisagreeingPartSizesAreRejected) {
  const auto thrown = run_all(ranks_of(2), [](ProcessGroup& g) {
    // The totals are equal, but rank 1 expects another size from rank 0.
    const bool first = g.rank() == 0;
    g.all_gather({zeros({first ? 2 : 3}, on(g)), zeros({first ? 4 : 3}, on(g))}, zeros({first ? 2 : 3}, on(g)));
  });
  for (const Thrown& t : thrown) {
    const std::string where = kOnGpus ? " on a GPU, in a list" : "";
    EXPECT_NE(t.text.find(str("rank 0  all_gather float32 [2]", where, ", 'into [2] [4]', ")), std::string::npos)
        << t.text;
    EXPECT_NE(t.text.find(str("rank 1  all_gather float32 [3]", where, ", ")), std::string::npos) << t.text;
  }
}

}}}}  // namespace tandem::v0::distributed
