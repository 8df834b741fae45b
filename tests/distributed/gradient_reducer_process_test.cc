// Process ranks train like one process on the whole batch, bit-identically to thread ranks.
#include <tandem/distributed/ddp/gradient_reducer.h>

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/launch.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/random.h>
#include <tandem/tests/distributed/small_net.h>

namespace tandem::distributed { namespace {

constexpr int kSteps = 5;
constexpr BucketSizes kTiny = {64, 64, 64};

TANDEM_RANK_MAIN(train_on_part) {
  const std::vector<double> expected = joined_batch(kSteps);
  const std::vector<double> got = part_of_batch(context, kSteps, kTiny);
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool close = std::abs(got[i] - expected[i]) <= 1e-12;
    TANDEM_CHECK(StateError, close, "parameter element ", i, ": got ", got[i], ", the joined batch gives ",
                 expected[i]);
  }
  if (context.rank() != 0) return;
  std::ofstream file(args.at(0), std::ios::binary);
  file.write(reinterpret_cast<const char*>(got.data()), static_cast<std::streamsize>(got.size() * sizeof(double)));
}

class GradientReducerProcesses : public testing::TestWithParam<int> {};

TEST_P(GradientReducerProcesses, MatchesFullBatchAndEqualsThreadRanksBitwise) {
  const int world = GetParam();
  const std::string path = testing::TempDir() + "/parameters-" + std::to_string(world);
  spawn(world, "train_on_part", {path});

  std::vector<double> of_threads;
  run_threads(world, [&](Context& context) {
    std::vector<double> got = part_of_batch(context, kSteps, kTiny);
    if (context.rank() == 0) of_threads = std::move(got);
  });
  std::vector<double> of_processes(of_threads.size() + 1);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(of_processes.data()),
            static_cast<std::streamsize>(of_processes.size() * sizeof(double)));
  ASSERT_EQ(file.gcount(), static_cast<std::streamsize>(of_threads.size() * sizeof(double)));
  of_processes.pop_back();
  EXPECT_EQ(of_processes, of_threads);
}

INSTANTIATE_TEST_SUITE_P(, GradientReducerProcesses, testing::Values(2, 3, 4));

TANDEM_RANK_MAIN(start_with_equal_weights) {
  manual_seed(0);
  const nn::Linear layer(6, 5);
  const Tensor weight = layer.weight.detach(), noise = rand({4});
  for (const auto& [values, is_equal] : {std::pair(weight, true), {noise, false}}) {
    const Tensor lowest = values.clone(), highest = values.clone();
    context.group()->all_reduce(lowest, ReduceOp::kMin);
    context.group()->all_reduce(highest, ReduceOp::kMax);
    TANDEM_CHECK(StateError, equal(lowest, highest) == is_equal, "equal on all ranks: ", !is_equal);
  }
}

TEST(ManualSeed, ProcessesHaveEqualWeightsAndOtherRandomNumbers) { spawn(3, "start_with_equal_weights"); }

}}  // namespace tandem::distributed
