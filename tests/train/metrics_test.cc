// Metrics: values, exact sums, and equal results for every distribution of the samples over ranks.
#include <mutex>

#include <tandem/data/sampler.h>
#include <tandem/distributed/context.h>
#include <tandem/distributed/launch.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/index.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/random.h>
#include <tandem/ops/reduce.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tests/support/test.h>
#include <tandem/train/metrics.h>

namespace td = tandem;

namespace {

using tandem::testing::error_text;
using td::train::Accuracy;
using td::train::ConfusionMatrix;
using td::train::ConfusionNormalize;
using td::train::Mean;
using td::train::Perplexity;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kTiny = std::numeric_limits<double>::denorm_min();
constexpr int64_t kIgnored = -100;

td::Tensor scores() {
  return td::tensor({0.1f, 0.7f, 0.2f,   // class 1, then 2, 0
                     0.5f, 0.1f, 0.4f,   // 0, 2, 1
                     0.2f, 0.2f, 0.6f,   // 2, then 0 before 1: equal scores
                     0.3f, 0.3f, 0.3f})  // 0, 1, 2
      .reshape({4, 3});
}

td::Tensor classes(std::vector<int64_t> values) {
  const td::Tensor tensor = td::empty({static_cast<int64_t>(values.size())}, {td::kInt64});
  std::copy(values.begin(), values.end(), tensor.data<int64_t>());
  return tensor;
}

TEST(Accuracy, CountsLargestScores) {
  Accuracy accuracy;
  EXPECT_TRUE(std::isnan(accuracy.compute()));
  accuracy.update(scores(), classes({1, 2, 2, 0}));
  EXPECT_EQ(accuracy.compute(), 0.75);
  accuracy.update(scores(), classes({0, 0, 0, 1}));
  EXPECT_EQ(accuracy.compute(), 0.5);
  accuracy.reset();
  EXPECT_TRUE(std::isnan(accuracy.compute()));
}

TEST(Accuracy, TopKCountsEqualScoresInTheOrderOfClasses) {
  Accuracy accuracy({.top_k = 2});
  accuracy.update(scores(), classes({2, 2, 0, 1}));
  EXPECT_EQ(accuracy.compute(), 1);
  accuracy.reset();
  accuracy.update(scores(), classes({0, 1, 1, 2}));
  EXPECT_EQ(accuracy.compute(), 0);
}

TEST(Accuracy, AcceptsClassesHalfScoresAndStrides) {
  Accuracy accuracy;
  accuracy.update(classes({4, 5, 6}), classes({4, 5, 7}));
  EXPECT_EQ(accuracy.compute(), 2.0 / 3);
  accuracy.reset();
  accuracy.update(scores().to(td::kBFloat16), classes({1, 0, 2, 0}));
  accuracy.update(scores().t().contiguous().t(), classes({1, 0, 2, 0}));
  EXPECT_EQ(accuracy.compute(), 1);
}

TEST(Accuracy, IgnoredTargetsAreNotCounted) {
  Accuracy accuracy({.ignore_index = kIgnored});
  accuracy.update(scores(), classes({1, kIgnored, 0, kIgnored}));
  EXPECT_EQ(accuracy.compute(), 0.5);
}

TEST(Accuracy, InputsOnAnotherDeviceAreCopied) {
  if (td::cpu_device_count() < 2) td::set_cpu_device_count(2);
  const td::Device other(td::DeviceType::kCPU, 1);
  Accuracy accuracy;
  accuracy.update(scores().to(other), classes({1, 0, 0, 0}).to(other));
  EXPECT_EQ(accuracy.compute(), 0.75);
  EXPECT_ERROR(td::DeviceError, accuracy.update(scores().to(other), classes({1, 0, 0, 0})),
               "Accuracy: preds is on cpu:1, target on cpu, expected one device");
}

TEST(Accuracy, WrongArgumentsThrowAndAddNothing) {
  EXPECT_EQ(error_text<td::ValueError>([] { Accuracy accuracy({.top_k = 0}); }),
            "Accuracy: top_k is 0, expected at least 1");
  Accuracy accuracy({.top_k = 2});
  accuracy.update(scores(), classes({1, 0, 1, 0}));
  EXPECT_EQ(accuracy.compute(), 0.75);
  const std::string misfit = " do not fit, expected scores [N, C] or classes [N], and target [N]";
  EXPECT_ERROR(td::ShapeError, accuracy.update(scores(), classes({1, 0, 1})),
               "Accuracy: preds [4, 3] and target [3]" + misfit);
  EXPECT_ERROR(td::ShapeError, accuracy.update(scores()[0], classes({1, 0, 1})),
               "Accuracy: preds [3] and target [3]" + misfit);
  EXPECT_ERROR(td::DTypeError, accuracy.update(scores(), td::ones({4})), "Accuracy: target is float32, expected int64");
  EXPECT_ERROR(td::DTypeError, accuracy.update(td::ones({4}, {td::kInt32}), classes({1, 0, 1, 0})),
               "Accuracy: preds is int32, expected scores of a floating dtype, or classes as int64");
  EXPECT_ERROR(td::IndexError, accuracy.update(scores(), classes({1, 0, 3, 0})),
               "Accuracy: target[2] is 3, expected a class in [0, 3)");
  EXPECT_ERROR(td::IndexError, accuracy.update(scores(), classes({1, kIgnored, 2, 0})),
               "Accuracy: target[1] is -100, expected a class in [0, 3)");
  EXPECT_ERROR(td::ValueError, accuracy.update(td::ones({4, 1}), classes({0, 0, 0, 0})),
               "Accuracy: top_k is 2, expected at most 1, the number of classes of preds");
  EXPECT_ERROR(td::ValueError, accuracy.update(classes({0}), classes({0})),
               "Accuracy: top_k is 2, expected at most 1 because preds are classes");
  EXPECT_ERROR(td::StateError, accuracy.update(td::Tensor(), classes({0})), "Accuracy: preds is undefined");
  EXPECT_EQ(accuracy.compute(), 0.75);
}

double mean_of(const std::vector<double>& values) {
  Mean mean;
  for (const double value : values) mean.update(value);
  return mean.compute();
}

TEST(Mean, WeightsCountRepetitions) {
  Mean mean;
  EXPECT_TRUE(std::isnan(mean.compute()));
  mean.update(2.5, 3);
  mean.update(td::tensor({1.0f, 5.0f}), 2);
  mean.update(kNan, 0);
  EXPECT_EQ(mean.compute(), (2.5 * 3 + 2 * 6) / 7);
  mean.reset();
  mean.update(td::tensor({int64_t{7}, int64_t{8}}));
  EXPECT_EQ(mean.compute(), 7.5);

  mean.reset();
  mean.update(0.1, 3);  // 0.1 * 3 is not a float64
  for (int i = 0; i < 3; ++i) mean.update(-0.1);
  EXPECT_EQ(mean.compute(), 0);
}

TEST(Mean, SumIsExactAndRoundedOnce) {
  EXPECT_EQ(mean_of({1e16, 1, -1e16, 0}), 0.25);
  EXPECT_EQ(mean_of({1e300, 1e-300, -1e300}), 1e-300 / 3);
  EXPECT_EQ(mean_of({-3, 1, -2, -8}), -3);
  EXPECT_EQ(mean_of({0, -0.0}), 0);
  EXPECT_EQ(mean_of({-kTiny}), -kTiny);
  EXPECT_EQ(mean_of({kTiny, kTiny}), kTiny);
  const double largest = std::numeric_limits<double>::max();
  EXPECT_EQ(mean_of({largest, largest, -largest, -largest, 4}), 0.8);
  EXPECT_EQ(mean_of({largest}), largest);
  EXPECT_EQ(mean_of({-largest}), -largest);
  // Halfway between two float64: to the even one, unless there is anything behind it.
  const double half = std::ldexp(1, -53);
  EXPECT_EQ(2 * mean_of({1, half}), 1);
  EXPECT_EQ(3 * mean_of({1, half, kTiny}), 3 * ((1 + 2 * half) / 3));
  EXPECT_EQ(2 * mean_of({1 + 2 * half, half}), 1 + 4 * half);
  EXPECT_EQ(3 * mean_of({-1, -half, -kTiny}), -3 * ((1 + 2 * half) / 3));
}

TEST(Mean, OrderDoesNotChangeTheResult) {
  std::vector<double> values;
  td::manual_seed(3);
  for (const double x : td::randn({2000}, {td::kFloat64}).to_vector<double>()) {
    values.push_back(std::ldexp(x, static_cast<int>(values.size() % 400) - 200));
  }
  const double forward = mean_of(values);
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(mean_of(values), forward);
  std::sort(values.begin(), values.end());
  EXPECT_EQ(mean_of(values), forward);
  double naive = 0;
  for (const double value : values) naive += value;
  EXPECT_NEAR(forward / (naive / 2000), 1, 1e-9);
}

TEST(Mean, InfinitiesAndNanFollowIeeeArithmetic) {
  EXPECT_EQ(mean_of({1, kInfinity}), kInfinity);
  EXPECT_EQ(mean_of({-kInfinity, 1}), -kInfinity);
  EXPECT_TRUE(std::isnan(mean_of({kInfinity, -kInfinity})));
  EXPECT_TRUE(std::isnan(mean_of({kNan, kInfinity})));
}

TEST(Mean, WeightOutOfRangeThrows) {
  Mean mean;
  EXPECT_ERROR(td::ValueError, mean.update(1, -1), "Mean: weight is -1, expected 0 to 2^53");
  EXPECT_ERROR(td::ValueError, mean.update(1, (int64_t{1} << 53) + 1),
               "Mean: weight is 9007199254740993, expected 0 to 2^53");
  EXPECT_ERROR(td::StateError, mean.update(td::Tensor()), "Mean: values is undefined");
}

TEST(Perplexity, IsExpOfTheMeanCrossEntropy) {
  td::manual_seed(1);
  const td::Tensor logits = td::randn({2, 5, 7});
  const td::Tensor tokens = td::randint(0, 7, {2, 5}, {td::kInt64});
  Perplexity perplexity;
  EXPECT_TRUE(std::isnan(perplexity.compute()));
  perplexity.update(logits, tokens);
  const double loss = td::cross_entropy(logits.reshape({10, 7}), tokens.flatten()).item();
  EXPECT_NEAR(perplexity.compute(), std::exp(loss), 1e-5);
  perplexity.update(logits.to(td::kFloat64), tokens);
  EXPECT_NEAR(perplexity.compute(), std::exp(loss), 1e-5);
  perplexity.reset();
  perplexity.update(td::zeros({3, 8}, {td::kFloat16}), classes({0, 5, 7}));
  EXPECT_NEAR(perplexity.compute(), 8, 1e-5);
}

TEST(Perplexity, IgnoredTokensAreNotCounted) {
  const td::Tensor logits = td::tensor({0.0f, 0.0f, 9.0f, 1.0f}).reshape({2, 2});
  for (const int64_t ignored : {int64_t{-1}, kIgnored, int64_t{0}}) {
    Perplexity perplexity({.ignore_index = ignored});
    perplexity.update(logits, classes({1, ignored}));
    EXPECT_NEAR(perplexity.compute(), 2, 1e-6) << ignored;
  }
}

TEST(Perplexity, WrongArgumentsThrowAndAddNothing) {
  Perplexity perplexity;
  perplexity.update(td::zeros({2, 4}), classes({0, 1}));
  EXPECT_ERROR(td::ShapeError, perplexity.update(td::zeros({2, 4}), classes({0})),
               "Perplexity: preds [2, 4] and target [1] do not fit, expected preds [..., C] and target [...]");
  EXPECT_ERROR(td::ShapeError, perplexity.update(td::zeros({2}), classes({0, 1})),
               "Perplexity: preds [2] and target [2] do not fit, expected preds [..., C] and target [...]");
  EXPECT_ERROR(td::DTypeError, perplexity.update(td::zeros({2, 4}), td::zeros({2})),
               "Perplexity: target is float32, expected int64");
  EXPECT_ERROR(td::IndexError, perplexity.update(td::zeros({2, 4}), classes({0, 4})),
               "Perplexity: target[1] is 4, expected a class in [0, 4)");
  EXPECT_ERROR(td::IndexError, perplexity.update(td::zeros({2, 4}), classes({kIgnored, 0})),
               "Perplexity: target[0] is -100, expected a class in [0, 4)");
  EXPECT_NEAR(perplexity.compute(), 4, 1e-6);
}

TEST(ConfusionMatrix, RowsAreTargetsAndColumnsPredictions) {
  ConfusionMatrix confusion(3, {.ignore_index = kIgnored});
  confusion.update(scores(), classes({1, 2, 2, kIgnored}));  // predicted 1, 0, 2, 0
  confusion.update(classes({0, 1, 1}), classes({0, 0, 1}));
  const td::Tensor counts = confusion.compute();
  EXPECT_EQ(counts.to_vector<int64_t>(), (std::vector<int64_t>{1, 1, 0, 0, 2, 0, 1, 0, 1}));
  EXPECT_EQ(counts.shape(), td::Shape({3, 3}));
  confusion.reset();
  EXPECT_EQ(confusion.compute().sum().item(), 0);
}

TEST(ConfusionMatrix, WrongArgumentsThrowAndAddNothing) {
  EXPECT_EQ(error_text<td::ValueError>([] { ConfusionMatrix confusion(0); }),
            "ConfusionMatrix: num_classes is 0, expected at least 1");
  ConfusionMatrix confusion(2);
  EXPECT_ERROR(td::ShapeError, confusion.update(scores(), classes({0, 0, 0, 0})),
               "ConfusionMatrix: preds [4, 3] has scores of 3 classes, expected num_classes 2");
  EXPECT_ERROR(td::IndexError, confusion.update(classes({0, 2}), classes({0, 0})),
               "ConfusionMatrix: preds[1] is 2, expected a class in [0, 2)");
  EXPECT_ERROR(td::IndexError, confusion.update(classes({0, 1}), classes({0, -1})),
               "ConfusionMatrix: target[1] is -1, expected a class in [0, 2)");
  EXPECT_EQ(confusion.compute().sum().item(), 0);
}

TEST(ConfusionMatrix, DerivedScoresUseZeroForEmptyClasses) {
  // Class 2 is never predicted, class 3 has no samples.
  const td::Tensor counts = classes({3, 1, 0, 0, /**/ 2, 2, 0, 1, /**/ 1, 1, 0, 0, /**/ 0, 0, 0, 0}).reshape({4, 4});
  using Values = std::vector<double>;
  EXPECT_EQ(td::train::precision(counts).to_vector<double>(), (Values{3.0 / 6, 2.0 / 4, 0, 0}));
  EXPECT_EQ(td::train::recall(counts).to_vector<double>(), (Values{3.0 / 4, 2.0 / 5, 0, 0}));
  EXPECT_EQ(td::train::f1_score(counts).to_vector<double>(), (Values{6.0 / 10, 4.0 / 9, 0, 0}));
  const auto fraction = [&](ConfusionNormalize normalize) {
    return td::train::normalize_confusion(counts, normalize).to_vector<double>();
  };
  EXPECT_EQ(fraction(ConfusionNormalize::kTrue),
            (Values{0.75, 0.25, 0, 0, 0.4, 0.4, 0, 0.2, 0.5, 0.5, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(fraction(ConfusionNormalize::kPred),
            (Values{0.5, 0.25, 0, 0, 2.0 / 6, 0.5, 0, 1, 1.0 / 6, 0.25, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(fraction(ConfusionNormalize::kAll)[0], 3.0 / 11);
}

TEST(ConfusionMatrix, DerivedScoresRejectOtherTensors) {
  EXPECT_ERROR(td::ShapeError, td::train::recall(td::zeros({2, 3}, {td::kInt64})),
               "recall: counts has shape [2, 3], expected [C, C]");
  EXPECT_ERROR(td::DTypeError, td::train::precision(td::zeros({2, 2})),
               "precision: counts is float32, expected int64; pass the result of ConfusionMatrix::compute()");
  EXPECT_ERROR(td::StateError, td::train::f1_score(td::Tensor()), "f1_score: counts is undefined");
}

TEST(Metrics, CountsBeyondFloat32AreExact) {
  constexpr int64_t kChunk = int64_t{1} << 20;
  constexpr int kChunks = 16;  // 2^24 samples, after which float32 does not count a single one
  const td::Tensor zeros = td::zeros({kChunk}, {td::kInt64});
  Accuracy accuracy;
  ConfusionMatrix confusion(2);
  for (int i = 0; i < kChunks; ++i) {
    accuracy.update(zeros, zeros);
    confusion.update(zeros, zeros);
  }
  accuracy.update(classes({1}), classes({0}));
  confusion.update(classes({0}), classes({0}));
  EXPECT_EQ(accuracy.compute(), 16777216.0 / 16777217);
  EXPECT_EQ(confusion.compute().to_vector<int64_t>()[0], 16777217);
}

/// The results of all metrics.
struct Results {
  double accuracy = 0;
  double top2 = 0;
  double mean = 0;
  double perplexity = 0;
  std::vector<int64_t> confusion;
  bool operator==(const Results&) const = default;
};

using Mode = td::data::DistributedSamplerOptions::Mode;

/// Metrics of `size` samples that a DistributedSampler distributes over thread ranks, which must all compute the same.
Results distributed_results(int world_size, int64_t size, Mode mode = Mode::kEvaluation) {
  td::manual_seed(7);
  const td::Tensor logits = td::randn({size, 4});
  const td::Tensor target = td::randint(0, 4, {size}, {td::kInt64});
  std::vector<Results> results;
  std::mutex mutex;
  td::distributed::run_threads(world_size, [&](td::distributed::Context& ctx) {
    Accuracy accuracy({.group = ctx.group()});
    Accuracy top2({.top_k = 2, .ignore_index = 3, .group = ctx.group()});
    Mean mean({.group = ctx.group()});
    Perplexity perplexity({.ignore_index = 0, .group = ctx.group()});
    ConfusionMatrix confusion(4, {.group = ctx.group()});
    td::data::DistributedSampler sampler(size, ctx.rank(), ctx.world_size(), {.seed = 5, .mode = mode});
    const std::vector<int64_t> indices = sampler.begin_epoch();
    for (size_t begin = 0; begin < indices.size(); begin += 4) {  // ranks may have different numbers of batches
      const std::vector<int64_t> batch(indices.begin() + static_cast<int64_t>(begin),
                                       indices.begin() + static_cast<int64_t>(std::min(begin + 4, indices.size())));
      const td::Tensor x = td::index_select(logits, 0, classes(batch));
      const td::Tensor y = td::index_select(target, 0, classes(batch));
      accuracy.update(x, y);
      top2.update(x, y);
      mean.update(x.select(1, 0).to(td::kFloat64) / 3, 7);
      perplexity.update(x, y);
      confusion.update(x, y);
    }
    const Results own = {accuracy.compute(), top2.compute(), mean.compute(), perplexity.compute(),
                         confusion.compute().to_vector<int64_t>()};
    EXPECT_EQ(accuracy.compute(), own.accuracy);  // does not change the state
    EXPECT_EQ(mean.compute(), own.mean);
    const std::lock_guard lock(mutex);
    results.push_back(own);
  });
  for (const Results& each : results) EXPECT_EQ(each, results[0]);
  return results.at(0);
}

int64_t num_samples(const Results& results) {
  int64_t sum = 0;
  for (const int64_t count : results.confusion) sum += count;
  return sum;
}

TEST(Metrics, ResultsAreEqualForOneTwoAndThreeRanks) {
  for (const int64_t size : {2, 50}) {  // with three ranks, one of them has no sample of 2
    const Results one = distributed_results(1, size);
    EXPECT_EQ(num_samples(one), size);
    EXPECT_TRUE(std::isfinite(one.mean) && std::isfinite(one.perplexity)) << size;
    EXPECT_EQ(distributed_results(2, size), one) << size;
    EXPECT_EQ(distributed_results(3, size), one) << size;
  }
}

TEST(Metrics, TrainingSamplerCountsRepeatedSamplesTwice) {
  EXPECT_EQ(num_samples(distributed_results(3, 50, Mode::kTraining)), 51);
  EXPECT_EQ(num_samples(distributed_results(3, 50, Mode::kEvaluation)), 50);
}

}  // namespace
