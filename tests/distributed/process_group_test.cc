#include <tandem/distributed/process_group.h>

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <tandem/tensor/chores.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/thread_ranks.h>

namespace tandem::inline v0::distributed {
namespace {

// Chunks so small that tensors of a few hundred elements take many rounds.
constexpr shm::Tuning kTinyChunks{.slot_bytes = 64, .chunk_bytes = 128, .slots = 3};

constexpr int kWorlds[] = {1, 2, 3, 4, 7};
constexpr int64_t kSizes[] = {0, 1, 3, 7, 31, 32, 33, 1000, 4097};
constexpr DType kDTypes[] = {kBool, kUInt8, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax};

/// What rank r puts at element i: integers so small that every dtype holds every result of up to seven ranks.
double value(int rank, int64_t i, ReduceOp op, DType dtype) {
  if (dtype == kBool) return (i + rank) % 3 == 0;
  if (op == ReduceOp::kProduct) return 1 + (i + rank) % 2;  // at most 2^7
  return static_cast<double>((i * 7 + rank * 5) % 19);
}

double expected(int world, int64_t i, ReduceOp op, DType dtype) {
  double result = value(0, i, op, dtype);
  for (int rank = 1; rank < world; ++rank) {
    const double v = value(rank, i, op, dtype);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        result += v;
        break;
      case ReduceOp::kProduct:
        result *= v;
        break;
      case ReduceOp::kMin:
        result = std::min(result, v);
        break;
      case ReduceOp::kMax:
        result = std::max(result, v);
        break;
    }
  }
  if (dtype == kBool) return result != 0;
  return op == ReduceOp::kAvg ? result / world : result;
}

/// Rounded as the dtype stores it.
double stored(double v, DType dtype) {
  if (dtype == kFloat16) return Half(static_cast<float>(v));
  if (dtype == kBFloat16) return BFloat16(static_cast<float>(v));
  if (dtype == kFloat32) return static_cast<float>(v);
  return v;
}

Tensor make(const std::vector<double>& values, DType dtype, const Shape& shape) {
  Tensor out = empty(shape, {dtype});
  chores::copy(from_vector<double>(values, shape), out);
  return out;
}

Tensor input_of(int rank, int64_t n, ReduceOp op, DType dtype) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(value(rank, i, op, dtype));
  return make(values, dtype, {n});
}

/// The same values on memory of the group.
Tensor in_arena(ProcessGroup& group, const Tensor& tensor) {
  const Tensor out = make_view(group.allocate(tensor.num_bytes()), tensor.dtype(), tensor.shape(),
                               row_major_strides(tensor.shape()), 0);
  chores::copy(tensor, out);
  return out;
}

int count_wrong(const Tensor& tensor, const std::function<double(int64_t)>& want) {
  const std::vector<double> got = tensor.to_vector<double>();
  int wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) wrong += got[i] == want(static_cast<int64_t>(i)) ? 0 : 1;
  return wrong;
}

class Worlds : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Each, Worlds, testing::ValuesIn(kWorlds));

TEST_P(Worlds, AllReduceEveryOpDtypeAndSizeInHeapAndArena) {
  ThreadRanks ranks{.world_size = GetParam(), .tuning = kTinyChunks};
  ranks.run([](ProcessGroup& group) {
    for (const DType dtype : kDTypes) {
      for (const ReduceOp op : kOps) {
        if (op == ReduceOp::kAvg && !is_floating_point(dtype)) continue;
        for (const int64_t n : kSizes) {
          for (const bool arena : {false, true}) {
            Tensor x = input_of(group.rank(), n, op, dtype);
            if (arena) x = in_arena(group, x);
            group.all_reduce(x, op);
            EXPECT_EQ(count_wrong(x, [&](int64_t i) { return stored(expected(group.size(), i, op, dtype), dtype); }), 0)
                << dtype << " op " << static_cast<int>(op) << " n " << n << " arena " << arena;
          }
        }
      }
    }
  });
}

TEST_P(Worlds, AllReduceWithTheDefaultChunks) {
  ThreadRanks ranks{.world_size = GetParam()};
  ranks.run([](ProcessGroup& group) {
    for (const int64_t n : {1000, 4097, 70001, 1 << 20}) {
      const Tensor x = input_of(group.rank(), n, ReduceOp::kSum, kFloat32);
      group.all_reduce(x);
      EXPECT_EQ(count_wrong(x, [&](int64_t i) { return expected(group.size(), i, ReduceOp::kSum, kFloat32); }), 0);
    }
  });
}

TEST_P(Worlds, BroadcastFromEveryRoot) {
  ThreadRanks ranks{.world_size = GetParam(), .tuning = kTinyChunks};
  ranks.run([](ProcessGroup& group) {
    for (int root = 0; root < group.size(); ++root) {
      for (const DType dtype : {kBool, kFloat16, kInt64}) {
        for (const int64_t n : kSizes) {
          for (const bool arena : {false, true}) {
            Tensor x = input_of(group.rank(), n, ReduceOp::kSum, dtype);
            if (arena) x = in_arena(group, x);
            group.broadcast(x, root);
            EXPECT_EQ(count_wrong(x, [&](int64_t i) { return value(root, i, ReduceOp::kSum, dtype); }), 0)
                << dtype << " root " << root << " n " << n << " arena " << arena;
          }
        }
      }
    }
  });
}

TEST_P(Worlds, AllGatherStacksInRankOrder) {
  ThreadRanks ranks{.world_size = GetParam(), .tuning = kTinyChunks};
  ranks.run([](ProcessGroup& group) {
    for (const DType dtype : {kUInt8, kBFloat16, kFloat64}) {
      for (const int64_t n : kSizes) {
        for (const bool arena : {false, true}) {
          Tensor x = input_of(group.rank(), n, ReduceOp::kSum, dtype);
          if (arena) x = in_arena(group, x);
          const Tensor out = empty({group.size(), n}, {dtype});
          group.all_gather(out, x);
          EXPECT_EQ(
              count_wrong(out, [&](int64_t i) { return value(static_cast<int>(i / n), i % n, ReduceOp::kSum, dtype); }),
              0)
              << dtype << " n " << n << " arena " << arena;
        }
      }
    }
  });
}

TEST_P(Worlds, NobodyPassesABarrierBeforeAllHaveReachedIt) {
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

TEST_P(Worlds, SeveralInFlightWaitedInAnyOrder) {
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

}  // namespace
}  // namespace tandem::inline v0::distributed
