#include <tandem/base/rank_context.h>
#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace init = tandem::nn::init;

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
  const auto n = static_cast<double>(tensor.numel());
  const double rounding = 1e-6 * range;
  EXPECT_GE(m.low, low - rounding);
  EXPECT_LE(m.high, high + rounding);
  EXPECT_LT(m.low, low + 0.01 * range);
  EXPECT_GT(m.high, high - 0.01 * range);
  EXPECT_NEAR(m.mean, (low + high) / 2, 5 * range / std::sqrt(12 * n));
  EXPECT_NEAR(m.deviation, range / std::sqrt(12.0), 0.02 * range);
}

TEST(Init, SkipGuardLeavesTensorsAndTheGenerator) {
  const td::Tensor x = td::full({4, 3, 2}, 7), square = td::full({3, 3}, 7);
  td::manual_seed(1);
  {
    const init::SkipGuard skip, nested;
    init::uniform_(x);
    init::normal_(x);
    init::trunc_normal_(x);
    init::xavier_uniform_(x);
    init::kaiming_normal_(x);
    init::orthogonal_(x);
    init::sparse_(square, 0.5);
    EXPECT_ERROR(td::ValueError, init::uniform_(x, 1, 0), "uniform_: a is 1, b is 0, expected a <= b");
  }
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(24, 7));
  EXPECT_EQ(square.to_vector<float>(), std::vector<float>(9, 7));
  init::normal_(x);
  td::manual_seed(1);
  EXPECT_EQ(init::normal_(td::zeros({4, 3, 2})).to_vector<float>(), x.to_vector<float>());
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

/// Expects the moments of a normal distribution with mean 0.
void expect_normal(const td::Tensor& tensor, double deviation) {
  const Moments m = moments(tensor);
  const auto n = static_cast<double>(tensor.numel());
  EXPECT_NEAR(m.mean, 0, 5 * deviation / std::sqrt(n));
  EXPECT_NEAR(m.deviation, deviation, 5 * deviation / std::sqrt(2 * n));
  EXPECT_GT(m.high, 2 * deviation);
  EXPECT_LT(m.low, -2 * deviation);
}

TEST(Init, ConstantFillsTheTensor) {
  const td::Tensor x = td::zeros({3});
  EXPECT_TRUE(init::constant_(x, 0.3).is_same(x));
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(3, 0.3f));
}

TEST(Init, KaimingUsesFanAsInPyTorch) {
  td::manual_seed(3);
  // torch.nn.init._calculate_fan_in_and_fan_out(torch.empty(40, 30, 3, 2)) == (180, 240)
  const td::Tensor x = td::zeros({40, 30, 3, 2});
  init::kaiming_uniform_(x);
  expect_uniform(x, -std::sqrt(6.0 / 180), std::sqrt(6.0 / 180));
  init::kaiming_uniform_(x, 0.2, init::Mode::kFanOut);
  const double bound = std::sqrt(6.0 / (1.04 * 240));
  expect_uniform(x, -bound, bound);
  init::kaiming_uniform_(x, 0.2, init::Mode::kFanIn, init::Nonlinearity::kSelu);
  expect_uniform(x, -0.75 * std::sqrt(3.0 / 180), 0.75 * std::sqrt(3.0 / 180));
  expect_normal(init::kaiming_normal_(x), std::sqrt(2.0 / 180));
  expect_normal(init::kaiming_normal_(x, 0, init::Mode::kFanOut, init::Nonlinearity::kLinear), std::sqrt(1.0 / 240));
}

TEST(Init, XavierUsesBothFans) {
  td::manual_seed(4);
  const td::Tensor x = td::zeros({40, 30, 3, 2});
  init::xavier_uniform_(x, 1.5);
  const double bound = 1.5 * std::sqrt(6.0 / (180 + 240));
  expect_uniform(x, -bound, bound);
  expect_normal(init::xavier_normal_(x, 1.5), 1.5 * std::sqrt(2.0 / (180 + 240)));
}

TEST(Init, GainsMatchPyTorch) {
  using init::Nonlinearity;
  EXPECT_EQ(init::calculate_gain(Nonlinearity::kLinear), 1);
  EXPECT_EQ(init::calculate_gain(Nonlinearity::kSigmoid), 1);
  EXPECT_DOUBLE_EQ(init::calculate_gain(Nonlinearity::kTanh), 5.0 / 3);
  EXPECT_DOUBLE_EQ(init::calculate_gain(Nonlinearity::kRelu), std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(init::calculate_gain(Nonlinearity::kLeakyRelu), 1.4141428569978354);
  EXPECT_DOUBLE_EQ(init::calculate_gain(Nonlinearity::kLeakyRelu, 0.2), 1.3867504905630728);
  EXPECT_EQ(init::calculate_gain(Nonlinearity::kSelu), 0.75);
}

TEST(Init, TruncatedNormalHasItsMomentsAndBounds) {
  td::manual_seed(6);
  const td::Tensor x = td::zeros({40000});
  init::trunc_normal_(x);
  Moments m = moments(x);
  // The standard deviation of a normal distribution that is restricted to [-2, 2] is 0.87963 (scipy.stats.truncnorm).
  EXPECT_GE(m.low, -2);
  EXPECT_LE(m.high, 2);
  EXPECT_LT(m.low, -1.99);
  EXPECT_GT(m.high, 1.99);
  EXPECT_NEAR(m.mean, 0, 5 * 0.88 / 200);
  EXPECT_NEAR(m.deviation, 0.87963, 0.01);
  // Only the upper half: the mean is sqrt(2 / pi), the standard deviation sqrt(1 - 2 / pi), of |normal|.
  init::trunc_normal_(x, 3, 0.5, 3, 100);
  m = moments(x);
  EXPECT_GE(m.low, 3);
  EXPECT_NEAR(m.mean, 3 + 0.5 * 0.797885, 0.01);
  EXPECT_NEAR(m.deviation, 0.5 * 0.602810, 0.01);
  // Bounds of 100 standard deviations are never reached.
  EXPECT_LT(moments(init::trunc_normal_(x, 0, 0.02)).high, 0.2);
  EXPECT_LT(moments(init::trunc_normal_(td::zeros({1000}, {td::kFloat16}), 0, 0.02)).high, 0.2);
}

TEST(Init, EyeHasOnesOnTheDiagonal) {
  EXPECT_EQ(init::eye_(td::full({2, 3}, 7)).to_vector<float>(), (std::vector<float>{1, 0, 0, 0, 1, 0}));
}

TEST(Init, DiracKeepsChannels) {
  // torch.nn.init.dirac_(torch.empty(4, 2, 3), 2)
  EXPECT_EQ(init::dirac_(td::full({4, 2, 3}, 7), 2).to_vector<float>(),
            (std::vector<float>{0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}));
  const td::Tensor weight = init::dirac_(td::full({3, 3, 3, 3}, 7));
  const td::Tensor x = td::rand({1, 3, 4, 5});
  EXPECT_EQ(td::conv2d(x, weight, {}, {.padding = 1}).contiguous().to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(init::dirac_(td::full({1, 2, 2, 2, 3}, 7)).sum().item<float>(), 1);
}

TEST(Init, OrthogonalRowsOrColumnsAreOrthonormal) {
  td::manual_seed(7);
  for (const td::Shape& shape : {td::Shape{5, 12}, td::Shape{12, 5}, td::Shape{6, 6}, td::Shape{4, 3, 2, 2}}) {
    const td::Tensor x = init::orthogonal_(td::zeros(shape, {td::kFloat64}), 2).reshape({shape[0], -1});
    const bool wide = x.size(0) < x.size(1);
    const td::Tensor product = wide ? x.matmul(x.t()) : x.t().matmul(x);
    const td::Tensor expected = td::eye(product.size(0), product.size(1), {td::kFloat64}) * 4;
    EXPECT_TRUE(td::allclose(product, expected, 0, 1e-12)) << shape;
  }
  // The distribution is uniform, so both signs of an element are equally likely.
  int positive = 0;
  for (int i = 0; i < 200; ++i) positive += init::orthogonal_(td::zeros({2, 2})).to_vector<float>()[0] > 0;
  EXPECT_NEAR(positive, 100, 40);
  EXPECT_EQ(init::orthogonal_(td::zeros({2, 3}, {td::kFloat16})).dtype(), td::kFloat16);
}

TEST(Init, SparseColumnsHaveTheirZerosInRandomRows) {
  td::manual_seed(8);
  const td::Tensor x = init::sparse_(td::zeros({100, 50}), 0.255, 0.5);
  const td::Tensor zeros = (x == 0).to(td::kFloat32);
  EXPECT_EQ(zeros.sum({0}).to_vector<float>(), std::vector<float>(50, 26));
  EXPECT_LT(zeros.sum({1}).amax({0}).item<float>(), 30);  // not the same rows in all columns
  EXPECT_NEAR(moments(x).deviation, 0.5 * std::sqrt(0.74), 0.02);
}

/// Four values of each random function.
std::vector<float> draw_all(td::Generator* generator) {
  std::vector<float> values;
  const auto take = [&](const td::Tensor& x) {
    for (const float value : x.to_vector<float>()) values.push_back(value);
  };
  const td::Tensor x = td::zeros({2, 2});
  take(init::uniform_(x, 0, 1, generator));
  take(init::normal_(x, 0, 1, generator));
  take(init::trunc_normal_(x, 0, 1, -2, 2, generator));
  take(init::xavier_uniform_(x, 1, generator));
  take(init::xavier_normal_(x, 1, generator));
  take(init::kaiming_uniform_(x, 0, init::Mode::kFanIn, init::Nonlinearity::kRelu, generator));
  take(init::kaiming_normal_(x, 0, init::Mode::kFanIn, init::Nonlinearity::kRelu, generator));
  take(init::orthogonal_(x, 1, generator));
  take(init::sparse_(x, 0.5, 0.01, generator));
  return values;
}

TEST(Init, GeneratorMayBeGiven) {
  const auto draw = [](uint64_t seed) {
    td::Generator generator(seed);
    return draw_all(&generator);
  };
  td::manual_seed(9);
  const auto expected = td::rand({3}).to_vector<float>();
  td::manual_seed(9);
  const auto first = draw(1);
  EXPECT_EQ(draw(1), first);
  const auto other = draw(2);
  for (size_t i = 0; i < first.size(); i += 4) {
    EXPECT_FALSE(std::equal(first.begin() + static_cast<int64_t>(i), first.begin() + static_cast<int64_t>(i) + 4,
                            other.begin() + static_cast<int64_t>(i)))
        << "function " << i / 4;
  }
  EXPECT_EQ(td::rand({3}).to_vector<float>(), expected);
}

TEST(Init, RanksDrawEqualValuesButOtherNumbersAfterwards) {
  const auto draw = [](int rank, bool initializes) {
    td::RankContext context;
    context.rank = rank;
    const td::RankContext::Use use(context);
    td::manual_seed(5);
    const std::vector<float> values = initializes ? draw_all(nullptr) : draw_all(&td::default_generator());
    return std::pair(values, td::rand({3}).to_vector<float>());
  };
  EXPECT_EQ(draw(3, true).first, draw(0, false).first);
  EXPECT_EQ(draw(0, true), draw(0, false));
  EXPECT_EQ(draw(3, true).second, draw(3, false).second);
  EXPECT_NE(draw(3, true).second, draw(0, true).second);
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
  const td::Tensor parameter = td::zeros({3, 3}).requires_grad_();
  const uint32_t version = parameter.version();
  init::xavier_uniform_(parameter);
  EXPECT_TRUE(parameter.is_leaf());
  EXPECT_GT(parameter.version(), version);
}

TEST(Init, EmptyTensorsAreAccepted) {
  EXPECT_EQ(init::kaiming_uniform_(td::zeros({3, 0})).numel(), 0);
  EXPECT_EQ(init::kaiming_normal_(td::zeros({3, 0})).numel(), 0);
  EXPECT_EQ(init::orthogonal_(td::zeros({3, 0})).numel(), 0);
  EXPECT_EQ(init::sparse_(td::zeros({3, 0}), 0.5).numel(), 0);
  EXPECT_EQ(init::eye_(td::zeros({3, 0})).numel(), 0);
  EXPECT_EQ(init::uniform_(td::zeros({0})).numel(), 0);
}

TEST(Init, InvalidArgumentsAreRejected) {
  const td::Tensor x = td::zeros({3});
  EXPECT_ERROR(td::ValueError, init::uniform_(x, 1, -1), "uniform_: a is 1, b is -1, expected a <= b");
  EXPECT_ERROR(td::ValueError, init::normal_(x, 0, -1), "normal_: std is -1, expected >= 0");
  EXPECT_ERROR(td::ValueError, init::trunc_normal_(x, 0, 1, 2, -2),
               "trunc_normal_: std is 1, a is 2, b is -2, expected std > 0 and a <= b");
  EXPECT_ERROR(td::ShapeError, init::eye_(x), "eye_: tensor has the shape [3], expected 2 dimensions");
  EXPECT_ERROR(td::ShapeError, init::sparse_(x, 0.5), "sparse_: tensor has the shape [3], expected 2 dimensions");
  EXPECT_ERROR(td::ValueError, init::sparse_(td::zeros({2, 2}), 1.5),
               "sparse_: sparsity is 1.5, expected 0 <= sparsity <= 1");
  EXPECT_ERROR(td::ShapeError, init::dirac_(td::zeros({2, 2})),
               "dirac_: tensor has the shape [2, 2], expected 3, 4 or 5 dimensions");
  EXPECT_ERROR(td::ValueError, init::dirac_(td::zeros({4, 2, 3}), 3),
               "dirac_: groups is 3, expected a divisor of the 4 output channels");
  EXPECT_ERROR(td::ShapeError, init::orthogonal_(x),
               "orthogonal_: tensor has the shape [3], expected at least 2 dimensions");
  EXPECT_ERROR(td::ShapeError, init::xavier_normal_(x),
               "xavier_normal_: tensor has the shape [3], expected at least 2 dimensions");
  EXPECT_ERROR(td::ShapeError, init::kaiming_normal_(x),
               "kaiming_normal_: tensor has the shape [3], expected at least 2 dimensions");
  EXPECT_ERROR(td::ShapeError, init::kaiming_uniform_(x),
               "kaiming_uniform_: tensor has the shape [3], expected at least 2 dimensions");
  EXPECT_ERROR(td::ShapeError, init::xavier_uniform_(x),
               "xavier_uniform_: tensor has the shape [3], expected at least 2 dimensions");
}

}  // namespace
