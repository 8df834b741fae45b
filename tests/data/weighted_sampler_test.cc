#include <tandem/data/sampler.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::data::WeightedRandomSampler;
using td::testing::error_text;

namespace {

using Indices = std::vector<int64_t>;

TEST(WeightedRandomSampler, FrequenciesFollowTheWeights) {
  constexpr int64_t kDraws = 40000;
  const std::vector<double> weights = {0, 1, 0, 5, 2, 0};
  WeightedRandomSampler sampler(weights, kDraws, {.seed = 3});
  EXPECT_EQ(sampler.size(), kDraws);
  std::map<int64_t, int64_t> counts;
  for (const int64_t item : sampler.begin_epoch()) ++counts[item];
  EXPECT_EQ(counts.size(), 3u);
  for (const size_t item : {1, 3, 4}) {
    const double p = weights[item] / 8;
    EXPECT_NEAR(static_cast<double>(counts[static_cast<int64_t>(item)]), p * kDraws,
                4 * std::sqrt(kDraws * p * (1 - p)));
  }
}

// The probability that item j is the first and k the second is w_j / W * w_k / (W - w_j).
TEST(WeightedRandomSampler, DrawsWithoutReplacementAreProportionalToTheWeightsLeft) {
  constexpr int kEpochs = 20000;
  const std::vector<double> weights = {1, 0, 3, 6};
  WeightedRandomSampler sampler(weights, 2, {.replacement = false, .seed = 4});
  std::map<Indices, int> counts;
  for (int i = 0; i < kEpochs; ++i) ++counts[sampler.begin_epoch()];
  EXPECT_EQ(counts.size(), 6u);
  for (const auto& [pair, count] : counts) {
    const double first = weights[static_cast<size_t>(pair[0])], second = weights[static_cast<size_t>(pair[1])];
    const double p = first / 10 * second / (10 - first);
    EXPECT_NEAR(count, p * kEpochs, 4 * std::sqrt(kEpochs * p * (1 - p))) << pair[0] << " " << pair[1];
  }
}

TEST(WeightedRandomSampler, EpochsDependOnSeedAndNumberAlone) {
  const std::vector<double> weights(50, 0.5);
  for (const bool replacement : {true, false}) {
    const auto epoch = [&](uint64_t seed, int64_t number) {
      WeightedRandomSampler sampler(weights, 50, {.replacement = replacement, .seed = seed});
      sampler.set_epoch(number);
      return sampler.begin_epoch();
    };
    EXPECT_EQ(epoch(1, 2), epoch(1, 2));
    EXPECT_NE(epoch(1, 2), epoch(1, 3));
    EXPECT_NE(epoch(1, 2), epoch(2, 2));
    const Indices order = epoch(1, 2);
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size() == 50u, !replacement);
  }
}

TEST(WeightedRandomSampler, RanksDivideTheDraws) {
  const std::vector<double> weights = {1, 2, 3, 4};
  const Indices all = WeightedRandomSampler(weights, 10, {.seed = 5}).begin_epoch();
  for (const int world_size : {2, 3}) {
    for (int rank = 0; rank < world_size; ++rank) {
      WeightedRandomSampler sampler(weights, 10, {.seed = 5, .rank = rank, .world_size = world_size});
      EXPECT_EQ(sampler.size(), (10 + world_size - 1) / world_size);
      const Indices mine = sampler.begin_epoch();
      for (size_t i = 0; i < mine.size(); ++i) {
        EXPECT_EQ(mine[i], all[(static_cast<size_t>(rank) + i * static_cast<size_t>(world_size)) % 10]);
      }
    }
  }
}

TEST(WeightedRandomSampler, AnotherNumberOfRanksResumesWithinAnEpoch) {
  const std::vector<double> weights = {1, 2, 3, 4};
  const Indices all = WeightedRandomSampler(weights, 12, {.seed = 5}).begin_epoch();
  WeightedRandomSampler two(weights, 12, {.seed = 5, .rank = 0, .world_size = 2});
  two.begin_epoch();
  two.advance(3);
  for (int rank = 0; rank < 3; ++rank) {
    WeightedRandomSampler three(weights, 12, {.seed = 0, .rank = rank, .world_size = 3});
    three.load_state_dict(two.state_dict());
    EXPECT_EQ(three.begin_epoch(), (Indices{all[6 + static_cast<size_t>(rank)], all[9 + static_cast<size_t>(rank)]}));
  }
}

TEST(WeightedRandomSampler, InvalidArgumentsAreRejected) {
  const auto error_of = [](std::vector<double> weights, int64_t num_samples,
                           td::data::WeightedRandomSamplerOptions options) {
    return error_text<td::ValueError>([&] { WeightedRandomSampler(weights, num_samples, options); });
  };
  EXPECT_EQ(error_of({1, -2}, 1, {}), "WeightedRandomSampler: weight 1 is -2, expected a finite number of at least 0");
  EXPECT_EQ(error_of({std::numeric_limits<double>::quiet_NaN()}, 1, {}),
            "WeightedRandomSampler: weight 0 is nan, expected a finite number of at least 0");
  EXPECT_EQ(error_of({0, 0}, 1, {}),
            "WeightedRandomSampler: all 2 weights are 0, expected at least one positive weight");
  EXPECT_EQ(error_of({1, 0, 2}, 3, {.replacement = false}),
            "WeightedRandomSampler: num_samples is 3, expected at most 2, the number of positive weights, without "
            "replacement");
  EXPECT_EQ(error_of({1}, -1, {}), "DistributedSampler: size is -1, expected at least 0");
  EXPECT_EQ(error_of({1}, 1, {.rank = 1}), "DistributedSampler: rank is 1, expected 0 <= rank < world_size 1");
}

}  // namespace
