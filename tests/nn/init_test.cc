#include <tandem/nn/init.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/base/rank_context.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tests/support/error_text.h>

namespace td = tandem;
namespace init = tandem::nn::init;
using td::testing::error_text;

namespace {

struct Moments {
  double low;
  double high;
  double mean;
  double deviation;
};

Moments moments(const td::Tensor& tensor) {
  const auto values = tensor.to_vector<double>();
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {*low, *high, mean, std::sqrt(squares / static_cast<double>(values.size()))};
}

/// Expects values in [low, high] whose extremes are within 1 % of the ends.
void expect_uniform(const td::Tensor& tensor, double low, double high) {
  const Moments m = moments(tensor);
  const double range = high - low;
  const auto n = static_cast<double>(tensor.num_elements());
  const double rounding = 1e-6 * range;
  EXPECT_GE(m.low, low - rounding);
  EXPECT_LE(m.high, high + rounding);
  EXPECT_LT(m.low, low + 0.01 * range);
  EXPECT_GT(m.high, high - 0.01 * range);
  EXPECT_NEAR(m.mean, (low + high) / 2, 5 * range / std::sqrt(12 * n));
  EXPECT_NEAR(m.deviation, range / std::sqrt(12.0), 0.02 * range);
}

TEST(Init, UniformCoversTheGivenRange) {
  td::manual_seed(1);
  for (const td::DType dtype : {td::kFloat32, td::kFloat64}) {
    const td::Tensor x = td::zeros({100, 50}, {dtype});
    EXPECT_TRUE(init::uniform_(x, -3, 0.5).is_same(x));
    expect_uniform(x, -3, 0.5);
  }
}

TEST(Init, NormalHasGivenMeanAndDeviation) {
  td::manual_seed(2);
  const td::Tensor x = td::zeros({20000});
  init::normal_(x, 3, 0.25);
  const Moments m = moments(x);
  EXPECT_NEAR(m.mean, 3, 5 * 0.25 / std::sqrt(20000.0));
  EXPECT_NEAR(m.deviation, 0.25, 5 * 0.25 / std::sqrt(40000.0));
}

TEST(Init, ZerosAndOnesFillTheTensor) {
  const td::Tensor x = td::full({7}, 3);
  EXPECT_EQ(init::zeros_(x).to_vector<float>(), std::vector<float>(7, 0));
  EXPECT_EQ(init::ones_(x).to_vector<float>(), std::vector<float>(7, 1));
}

TEST(Init, KaimingUniformUsesFanAsInPyTorch) {
  td::manual_seed(3);
  // torch.nn.init._calculate_fan_in_and_fan_out(torch.empty(40, 30, 3, 2)) == (180, 240)
  const td::Tensor x = td::zeros({40, 30, 3, 2});
  init::kaiming_uniform_(x);
  expect_uniform(x, -std::sqrt(6.0 / 180), std::sqrt(6.0 / 180));
  init::kaiming_uniform_(x, 0.2, init::Fan::kOut);
  const double bound = std::sqrt(6.0 / (1.04 * 240));
  expect_uniform(x, -bound, bound);
}

TEST(Init, XavierUniformUsesBothFans) {
  td::manual_seed(4);
  const td::Tensor x = td::zeros({40, 30, 3, 2});
  init::xavier_uniform_(x, 1.5);
  const double bound = 1.5 * std::sqrt(6.0 / (180 + 240));
  expect_uniform(x, -bound, bound);
}

TEST(Init, SeedDeterminesTheValues) {
  const auto draw = [](uint64_t seed) {
    td::manual_seed(seed);
    return init::uniform_(td::zeros({33})).to_vector<float>();
  };
  EXPECT_EQ(draw(5), draw(5));
  EXPECT_NE(draw(5), draw(6));
}

TEST(Init, ValuesDoNotDependOnTheDevice) {
  if (td::cpu_device_count() < 2) td::set_cpu_device_count(2);
  const auto drawn = [](td::Device own, td::Device device) {
    td::RankContext context;  // of a new rank
    const td::RankContext::Use use(context);
    td::set_rank_device(own);
    td::manual_seed(5);
    const td::Tensor x = td::empty({7}, {td::kFloat32, device});
    return init::normal_(init::uniform_(x)).to_vector<float>();
  };
  const td::Device here, there("cpu:1");
  const std::vector<float> values = drawn(here, here);
  EXPECT_EQ(drawn(there, here), values);
  EXPECT_EQ(drawn(there, there), values);
  EXPECT_EQ(drawn(here, there), values);
}

TEST(Init, InitializationIsNotRecordedByAutograd) {
  const td::Tensor parameter = td::zeros({3, 3}).set_requires_grad();
  const uint32_t version = parameter.version();
  init::xavier_uniform_(parameter);
  EXPECT_TRUE(parameter.is_leaf());
  EXPECT_GT(parameter.version(), version);
}

TEST(Init, EmptyTensorsAreAccepted) {
  EXPECT_EQ(init::kaiming_uniform_(td::zeros({3, 0})).num_elements(), 0);
  EXPECT_EQ(init::uniform_(td::zeros({0})).num_elements(), 0);
}

TEST(Init, InvalidArgumentsAreRejected) {
  const td::Tensor x = td::zeros({3});
  EXPECT_EQ(error_text<td::ValueError>([&] { init::uniform_(x, 1, -1); }),
            "uniform_: low is 1, high is -1, expected low <= high");
  EXPECT_EQ(error_text<td::ValueError>([&] { init::normal_(x, 0, -1); }), "normal_: deviation is -1, expected >= 0");
  EXPECT_EQ(error_text<td::ShapeError>([&] { init::kaiming_uniform_(x); }),
            "kaiming_uniform_: tensor has the shape [3], expected at least 2 dimensions");
  EXPECT_EQ(error_text<td::ShapeError>([&] { init::xavier_uniform_(x); }),
            "xavier_uniform_: tensor has the shape [3], expected at least 2 dimensions");
}

}  // namespace
