// Every collective in every form, among threads, against closed forms.
#include <tandem/distributed/process_group.h>

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include <tandem/base/trace.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/closed_form.h>
#include <tandem/tests/distributed/op_checks.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/distributed/thrown.h>
#include <tandem/tests/support/sanitizers.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

// Small chunks, so that tensors of a few hundred elements need many rounds.
constexpr shm::Tuning kTinyChunks{
    .slot_bytes = 64, .chunk_bytes = 128, .slots = 3, .small_bytes = 64, .piece_bytes = 64, .pieces = 2};

constexpr int64_t kSizes[] = {0, 1, 3, 31, 33, 500};

class Collectives : public ::testing::TestWithParam<Setting> {
 protected:
  static ThreadRanks make_ranks() {
    const auto& [world_size, backend, hosts] = GetParam();
    return {.world_size = world_size, .tuning = kTinyChunks, .backend = backend, .hosts = hosts};
  }
  void run(const std::function<void(OpChecks&)>& f) {
    make_ranks().run([&](ProcessGroup& group) {
      for (const int64_t n : kSizes) {
        for (const Form form : kForms) {
          // A size takes the same paths in all forms, so ThreadSanitizer runs all forms at one size only.
          if (testing::kThreadSanitizer && n != 33 && !(form.async && form.strided)) continue;
          OpChecks check(group, kFloat32, n, form);
          f(check);
        }
      }
      for (const DType dtype : kDTypes) {
        OpChecks check(group, dtype, 37, {false, dtype == kInt64});
        f(check);
      }
    });
  }
  void run_for_roots(const std::function<void(OpChecks&, int root)>& f) {
    run([&](OpChecks& check) {
      for (int root = 0; root < GetParam().world_size; root += 2) f(check, root);
    });
  }
};
std::vector<Setting> settings() {
  std::vector<Setting> all = {{1}, {2}, {3}, {4}, {1, "gloo"}, {2, "gloo"}, {3, "gloo"}, {4, "gloo"}};
  if (!testing::kThreadSanitizer) all.insert(all.end(), {{7}, {7, "gloo"}});
  all.insert(all.end(), {{4, "auto", "aabb"}, {3, "auto", "aba"}});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Each, Collectives, ::testing::ValuesIn(settings()), setting_name);

TEST_P(Collectives, OutOfPlaceAllReduceMatchesClosedForm) {
  run([](OpChecks& check) { check.all_reduce_into_another(); });
}
TEST_P(Collectives, ReduceMatchesClosedForm) {
  run([](OpChecks& check) { check.reduce(); });
}
TEST_P(Collectives, BroadcastMatchesClosedForm) {
  run_for_roots([](OpChecks& check, int root) { check.broadcast(root); });
}
TEST_P(Collectives, GatherMatchesClosedForm) {
  run_for_roots([](OpChecks& check, int root) { check.gather(root); });
}
TEST_P(Collectives, AllGatherMatchesClosedForm) {
  run([](OpChecks& check) { check.all_gather(); });
}
TEST_P(Collectives, UnequalAllGatherMatchesClosedForm) {
  run([](OpChecks& check) { check.all_gather_of_unequal_sizes(); });
}
TEST_P(Collectives, ScatterMatchesClosedForm) {
  run_for_roots([](OpChecks& check, int root) { check.scatter(root); });
}
TEST_P(Collectives, ReduceScatterMatchesClosedForm) {
  run([](OpChecks& check) { check.reduce_scatter(); });
}
TEST_P(Collectives, AllToAllMatchesClosedForm) {
  run([](OpChecks& check) { check.all_to_all(); });
}
TEST_P(Collectives, UnequalAllToAllMatchesClosedForm) {
  run([](OpChecks& check) { check.all_to_all_of_unequal_sizes(); });
}
TEST_P(Collectives, BlockingAndAsyncBarriersComplete) {
  run([](OpChecks& check) { check.barrier(); });
}

TEST_P(Collectives, ZeroDimensionalTensorsAreSupported) {
  make_ranks().run([](ProcessGroup& g) {
    const int world = g.size();
    const double sum = world * (world + 1) / 2.0;
    const Tensor x = full({}, g.rank() + 1);
    g.all_reduce(x);
    EXPECT_EQ(x.item(), sum);
    const Tensor own = full({}, g.rank() + 1);
    const Tensor all = zeros({world});
    g.all_gather(all, own);
    EXPECT_EQ(count_wrong(all, [](int64_t i) { return static_cast<double>(i + 1); }), 0);
    g.scatter(own, g.rank() == 0 ? all : Tensor(), 0);
    EXPECT_EQ(own.item(), g.rank() + 1);
    g.reduce_scatter(own, all);
    EXPECT_EQ(own.item(), world * (g.rank() + 1));
    const std::vector<Tensor> none;
    const std::vector<Tensor> outs(1, full({}, 0));
    if (world == 1) g.gather(outs, own, 0);
  });
}

// --- lists of tensors ---

std::vector<Tensor> mixed_list(int rank) {
  std::vector<Tensor> list;
  for (const DType dtype : {kFloat32, kInt32, kFloat32, kFloat16, kInt32}) {
    const auto n = static_cast<int64_t>(list.size());
    list.push_back(
        filled({n, 7}, dtype, n % 2 == 1, [&](int64_t i) { return sent(rank, static_cast<int>(n), i, dtype); }));
  }
  return list;
}

TEST_P(Collectives, CoalescedCallsMatchClosedForm) {
  for (const bool async : {false, true}) {
    make_ranks().run([&](ProcessGroup& g) {
      const int world = g.size();
      const std::vector<Tensor> summed = mixed_list(g.rank());
      const std::vector<Tensor> spread = mixed_list(g.rank());
      const std::vector<Tensor> inputs = mixed_list(g.rank());
      std::vector<Tensor> gathered;
      std::vector<Tensor> stacks;
      std::vector<Tensor> scattered;
      for (const Tensor& input : inputs) {
        Shape stacked = input.shape();
        stacked.insert(0, world);
        gathered.push_back(untouched(stacked, input.dtype(), !input.is_contiguous()));
        stacks.push_back(filled(stacked, input.dtype(), input.is_contiguous(),
                                [&](int64_t i) { return value(g.rank(), i, ReduceOp::kMax, input.dtype()); }));
        scattered.push_back(untouched(input.shape(), input.dtype(), !input.is_contiguous()));
      }
      const int root = world - 1;
      if (async) {
        const Work works[] = {g.all_reduce_coalesced_async(summed), g.broadcast_coalesced_async(spread, root),
                              g.all_gather_coalesced_async(gathered, inputs),
                              g.reduce_scatter_coalesced_async(scattered, stacks, ReduceOp::kMax)};
        for (const Work& work : works) work.wait();
      } else {
        g.all_reduce_coalesced(summed);
        g.broadcast_coalesced(spread, root);
        g.all_gather_coalesced(gathered, inputs);
        g.reduce_scatter_coalesced(scattered, stacks, ReduceOp::kMax);
      }
      for (size_t k = 0; k < inputs.size(); ++k) {
        const int to = static_cast<int>(k);
        const DType dtype = inputs[k].dtype();
        const int64_t n = inputs[k].numel();
        EXPECT_EQ(count_wrong(summed[k],
                              [&](int64_t i) {
                                return reduced(world, ReduceOp::kSum, dtype,
                                               [&](int r) { return sent(r, to, i, dtype); });
                              }),
                  0);
        EXPECT_EQ(count_wrong(spread[k], [&](int64_t i) { return sent(root, to, i, dtype); }), 0);
        EXPECT_EQ(count_wrong(gathered[k], [&](int64_t i) { return sent(static_cast<int>(i / n), to, i % n, dtype); }),
                  0);
        EXPECT_EQ(count_wrong(scattered[k],
                              [&](int64_t i) { return expected(world, g.rank() * n + i, ReduceOp::kMax, dtype); }),
                  0);
        EXPECT_EQ(summed[k].version(), 1u);
        EXPECT_EQ(inputs[k].version(), 0u);
      }
      g.all_reduce_coalesced({});
      g.all_reduce_coalesced_async({}).wait();
    });
  }
}

TEST(CoalescedAllReduce, RunsOneOperationPerDtype) {
  start_trace();
  ThreadRanks ranks{.world_size = 2};
  ranks.run([](ProcessGroup& g) { g.all_reduce_coalesced(mixed_list(g.rank()), ReduceOp::kSum, {.name = "grads"}); });
  int count = 0;
  for (const TraceEvent& event : stop_trace()) {
    if (event.category != "comm") continue;
    EXPECT_EQ(event.name, "grads, 5 tensors");
    ++count;
  }
  EXPECT_EQ(count, 2 * 3);
}

// --- means ---

TEST_P(Collectives, ReduceMeanAppliesWeights) {
  make_ranks().run([](ProcessGroup& g) {
    double sum = 0;
    double weights = 0;
    for (int r = 0; r < g.size(); ++r) {
      sum += (r + 0.5) * (r + 1);
      weights += r + 1;
    }
    EXPECT_DOUBLE_EQ(g.reduce_mean(g.rank() + 0.5, g.rank() + 1), sum / weights);
    EXPECT_DOUBLE_EQ(g.reduce_mean(g.rank()), (g.size() - 1) / 2.0);
    // Values of weight 0 are ignored.
    EXPECT_EQ(g.reduce_mean(g.rank() == 0 ? 3 : std::nan(""), g.rank() == 0), 3);
    EXPECT_TRUE(std::isnan(g.reduce_mean(1, 0)));
  });
}

TEST_P(Collectives, ReduceMeanAveragesTensors) {
  make_ranks().run([](ProcessGroup& g) {
    const double mean = (g.size() - 1) / 2.0;
    for (const DType dtype : kDTypes) {
      const Tensor x =
          filled({2, 3}, dtype, true, [&](int64_t i) { return dtype == kBool ? g.rank() % 2 : i + g.rank(); });
      const Tensor y = g.reduce_mean(x);
      EXPECT_EQ(y.dtype(), is_floating_point(dtype) ? dtype : kFloat64);
      EXPECT_EQ(y.shape(), (Shape{2, 3}));
      EXPECT_EQ(count_wrong(y,
                            [&](int64_t i) {
                              if (dtype == kBool) return static_cast<double>(g.size() / 2) / g.size();
                              return stored(static_cast<double>(i) + mean, dtype);
                            }),
                0)
          << dtype;
      EXPECT_EQ(x.version(), 0u);
    }
  });
}

TEST(ReduceMean, RejectsInvalidWeightsAndUndefinedTensors) {
  ThreadRanks ranks{.world_size = 1};
  ranks.run([](ProcessGroup& g) {
    EXPECT_EQ(text_of<ValueError>([&] { g.reduce_mean(1, -2); }),
              "reduce_mean: weight must be finite and not negative, got -2");
    EXPECT_EQ(text_of<StateError>([&] { g.reduce_mean(Tensor()); }), "reduce_mean: tensor is undefined");
  });
}

}}}}  // namespace tandem::v0::distributed
