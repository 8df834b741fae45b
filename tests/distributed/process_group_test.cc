#include <tandem/distributed/process_group.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/trace.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/distributed/closed_form.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/support/sanitizers.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

// Small chunks, so that tensors of a few hundred elements need many rounds.
constexpr shm::Tuning kTinyChunks{.slot_bytes = 64, .chunk_bytes = 128, .slots = 3};

constexpr int kWorlds[] = {1, 2, 3, 4, 7};
constexpr int64_t kSizes[] = {0, 1, 3, 7, 31, 32, 33, 1000, 4097};

class SharedMemoryCollectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Each, SharedMemoryCollectives, ::testing::ValuesIn(kWorlds));

TEST_P(SharedMemoryCollectives, AllReduceMatchesReference) {
  ThreadRanks ranks{.world_size = GetParam(), .tuning = kTinyChunks};
  ranks.run([](ProcessGroup& group) {
    for (const DType dtype : kDTypes) {
      for (const ReduceOp op : reduce_ops_of(dtype)) {
        for (const int64_t n : kSizes) {
          const Tensor x = input_of(group.rank(), n, op, dtype);
          group.all_reduce(x, op);
          EXPECT_EQ(count_wrong(x, [&](int64_t i) { return expected(group.size(), i, op, dtype); }), 0)
              << dtype << " op " << static_cast<int>(op) << " n " << n;
        }
      }
    }
  });
}

TEST_P(SharedMemoryCollectives, AllReduceWithDefaultChunksMatchesClosedForm) {
  ThreadRanks ranks{.world_size = GetParam()};
  ranks.run([](ProcessGroup& group) {
    std::vector<double> sums;
    for (int64_t i = 0; i < kPeriod; ++i) sums.push_back(expected(group.size(), i, ReduceOp::kSum, kFloat32));
    for (const int64_t n : {1000, 4097, 70001, testing::kThreadSanitizer ? 1 << 18 : 1 << 20}) {
      const Tensor x = input_of(group.rank(), n, ReduceOp::kSum, kFloat32);
      group.all_reduce(x);
      EXPECT_EQ(count_wrong(x, [&](int64_t i) { return sums[static_cast<size_t>(i % kPeriod)]; }), 0);
    }
  });
}

TEST_P(SharedMemoryCollectives, BroadcastFromEveryRootMatchesClosedForm) {
  ThreadRanks ranks{.world_size = GetParam(), .tuning = kTinyChunks};
  ranks.run([](ProcessGroup& group) {
    for (int root = 0; root < group.size(); ++root) {
      for (const DType dtype : {kBool, kFloat16, kInt64}) {
        for (const int64_t n : kSizes) {
          const Tensor x = input_of(group.rank(), n, ReduceOp::kSum, dtype);
          group.broadcast(x, root);
          EXPECT_EQ(count_wrong(x, [&](int64_t i) { return value(root, i, ReduceOp::kSum, dtype); }), 0)
              << dtype << " root " << root << " n " << n;
        }
      }
    }
  });
}

TEST_P(SharedMemoryCollectives, AllGatherStacksInRankOrder) {
  ThreadRanks ranks{.world_size = GetParam(), .tuning = kTinyChunks};
  ranks.run([](ProcessGroup& group) {
    for (const DType dtype : {kUInt8, kBFloat16, kFloat64}) {
      for (const int64_t n : kSizes) {
        const Tensor x = input_of(group.rank(), n, ReduceOp::kSum, dtype);
        const Tensor out = empty({group.size(), n}, {dtype});
        group.all_gather(out, x);
        EXPECT_EQ(
            count_wrong(out, [&](int64_t i) { return value(static_cast<int>(i / n), i % n, ReduceOp::kSum, dtype); }),
            0)
            << dtype << " n " << n;
      }
    }
  });
}

TEST_P(SharedMemoryCollectives, BarrierWaitsForAllRanks) {
  ThreadRanks ranks{.world_size = GetParam()};
  std::atomic<int> arrived{0};
  ranks.run([&](ProcessGroup& group) {
    for (int round = 1; round <= 50; ++round) {
      arrived.fetch_add(1);
      group.barrier();
      EXPECT_GE(arrived.load(), round * group.size());
      group.barrier();
    }
  });
}

TEST_P(SharedMemoryCollectives, WorksCanBeAwaitedInAnyOrder) {
  ThreadRanks ranks{.world_size = GetParam(), .tuning = kTinyChunks};
  ranks.run([](ProcessGroup& group) {
    constexpr int kCount = 9;
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int k = 0; k < kCount; ++k) {
      tensors.push_back(input_of(group.rank() + k, 100 * k + 1, ReduceOp::kSum, kFloat32));
      works.push_back(group.all_reduce_async(tensors.back()));
      group.progress();
    }
    for (int k = 0; k < kCount; ++k) works[static_cast<size_t>((k * 4 + group.rank()) % kCount)].wait();
    for (int k = 0; k < kCount; ++k) {
      EXPECT_EQ(count_wrong(tensors[static_cast<size_t>(k)],
                            [&](int64_t i) {
                              double sum = 0;
                              for (int rank = 0; rank < group.size(); ++rank)
                                sum += value(rank + k, i, ReduceOp::kSum, kFloat32);
                              return sum;
                            }),
                0);
    }
  });
}

// --- values that show how sums are formed ---

TEST(AllReduce, SumsInRankOrderForAnyChunkSize) {
  // Each order of these three loses different digits.
  const double values[] = {1e8, 1.0, -1e8};
  for (const shm::Tuning& tuning : {kTinyChunks, shm::Tuning{}}) {
    ThreadRanks ranks{.world_size = 3, .tuning = tuning};
    ranks.run([&](ProcessGroup& group) {
      const Tensor x = full({1001}, values[group.rank()]);
      group.all_reduce(x);
      const float want =
          (static_cast<float>(values[0]) + static_cast<float>(values[1])) + static_cast<float>(values[2]);
      EXPECT_EQ(count_wrong(x, [&](int64_t) { return want; }), 0);
    });
  }
}

TEST(AllReduce, HalfTypesAreRoundedOnce) {
  // 1 + 7/16 ulp four times: stays 1 if rounded each time, but not if rounded once.
  for (const DType dtype : {kFloat16, kBFloat16}) {
    const double ulp = dtype == kFloat16 ? 0x1p-10 : 0x1p-7;
    ThreadRanks ranks{.world_size = 4, .tuning = kTinyChunks};
    ranks.run([&](ProcessGroup& group) {
      const Tensor x = full({100}, group.rank() == 0 ? 1.0 : ulp * 7 / 16, {dtype});
      group.all_reduce(x);
      EXPECT_EQ(count_wrong(x, [&](int64_t) { return 1.0 + ulp; }), 0) << dtype;
    });
  }
}

TEST(AllReduce, AvgDividesSumOnce) {
  ThreadRanks ranks{.world_size = 3, .tuning = kTinyChunks};
  ranks.run([&](ProcessGroup& group) {
    const Tensor x = full({101}, group.rank() + 0.5);
    group.all_reduce(x, ReduceOp::kAvg);
    EXPECT_EQ(count_wrong(x, [&](int64_t) { return 4.5f / 3.0f; }), 0);
    const Tensor y = full({101}, 1.0);
    group.all_reduce(y, ReduceOp::kAvg);
    EXPECT_EQ(count_wrong(y, [&](int64_t) { return 1.0; }), 0);
  });
}

TEST(AllReduce, MinAndMaxPropagateNanFromAnyRank) {
  for (int bad = 0; bad < 3; ++bad) {
    ThreadRanks ranks{.world_size = 3};
    ranks.run([&](ProcessGroup& group) {
      for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
        const Tensor x = full({33}, group.rank() == bad ? std::nan("") : 1.0);
        group.all_reduce(x, op);
        for (const float v : x.to_vector<float>()) EXPECT_TRUE(std::isnan(v));
      }
    });
  }
}

TEST(AllReduce, IntegerOverflowWrapsAround) {
  ThreadRanks ranks{};
  ranks.run([](ProcessGroup& group) {
    const Tensor x = full({5}, 200, {kUInt8});
    group.all_reduce(x);
    EXPECT_EQ(count_wrong(x, [](int64_t) { return 144; }), 0);
    const Tensor y = full({5}, int64_t{2147483647}, {kInt32});
    group.all_reduce(y);
    EXPECT_EQ(count_wrong(y, [](int64_t) { return -2; }), 0);
  });
}

// --- layouts ---

TEST(ProcessGroup, GapsOfStridedTensorsAreUnchanged) {
  ThreadRanks ranks{.world_size = 3, .tuning = kTinyChunks};
  ranks.run([](ProcessGroup& group) {
    const Tensor base = arange(0, 1200);
    const Tensor transposed = make_view(base.storage(), kInt64, {20, 30}, {1, 40}, 0);  // without columns 20..39
    group.all_reduce(transposed);
    EXPECT_EQ(count_wrong(base, [](int64_t i) { return i % 40 < 20 ? 3 * i : i; }), 0);
    EXPECT_EQ(base.version(), 1u);

    const Tensor column = make_view(base.storage(), kInt64, {30}, {40}, 39);
    primitives::fill(column, group.rank());
    group.broadcast(column, 2);
    EXPECT_EQ(count_wrong(column, [](int64_t) { return 2; }), 0);

    const Tensor wide = zeros({7, 6}, {kInt64});
    const Tensor out = make_view(wide.storage(), kInt64, {3, 7}, {1, 6}, 2);
    const Tensor in = make_view(base.storage(), kInt64, {7}, {40}, 39);
    primitives::fill(in, 10 + group.rank());
    group.all_gather(out, in);
    EXPECT_EQ(count_wrong(wide, [](int64_t i) { return i % 6 >= 2 && i % 6 < 5 ? 10 + i % 6 - 2 : 0; }), 0);
  });
}

TEST(ProcessGroup, GroupsStartedInDifferentOrderComplete) {
  const auto store = make_memory_store();
  ThreadRanks first{.world_size = 3, .store = store, .name = "first", .tuning = kTinyChunks};
  ThreadRanks second{.world_size = 3, .store = store, .name = "second", .tuning = kTinyChunks};
  first.run([&](ProcessGroup& group) {
    const auto other = second.make(group.rank());
    const Tensor x = full({500}, 1);
    const Tensor y = full({700}, 2);
    const Work a = group.rank() == 1 ? other->all_reduce_async(y) : group.all_reduce_async(x);
    const Work b = group.rank() == 1 ? group.all_reduce_async(x) : other->all_reduce_async(y);
    a.wait();
    b.wait();
    EXPECT_EQ(count_wrong(x, [](int64_t) { return 3; }), 0);
    EXPECT_EQ(count_wrong(y, [](int64_t) { return 6; }), 0);
  });
}

TEST(ProcessGroup, BlockingCallsWaitForQueuedWork) {
  ThreadRanks ranks{.world_size = 2, .tuning = kTinyChunks};
  ranks.run([](ProcessGroup& group) {
    const Tensor x = full({300}, 1);
    const Work work = group.all_reduce_async(x);
    group.all_reduce(x);
    EXPECT_TRUE(work.is_completed());
    EXPECT_EQ(count_wrong(x, [](int64_t) { return 4; }), 0);
  });
}

TEST(ProcessGroup, StridedInputsAreReadAtOperationStart) {
  ThreadRanks ranks{.world_size = 2, .tuning = kTinyChunks};
  ranks.run([](ProcessGroup& group) {
    const Tensor x = full({300, 2}, 1);
    const Tensor transposed = make_view(x.storage(), kFloat32, {2, 300}, {1, 2}, 0);
    const Work work = group.all_reduce_async(x);
    group.all_reduce(transposed);  // queued after it
    work.wait();
    EXPECT_EQ(count_wrong(x, [](int64_t) { return 4; }), 0);
  });
}

TEST(ProcessGroup, ConsecutiveOperationsOfDifferentSizesDoNotInterfere) {
  // A collective does not overwrite ring data that a slow rank is still reading.
  for (const int world : {2, 3}) {
    ThreadRanks ranks{.world_size = world,
                      .tuning = {.slot_bytes = 64, .chunk_bytes = 512, .one_shot_bytes = 4096, .slots = 3}};
    ranks.run([](ProcessGroup& group) {
      constexpr int64_t kBytes[] = {40, 1600, 4000, 8000, 2400, 24, 12000, 3200};
      int wrong = 0;
      uint32_t state = 1;
      for (int64_t i = 0; i < (testing::kThreadSanitizer ? 150 : 600); ++i) {
        state = state * 1664525u + 1013904223u;
        const Tensor x = full({kBytes[state >> 29] / 8}, static_cast<double>(i + group.rank()), {kFloat64});
        const int n = group.size();
        if (i % 5 == 3) {
          group.broadcast(x, static_cast<int>(i) % n);
          wrong += count_wrong(x, [&](int64_t) { return static_cast<double>(i + i % n); });
        } else {
          group.all_reduce(x);
          wrong += count_wrong(x, [&](int64_t) { return static_cast<double>(n * i + n * (n - 1) / 2); });
        }
      }
      EXPECT_EQ(wrong, 0);
    });
  }
}

TEST(ProcessGroup, WorkerCompletesOperationWithoutWait) {
  ThreadRanks ranks{.world_size = 2, .tuning = kTinyChunks};
  ranks.run([](ProcessGroup& group) {
    const Tensor x = full({300}, 1);
    std::promise<void> done;
    group.all_reduce_async(x).then([&] { done.set_value(); });
    done.get_future().wait();
    EXPECT_EQ(count_wrong(x, [](int64_t) { return 2; }), 0);
  });
}

TEST(ProcessGroup, ProgressAloneCompletesOperation) {
  ThreadRanks ranks{.world_size = 2, .tuning = kTinyChunks};
  ranks.run([](ProcessGroup& group) {
    const Tensor x = full({3000}, 1);
    const Work work = group.all_reduce_async(x);
    while (group.progress()) std::this_thread::yield();
    work.wait();
    EXPECT_EQ(count_wrong(x, [](int64_t) { return 2; }), 0);
  });
}

TEST(ProcessGroup, TraceRecordsLaunchAndExecution) {
  start_trace();
  ThreadRanks ranks{.world_size = 2};
  ranks.run([](ProcessGroup& group) {
    const Tensor x = full({300}, 1);
    group.all_reduce_async(x, ReduceOp::kSum, {.name = "bucket 0"}).wait();
    group.barrier();
  });
  std::map<std::string, int> count;
  for (const TraceEvent& event : stop_trace()) {
    if (event.category == "copy") continue;  // creation of x
    EXPECT_EQ(event.category, event.name.ends_with(": slots") ? "algorithm" : "comm");
    EXPECT_LE(event.begin_ns, event.end_ns);
    EXPECT_EQ(event.num_bytes, event.name == "bucket 0" ? 1200 : 0);
    ++count[event.name];
  }
  EXPECT_EQ(
      count,
      (std::map<std::string, int>{
          {"launch bucket 0", 2}, {"bucket 0", 2}, {"all_reduce: slots", 2}, {"barrier", 2}, {"barrier: slots", 2}}));
}

}}}}  // namespace tandem::v0::distributed
