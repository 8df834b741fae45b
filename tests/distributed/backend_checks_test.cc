// The closed forms and the checks of collectives find faults.
#include <tandem/tests/distributed/backend_checks.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

void copy_part(const Part& from, const Part& to, DType dtype) {
  if (from.data != to.data) std::memcpy(to.data, from.data, static_cast<size_t>(to.num_elements * size_of(dtype)));
}

/// Any collective of a group of one rank: its results are its inputs.
void run_single(Collective& c) {
  std::byte* const input = const_cast<std::byte*>(c.input);
  if (c.kind == CollectiveKind::kBarrier || c.kind == CollectiveKind::kBroadcast) return;
  const Part from = c.inputs.empty() ? Part{input, c.num_elements, {}} : c.inputs[0];
  copy_part(from, c.outputs.empty() ? Part{c.output, from.num_elements, {}} : c.outputs[0], c.dtype);
}

/// The first byte that the collective writes.
std::byte& result_of(Collective& c) { return c.outputs.empty() ? *c.output : *c.outputs[0].data; }

BackendChecks checks_of(int rank, int size, const BackendChecks::Run& run) {
  return {rank, size, kInt32, ReduceOp::kSum, run};
}

constexpr int kBarrierVariant = BackendChecks::kVariants - 1;

TEST(BackendChecks, AcceptCorrectResults) {
  for (int variant = 0; variant < BackendChecks::kVariants; ++variant) {
    EXPECT_NO_THROW(checks_of(0, 1, run_single).variant(variant, 19)) << variant;
  }
}

TEST(BackendChecks, FindOneWrongByte) {
  const auto wrong = [](Collective& c) {
    run_single(c);
    result_of(c) ^= std::byte{1};
  };
  for (int variant = 0; variant < kBarrierVariant; ++variant) {
    EXPECT_THROW(checks_of(0, 1, wrong).variant(variant, 19), StateError) << variant;
  }
}

TEST(BackendChecks, FindAChangedInput) {
  const auto wrong = [](Collective& c) {
    run_single(c);
    if (c.inputs.empty()) {
      const_cast<std::byte&>(*c.input) ^= std::byte{1};
    } else {
      *c.inputs[0].data ^= std::byte{1};
    }
  };
  for (int variant = 0; variant < kBarrierVariant; ++variant) {
    EXPECT_THROW(checks_of(0, 1, wrong).variant(variant, 19), StateError) << variant;
  }
}

TEST(BackendChecks, FindMissingResultsOnSomeRank) {
  for (int variant = 0; variant < kBarrierVariant; ++variant) {
    int num_thrown = 0;
    for (int rank = 0; rank < 3; ++rank) {
      try {
        checks_of(rank, 3, [](Collective&) {}).variant(variant, 19);
      } catch (const StateError&) {
        ++num_thrown;
      }
    }
    EXPECT_GT(num_thrown, 0) << variant;
  }
}

TEST(ClosedForm, CountWrongCountsEveryDifference) {
  const Tensor x = from_vector<double>({1, 2, std::nan("")}, {3});
  EXPECT_EQ(count_wrong(x, [](int64_t i) { return static_cast<double>(i + 1); }), 1);
  EXPECT_EQ(count_wrong(x, [](int64_t) { return 2.0; }), 2);
  EXPECT_EQ(count_wrong(from_vector<double>({1, 2}, {2}), [](int64_t i) { return static_cast<double>(i + 1); }), 0);
}

TEST(ClosedForm, ReductionsMatchTheOperators) {
  const auto of = [](ReduceOp op, DType dtype) {
    const double values[] = {6, 3, 5};
    return reduced(3, op, dtype, [&](int rank) { return values[rank]; });
  };
  EXPECT_EQ(of(ReduceOp::kSum, kInt32), 14);
  EXPECT_EQ(of(ReduceOp::kProduct, kInt32), 90);
  EXPECT_EQ(of(ReduceOp::kMin, kInt32), 3);
  EXPECT_EQ(of(ReduceOp::kMax, kInt32), 6);
  EXPECT_EQ(of(ReduceOp::kBitAnd, kInt32), 0);
  EXPECT_EQ(of(ReduceOp::kBitOr, kInt32), 7);
  EXPECT_EQ(of(ReduceOp::kBitXor, kInt32), 0);
  EXPECT_EQ(of(ReduceOp::kAvg, kFloat64), 14.0 / 3);
  EXPECT_EQ(of(ReduceOp::kAvg, kFloat32), static_cast<double>(14.0f / 3));
  EXPECT_EQ(of(ReduceOp::kSum, kBool), 1);
}

TEST(ClosedForm, ResultsAreRoundedOnce) {
  const double unit = std::ldexp(1, -8);  // half a unit in the last place of bfloat16 at 1
  const auto sum = [&](int world) {
    return reduced(world, ReduceOp::kSum, kBFloat16, [&](int rank) { return rank == 0 ? 1 : unit; });
  };
  EXPECT_EQ(sum(2), 1);
  EXPECT_EQ(sum(3), 1 + 2 * unit);
}

}}}}  // namespace tandem::v0::distributed
