// Process ranks train like one process on the whole batch, bit-identically to thread ranks.
#include <tandem/distributed/ddp/gradient_reducer.h>

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/data/data_loader.h>
#include <tandem/data/digits.h>
#include <tandem/data/sampler.h>
#include <tandem/distributed/launch.h>
#include <tandem/models/lenet.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/loss.h>
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

bool is_equal_on_all_ranks(Context& context, const Tensor& values) {
  const Tensor lowest = values.clone(), highest = values.clone();
  context.group()->all_reduce(lowest, ReduceOp::kMin);
  context.group()->all_reduce(highest, ReduceOp::kMax);
  return equal(lowest, highest);
}

// Nobody sends weights: equal initial values and equal sums of gradients keep the models equal.
TANDEM_RANK_MAIN(train_with_gradients_averaged_by_hand) {
  manual_seed(0);
  models::LeNet net;
  TANDEM_CHECK(StateError, !is_equal_on_all_ranks(context, rand({4})), "equal random numbers on all ranks");
  optim::SGD sgd(net.parameters(), {.lr = 0.05, .momentum = 0.9});
  const data::DigitsDataset digits(1024);
  data::DistributedSampler sampler(digits.size(), context.rank(), context.world_size());
  data::DataLoader loader(digits, sampler, {.batch_size = 16});
  std::vector<double> losses;
  for (const data::Batch& batch : loader) {
    sgd.zero_grad();
    const Tensor loss = cross_entropy(net(batch.input), batch.target);
    loss.backward();
    for (const Tensor& parameter : net.parameters()) {
      context.group()->all_reduce(parameter.grad());
      parameter.grad().div_(Scalar(context.world_size()));
    }
    sgd.step();
    losses.push_back(loss.item());
  }
  for (const auto& [name, parameter] : net.named_parameters()) {
    TANDEM_CHECK(StateError, is_equal_on_all_ranks(context, parameter.detach()), name, " differs between ranks");
  }
  TANDEM_CHECK(StateError, losses.back() < 0.9 * losses[0], "the loss was ", losses[0], ", now ", losses.back());
}

TEST(ManualSeed, ModelsTrainedWithGradientsAveragedByHandAreEqual) {
  spawn(2, "train_with_gradients_averaged_by_hand");
}

}}  // namespace tandem::distributed
