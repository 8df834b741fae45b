// Epochs of Trainer: their last step, and resuming on another number of ranks or with other data.
#include <mutex>

#include <tandem/tandem.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>
#include <tandem/train/trainer.h>

namespace td = tandem;

namespace {

using tandem::testing::TemporaryFolder;
using td::train::Evaluation;
using td::train::Trainer;
using td::train::TrainerOptions;

/// A model whose gradient is the mean of its inputs.
struct Scale : td::nn::Layer {
  td::Tensor weight = add_parameter("weight", td::zeros({1}));
  td::Tensor forward(const td::Tensor& x) override { return x * weight; }
};

/// Result of train_numbers().
struct Numbers {
  std::vector<int64_t> visits;     ///< of each item
  std::vector<int64_t> evaluated;  ///< steps
  double weight = 0;
  double lr = 0;
  std::string text;  ///< printed
};

/// Trains Scale on the numbers 0, 1, .. in batches of `batch_size`, with a cosine schedule over two epochs if there are
/// checkpoints. The ranks share sizes[0] numbers or, if there are several sizes, rank r has its own sizes[r].
Numbers train_numbers(int num_ranks, std::vector<int64_t> sizes, int64_t batch_size, TrainerOptions options) {
  Numbers result;
  result.visits.resize(static_cast<size_t>(*std::max_element(sizes.begin(), sizes.end())));
  std::mutex mutex;
  testing::internal::CaptureStdout();
  try {
    td::distributed::run_threads(num_ranks, [&](td::distributed::Context& ctx) {
      const int64_t size = sizes.size() == 1 ? sizes[0] : sizes.at(static_cast<size_t>(ctx.rank()));
      const td::data::TensorDataset numbers({.input = td::arange(0, size, 1, {td::kFloat32}).view({size, 1})});
      td::data::DistributedSampler shared(size, ctx.rank(), ctx.world_size());
      td::data::SequentialSampler own(size);
      td::data::DataLoader loader(numbers, sizes.size() == 1 ? static_cast<td::data::Sampler&>(shared) : own,
                                  {.batch_size = batch_size});
      Scale model;
      td::DistributedDataParallel ddp(model, ctx.group());
      td::optim::SGD sgd(model.parameters(), {.lr = 1});
      TrainerOptions two_epochs = options;
      two_epochs.epochs = 2;
      two_epochs.max_steps = 0;
      td::optim::CosineAnnealingLR cosine(sgd, {.T_max = two_epochs.total_steps(loader.size())});
      Trainer trainer(ctx, options,
                      {.model = model,
                       .reducer = ddp.reducer(),
                       .optimizer = sgd,
                       .schedule = options.save_every > 0 ? &cosine : nullptr,
                       .loader = loader});
      trainer.fit(
          [&](const td::data::Batch& batch) {
            const std::lock_guard lock(mutex);
            for (const float item : batch.input.to_vector<float>()) ++result.visits.at(static_cast<size_t>(item));
            return ddp(batch.input).mean();
          },
          [&] {
            if (ctx.rank() == 0) result.evaluated.push_back(trainer.step());
            return Evaluation{};
          });
      if (ctx.rank() == 0) result.weight = model.weight.item();
      if (ctx.rank() == 0) result.lr = sgd.lr();
    });
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
  result.text = testing::internal::GetCapturedStdout();
  return result;
}

TEST(Trainer, TheLastStepOfAnEpochAveragesTheRemainingBatches) {
  const TemporaryFolder folder;
  const TrainerOptions options = {.epochs = 2, .accumulate = 4, .out = folder / "out", .verbose = false};
  const Numbers one = train_numbers(1, {10}, 1, options);  // the last batch of an epoch is of no other step
  EXPECT_EQ(one.evaluated, (std::vector<int64_t>{3, 6}));
  EXPECT_EQ(one.visits, std::vector<int64_t>(10, 2));
  // Rank 0 has steps of the batches 0 to 3, 4 to 7, and 8 and 9; the last step of rank 1 has the batch 8.
  const Numbers two = train_numbers(2, {10, 9}, 1, options);
  EXPECT_EQ(two.evaluated, one.evaluated);
  EXPECT_EQ(two.weight, -2 * (1.5 + 5.5 + (8.5 + 8) / 2));
  EXPECT_ERROR(td::ValueError, train_numbers(2, {10, 3}, 1, options),
               "Trainer: the ranks have from 1 to 3 steps per epoch, expected equally many; distribute the data by a "
               "DistributedSampler");
}

TEST(Trainer, AnotherNumberOfRanksTrainsTheRestOfTheEpochs) {
  // In each of two epochs every number is trained once; 24 numbers are trained before a stop within an epoch.
  for (const auto& [before, after] : std::vector<std::pair<int, int>>{{1, 2}, {1, 4}, {2, 1}, {2, 3}, {3, 4}, {4, 3}}) {
    for (const bool within_epoch : {false, true}) {
      SCOPED_TRACE(td::str(before, " to ", after, " ranks, within an epoch: ", within_epoch));
      const TemporaryFolder folder;
      TrainerOptions options = {
          .max_steps = within_epoch ? 12 / before : 0, .out = folder / "out", .save_every = 100, .log_every = 1};
      const Numbers first = train_numbers(before, {96}, 2, options);
      options.epochs = 2;
      options.max_steps = 0;
      options.resume = true;
      const Numbers second = train_numbers(after, {96}, 2, options);
      for (size_t i = 0; i < 96; ++i) EXPECT_EQ(first.visits[i] + second.visits[i], 2) << i;
      EXPECT_NEAR(second.lr, 0, 1e-12);
      const int64_t done = (within_epoch ? 24 : 96) / (2 * before);
      const int64_t of_epoch = 48 / after;
      const int64_t total = done + (within_epoch ? 84 : 48) / after;
      const auto has = [&](const std::string& line) {
        EXPECT_NE(second.text.find(line), std::string::npos) << line << "\n" << second.text;
      };
      has(td::str(": ", done, " steps of ", total, " done\n"));
      has(td::str("an epoch now has ", of_epoch, " steps: schedules continue at step ",
                  (within_epoch ? 12 : 48) / after, " of ", 2 * of_epoch, "\n"));
      if (within_epoch) has(td::str("\nepoch 1  step ", done + 36 / after, "/", total, "  "));
      has(td::str("\nepoch 2  step ", total, "/", total, "  "));
      EXPECT_EQ(second.evaluated.back(), total);
    }
  }
}

TEST(Trainer, OtherDataAreTrainedFromTheNextEpochOn) {
  const TemporaryFolder folder;
  TrainerOptions options = {.out = folder / "out", .save_every = 100};
  train_numbers(2, {24}, 2, options);
  options.epochs = 2;
  options.resume = true;
  options.max_steps = 10;  // 6 of the first epoch, 4 of 12 of the second
  const Numbers second = train_numbers(2, {48}, 2, options);
  EXPECT_EQ(std::count(second.visits.begin(), second.visits.end(), 1), 16);
  EXPECT_NE(second.text.find(": 6 steps of 10 done\n"), std::string::npos) << second.text;
  options.max_steps = 0;
  EXPECT_ERROR(td::StateError, train_numbers(2, {24}, 2, options),
               "DistributedSampler: the state was saved within an epoch of a dataset of 48 items, but this sampler's "
               "has 24; resume with the same dataset, or from the end of an epoch");
  const Numbers third = train_numbers(2, {48}, 2, options);
  for (size_t i = 0; i < 48; ++i) EXPECT_EQ(second.visits[i] + third.visits[i], 1) << i;
  EXPECT_NEAR(third.lr, 0, 1e-12);
}

}  // namespace
