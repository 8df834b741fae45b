// The loss of these tests is the sum of the ranks' losses, so a gradient has the contributions of all ranks.
#include <tandem/distributed/functional.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include <tandem/autograd/gradcheck.h>
#include <tandem/base/error.h>
#include <tandem/distributed/context.h>
#include <tandem/distributed/launch.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/op_case.h>

namespace tandem::testing { namespace {

namespace dist = tandem::distributed;
using dist::Context;
using dist::ReduceOp;
using dist::functional::all_gather;
using dist::functional::all_reduce;
using dist::functional::all_to_all;
using dist::functional::broadcast;
using dist::functional::reduce_scatter;

constexpr int kRanks = 4;

int rank() { return Context::current().rank(); }

/// Rank r sends 2 rows to rank 0 and 1 row to rank 1.
std::vector<int64_t> sent() { return {2, 1, 0, 0}; }
std::vector<int64_t> received() { return std::vector<int64_t>(kRanks, std::max(2 - rank(), 0)); }

/// A function of a rank's input; `direct` is the same by ProcessGroup.
struct Case {
  const char* name;
  Shape shape, result;
  std::function<Tensor(const Tensor& x)> f;
  std::function<void(dist::ProcessGroup& group, const Tensor& y, const Tensor& x)> direct;
};

std::vector<Case> cases() {
  const int64_t n = kRanks;
  using Group = dist::ProcessGroup;
  using T = Tensor;
  const auto avg = ReduceOp::kAvg;
  return {
      {"all_reduce",
       {2, 3},
       {2, 3},
       [](const T& x) { return all_reduce(x); },
       [](Group& group, const T& y, const T& x) { group.all_reduce(y, x); }},
      {"all_reduce avg",
       {2, 3},
       {2, 3},
       [=](const T& x) { return all_reduce(x, avg); },
       [=](Group& group, const T& y, const T& x) { group.all_reduce(y, x, avg); }},
      {"all_gather",
       {2, 3},
       {n, 2, 3},
       [](const T& x) { return all_gather(x); },
       [](Group& group, const T& y, const T& x) { group.all_gather(y, x); }},
      {"all_gather of numbers",
       {},
       {n},
       [](const T& x) { return all_gather(x); },
       [](Group& group, const T& y, const T& x) { group.all_gather(y, x); }},
      {"reduce_scatter",
       {n, 3},
       {3},
       [](const T& x) { return reduce_scatter(x); },
       [](Group& group, const T& y, const T& x) { group.reduce_scatter(y, x); }},
      {"reduce_scatter avg",
       {n, 3},
       {3},
       [=](const T& x) { return reduce_scatter(x, avg); },
       [=](Group& group, const T& y, const T& x) { group.reduce_scatter(y, x, avg); }},
      {"broadcast",
       {2, 3},
       {2, 3},
       [](const T& x) { return broadcast(x, 2); },
       [](Group& group, const T& y, const T& x) {
         y.copy_(x);
         group.broadcast(y, 2);
       }},
      {"all_to_all",
       {2 * n, 2},
       {2 * n, 2},
       [](const T& x) { return all_to_all(x); },
       [](Group& group, const T& y, const T& x) {
         group.all_to_all(y.view({n, 2, 2}), x.view({n, 2, 2}));
       }},
      {"all_to_all with splits",
       {3, 2},
       {n * std::max(2 - rank(), 0), 2},
       [](const T& x) { return all_to_all(x, received(), sent()); },
       [](Group& group, const T& y, const T& x) { group.all_to_all(y, x, received(), sent()); }},
  };
}

Tensor random_of_rank(const Shape& shape, DType dtype = kFloat64) {
  return random_tensor(shape, static_cast<uint64_t>(rank()) + 1, dtype);
}

TEST(FunctionalCollectives, ResultsAreThoseOfProcessGroup) {
  dist::run_threads(kRanks, [](Context& context) {
    for (const Case& c : cases()) {
      SCOPED_TRACE(c.name);
      const Tensor x = random_of_rank(c.shape), y = empty(c.result, {kFloat64});
      c.direct(*context.group(), y, x);
      const Tensor given = c.f(x), of_graph = c.f(x.detach().requires_grad_());
      EXPECT_TRUE(equal(given, y));
      EXPECT_TRUE(equal(of_graph, y));
      EXPECT_FALSE(given.requires_grad());
      EXPECT_TRUE(of_graph.requires_grad());
    }
  });
}

// Every rank passes the inputs of all ranks. The first collective, of equal tensors, makes their gradients the same on
// all ranks, and the last one adds the losses, so that each rank compares the gradients of all ranks.
TEST(FunctionalCollectives, GradientsMatchDifferencesOfTheSumOfAllLosses) {
  dist::run_threads(kRanks, [](Context& context) {
    for (const Case& c : cases()) {
      SCOPED_TRACE(c.name);
      const Tensor weight = random_of_rank(c.result);
      const auto loss = [&](const std::vector<Tensor>& inputs) {
        const Tensor x = all_reduce(inputs[0], ReduceOp::kAvg).select(0, context.rank());
        const Tensor y = c.f(x);
        return all_reduce((y * y * weight).sum());
      };
      Shape shape = c.shape;
      shape.insert(0, kRanks);
      const std::vector<Tensor> inputs = {random_tensor(shape, 7, kFloat64).requires_grad_()};
      gradcheck(loss, inputs);
      gradgradcheck(loss, inputs);
    }
  });
}

TEST(FunctionalCollectives, BackwardRunsInReverseOrderOfForwardOnAllRanks) {
  // The graphs of the ranks add the results in different orders, which would be a mismatch of names.
  dist::run_threads(kRanks, [](Context& context) {
    const Tensor x = full({2}, 1.0 + context.rank(), {kFloat64}).requires_grad_();
    std::vector<Tensor> results;
    for (int i = 0; i < kRanks; ++i) results.push_back(all_reduce(x * (i + 1), ReduceOp::kSum, {}, {.name = str(i)}));
    Tensor sum = results[static_cast<size_t>(context.rank())];
    for (int i = 1; i < kRanks; ++i) sum = results[static_cast<size_t>((context.rank() + i) % kRanks)] * 2 + sum;
    sum.sum().backward();
    // Rank r weights result r by 1 and the others by 2, so the weights of each result add up to 7.
    EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(2, 7 * (1 + 2 + 3 + 4)));
  });
}

// docs/extending.md has layers between which the rows are split, with exact sums.
TEST(FunctionalCollectives, TensorParallelLayersWithAllRowsMatchUnsplitLayers) {
  const Tensor x = random_tensor({6, 8}, 1, kFloat64).requires_grad_();
  const Tensor up = random_tensor({12, 8}, 2, kFloat64).requires_grad_();
  const Tensor down = random_tensor({4, 12}, 3, kFloat64).requires_grad_();
  const Tensor y = linear(relu(linear(x, up)), down);
  (y * y).sum().backward();
  dist::run_threads(kRanks, [&](Context& context) {
    const auto part = [&](const Tensor& whole, int64_t dim) {
      return whole.detach().slice(dim, 3 * context.rank(), 3 * context.rank() + 3);
    };
    const Tensor copy = x.detach().clone().requires_grad_(), up_part = part(up, 0).requires_grad_(),
                 down_part = part(down, 1).requires_grad_();
    const Tensor hidden = relu(linear(all_reduce(copy, ReduceOp::kAvg), up_part));
    const Tensor result = all_reduce(linear(hidden, down_part));
    ((result * result).sum() / kRanks).backward();
    EXPECT_TRUE(close(result, dense(y), 1e-12));
    EXPECT_TRUE(close(copy.grad() * kRanks, dense(x.grad()), 1e-12));
    EXPECT_TRUE(close(up_part.grad(), dense(part(up.grad(), 0)), 1e-12));
    EXPECT_TRUE(close(down_part.grad(), dense(part(down.grad(), 1)), 1e-12));
  });
}

TEST(FunctionalCollectives, GroupsAreKeptUntilBackward) {
  dist::run_threads(kRanks, [](Context& context) {
    if (context.rank() % 2 == 0) return;
    auto group = context.new_group({1, 3});
    const std::weak_ptr<dist::ProcessGroup> kept = group;
    const Tensor x = full({2}, context.rank(), {kFloat32}).requires_grad_();
    Tensor y = broadcast(x, 1, group);
    group.reset();
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>(2, 3));
    (y * context.rank()).sum().backward();
    EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(2, context.rank() == 3 ? 1 + 3 : 0));
    y = {};
    EXPECT_TRUE(kept.expired());
  });
}

TEST(FunctionalCollectives, InvalidCallsAreRejected) {
  dist::run_threads(kRanks, [](Context&) {
    const Tensor x = ones({6, 2});
    EXPECT_ERROR(ValueError, all_reduce(x, ReduceOp::kMax),
                 "functional::all_reduce: op is max, expected sum or avg; other operators have no gradient here, use "
                 "ProcessGroup::all_reduce");
    EXPECT_ERROR(ValueError, reduce_scatter(x, ReduceOp::kProduct),
                 "functional::reduce_scatter: op is product, expected sum or avg; other operators have no gradient "
                 "here, use ProcessGroup::reduce_scatter");
    EXPECT_ERROR(ShapeError, all_to_all(x),
                 "functional::all_to_all: input is float32 [6, 2] on cpu, expected a dimension 0 that is a multiple of "
                 "4 ranks; pass output_splits and input_splits");
  });
}

TEST(FunctionalCollectives, InputsThatRequireGradOnSomeRanksAreAnErrorInForward) {
  const std::string text = error_text<CommError>([] {
    dist::run_threads(2, [](Context& context) {
      all_gather(ones({2}).requires_grad_(context.rank() == 1), {}, {.name = "features"});
    });
  });
  EXPECT_EQ(std::regex_replace(text, std::regex("^.rank . of 2. |, [^ ]*_test.cc:[0-9]+"), ""),
            "all_gather #1: calls do not match across ranks\n"
            "  rank 0  all_gather float32 [2], 'features'\n"
            "  rank 1  all_gather float32 [2], 'features, requires grad'");
}

}}  // namespace tandem::testing
