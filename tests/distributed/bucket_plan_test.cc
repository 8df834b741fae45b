#include <tandem/distributed/ddp/bucket_plan.h>

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem::distributed { namespace {

std::vector<ParameterInfo> mlp() {
  return {{"fc1.weight", 1024 * 784}, {"fc1.bias", 1024},        {"fc2.weight", 1024 * 1024},
          {"fc2.bias", 1024},         {"fc3.weight", 10 * 1024}, {"fc3.bias", 10}};
}

/// Buckets cover every buffer exactly once, and each bucket lists its parameters.
void expect_complete(const std::vector<ParameterInfo>& parameters, const BucketPlan& plan) {
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (const auto& bucket : plan.buckets) {
      if (bucket.buffer == static_cast<int>(b)) ranges.emplace_back(bucket.begin, bucket.end);
    }
    std::sort(ranges.begin(), ranges.end());
    int64_t position = 0;
    for (const auto& [begin, end] : ranges) {
      EXPECT_EQ(begin, position);
      EXPECT_LT(begin, end);
      position = end;
    }
    EXPECT_EQ(position, plan.buffers[b].num_elements);
  }
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto& placement = plan.placements[p];
    EXPECT_EQ(placement.offset * size_of(parameters[p].dtype) % 64, 0);
    for (const auto& bucket : plan.buckets) {
      const bool overlaps = bucket.buffer == placement.buffer && placement.offset < bucket.end &&
                            bucket.begin < placement.offset + parameters[p].num_elements;
      if (overlaps) {
        EXPECT_LE(bucket.first_parameter, static_cast<int>(p));
        EXPECT_GE(bucket.last_parameter, static_cast<int>(p));
      }
    }
  }
}

TEST(BucketPlan, FirstBucketHoldsOnlyLastModule) {
  const BucketPlan plan = plan_buckets(mlp());
  expect_complete(mlp(), plan);
  ASSERT_EQ(plan.buckets.size(), 4u);  // fc3; fc2 in two parts, because with its bias it exceeds 4 MiB; fc1
  EXPECT_EQ(plan.buckets[0].first_parameter, 4);
  EXPECT_EQ(plan.buckets[0].last_parameter, 5);
  EXPECT_EQ(plan.buckets[1].first_parameter, 2);
  EXPECT_EQ(plan.buckets[1].last_parameter, 3);
  EXPECT_EQ(plan.buckets[3].first_parameter, 0);
  EXPECT_EQ(plan.buckets[3].last_parameter, 1);
}

TEST(BucketPlan, DisabledSplitKeepsLargeModulesWhole) {
  const BucketPlan plan = plan_buckets(mlp(), {.split = false});
  expect_complete(mlp(), plan);
  ASSERT_EQ(plan.buckets.size(), 3u);  // fc3, fc2, fc1
  EXPECT_EQ(plan.buckets[1].first_parameter, 2);
  EXPECT_EQ(plan.buckets[1].last_parameter, 3);
  EXPECT_EQ(plan.buckets[1].end - plan.buckets[1].begin, 1024 * 1024 + 1024);
}

TEST(BucketPlan, SmallModulesShareBucketsAndLastBucketsShrink) {
  std::vector<ParameterInfo> parameters;
  for (int i = 0; i < 40; ++i) parameters.push_back({"layer" + std::to_string(i) + ".weight", 1024});  // 4 KiB each
  const BucketPlan plan =
      plan_buckets(parameters, {.first_bytes = 8 << 10, .bucket_bytes = 64 << 10, .last_bytes = 8 << 10});
  expect_complete(parameters, plan);
  std::vector<int64_t> sizes;
  for (const auto& bucket : plan.buckets) sizes.push_back((bucket.end - bucket.begin) / 1024);
  EXPECT_EQ(sizes, (std::vector<int64_t>{2, 16, 11, 5, 3, 2, 1}));
}

TEST(BucketPlan, SingleParameterGetsOnePaddedBucket) {
  const std::vector<ParameterInfo> parameters = {{"w", 3}};
  const BucketPlan plan = plan_buckets(parameters);
  expect_complete(parameters, plan);
  ASSERT_EQ(plan.buckets.size(), 1u);
  EXPECT_EQ(plan.buffers[0].num_elements, 16);  // padded to 64 bytes
}

TEST(BucketPlan, EmptyParameterGivesCompletePlan) {
  const std::vector<ParameterInfo> parameters = {{"a", 5}, {"empty", 0}, {"b", 7}};
  expect_complete(parameters, plan_buckets(parameters));
}

TEST(BucketPlan, TinyBucketsSplitParameters) {
  const std::vector<ParameterInfo> parameters = {{"a.w", 100}, {"b.w", 1000}};
  const BucketPlan plan = plan_buckets(parameters, {64, 64, 64});
  expect_complete(parameters, plan);
  EXPECT_EQ(plan.buckets.size(), 63u + 7u);
}

TEST(BucketPlan, MixedDtypesInterleaveBucketsInReadinessOrder) {
  const std::vector<ParameterInfo> parameters = {
      {"a.w", 10, kFloat32}, {"b.w", 10, kFloat64}, {"c.w", 10, kFloat32}, {"d.w", 10, kFloat64}};
  const BucketPlan plan = plan_buckets(parameters, {64, 64, 64});
  expect_complete(parameters, plan);
  EXPECT_EQ(plan.buffers.size(), 2u);
  std::vector<int> order;
  for (const auto& bucket : plan.buckets) {
    if (order.empty() || order.back() != bucket.first_parameter) order.push_back(bucket.first_parameter);
  }
  EXPECT_EQ(order, (std::vector<int>{3, 2, 1, 0}));
}

}}  // namespace tandem::distributed
