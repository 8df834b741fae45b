// The short forms of calls: numbers as shapes and dimensions, dtypes and devices as options, texts as devices, results
// in std::tie. PyTorch's names of methods, dtypes and devices.
#include <tandem/tandem.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::Shape;
using td::Tensor;

namespace {

/// Shape, dtype and values of a tensor.
std::string text(const Tensor& tensor) {
  return to_string(tensor.to(td::kDouble)) + " was " + to_string(tensor.dtype());
}

TEST(Api, NumbersAreShapesOfFactories) {
  EXPECT_EQ(text(td::zeros(3)), text(td::zeros({3})));
  EXPECT_EQ(text(td::ones(2)), text(td::ones({2})));
  EXPECT_EQ(td::empty({2, 3}).shape(), Shape({2, 3}));
  EXPECT_EQ(text(td::full(2, 3)), text(td::full({2}, 3)));  // two numbers 3
  EXPECT_EQ(td::rand({2, 3}).shape(), Shape({2, 3}));
  EXPECT_EQ(td::randn(size_t{4}).shape(), Shape({4}));
  EXPECT_EQ(td::randint(0, 10, 4).shape(), Shape({4}));
  EXPECT_EQ(td::randint(10, 4).shape(), Shape({4}));
  EXPECT_EQ(td::randint(0, 10, {}).shape(), Shape());
  EXPECT_EQ(td::normal(0, 1, 4).shape(), Shape({4}));
  EXPECT_EQ(td::zeros({}).shape(), Shape());
  EXPECT_EQ(td::empty(2, 3).shape(), Shape({2, 3}));
  EXPECT_EQ(text(td::zeros(2, size_t{1})), text(td::zeros({2, 1})));
  EXPECT_EQ(text(td::ones(1, 2, 3)), text(td::ones({1, 2, 3})));
  EXPECT_EQ(td::rand(2, 3).shape(), Shape({2, 3}));
  EXPECT_EQ(td::randn(2, 0).shape(), Shape({2, 0}));
}

TEST(Api, SequentialInBraces) {
  const Tensor x = td::tensor({{-1., 2.}});
  // In parentheses, C++ declares a function here.
  td::nn::Sequential net{td::nn::ReLU(), td::nn::Flatten()}, one{td::nn::ReLU()};
  EXPECT_EQ(net.size(), 2);
  EXPECT_EQ(text(net(x)), text(x.relu()));
  EXPECT_EQ(text(one(x)), text(x.relu()));
}

TEST(Api, DTypesAndDevicesAreOptions) {
  td::set_cpu_device_count(2);
  const td::Device other = "cpu:1";
  EXPECT_EQ(text(td::zeros({2}, td::kLong)), text(td::zeros({2}, {td::kInt64})));
  EXPECT_EQ(text(td::ones(2, td::kHalf)), text(td::ones({2}, {.dtype = td::kFloat16})));
  EXPECT_EQ(text(td::full(2, 3, td::kInt)), text(td::full({2}, 3, {td::kInt32})));
  EXPECT_EQ(text(td::zeros({2}, {})), text(td::zeros({2})));
  EXPECT_EQ(text(td::eye(2, td::kLong)), text(td::eye(2, {td::kInt64})));
  EXPECT_EQ(text(td::eye(2, 3, td::kLong)), text(td::eye(2, 3, {td::kInt64})));
  EXPECT_EQ(text(td::arange(3, td::kFloat)), text(td::arange(3, {td::kFloat32})));
  EXPECT_EQ(text(td::arange(1, 3, td::kFloat)), text(td::arange(1, 3, 1, td::TensorOptions{td::kFloat32})));
  EXPECT_EQ(text(td::arange(1, 3, 2, td::kDouble)), text(td::arange(1, 3, 2, {.dtype = td::kFloat64})));
  EXPECT_EQ(text(td::linspace(0, 1, 3, td::kDouble)), text(td::linspace(0, 1, 3, {td::kFloat64})));
  EXPECT_EQ(text(td::tensor({1, 2}, td::kByte)), text(td::tensor({1, 2}, {td::kUInt8})));
  EXPECT_EQ(text(td::scalar_tensor(2, td::kShort)), text(td::scalar_tensor(2, {td::kInt16})));
  EXPECT_EQ(text(td::from_vector<float>({1, 2}, 2, td::kChar)), text(td::tensor({1, 2}, {td::kInt8})));
  int32_t values[] = {1, 2};
  EXPECT_EQ(text(td::from_blob(values, 2, td::kInt)), text(td::tensor({1, 2}, {td::kInt32})));
  EXPECT_EQ(td::rand(2, td::kDouble).dtype(), td::kFloat64);
  EXPECT_EQ(td::randn({2}, td::kDouble).dtype(), td::kFloat64);
  EXPECT_EQ(td::randint(0, 3, {2}, td::kInt).dtype(), td::kInt32);
  EXPECT_EQ(td::randint(3, {2}, td::kInt).dtype(), td::kInt32);
  EXPECT_EQ(td::randint(0, 3, {2}, other).options().dtype, td::kInt64);
  for (const Tensor& x : {td::zeros(2, other), td::ones({2}, "cpu:1"), td::empty(2, td::Device(td::kCPU, 1)),
                          td::randint(3, 2, other), td::full(2, 1, other), td::arange(0, 2, 1, "cpu:1")}) {
    EXPECT_EQ(x.device(), other);
  }
}

TEST(Api, DevicesAreTextsAndConstants) {
  td::set_cpu_device_count(2);
  const Tensor x = td::ones(2);
  EXPECT_EQ(x.to("cpu:1").device(), td::Device(td::kCPU, 1));
  EXPECT_EQ(x.to(std::string("cpu:1")).to(td::kCPU).device(), "cpu");
  EXPECT_EQ(td::Device("cuda"), td::kCUDA);
  EXPECT_EQ(td::Device("cuda:1"), td::Device(td::kCUDA, 1));
  EXPECT_EQ(td::Device(td::kCUDA).type, td::kCUDA);
  EXPECT_EQ(td::cuda::is_available(), td::cuda::device_count() > 0);
  EXPECT_THROW(x.to("gpu"), td::ValueError);
  td::nn::Linear layer(2, 2);
  layer.to("cpu:1");
  EXPECT_EQ(layer.weight.device(), "cpu:1");
}

TEST(Api, NumbersAreDimensions) {
  const Tensor x = td::arange(6, td::kFloat).view(2, 3);
  EXPECT_EQ(text(x.sum(1)), text(x.sum({1})));
  EXPECT_EQ(text(x.sum(-1, true)), text(x.sum({1}, true)));
  EXPECT_EQ(text(x.mean(0, true)), text(x.mean({0}, true)));
  EXPECT_EQ(text(x.var(1)), text(x.var({1})));
  EXPECT_EQ(text(x.std(1, false)), text(x.std({1}, 0)));  // unbiased=False is correction 0
  EXPECT_EQ(text(x.norm(2, 1)), text(x.norm(2, {1})));
  EXPECT_EQ(text(x.logsumexp(1)), text(x.logsumexp({1})));
  EXPECT_EQ(text(x.nansum(0)), text(x.nansum({0})));
  EXPECT_EQ(text(x.nanmean(0)), text(x.nanmean({0})));
  EXPECT_EQ(text(x.count_nonzero(0)), text(x.count_nonzero({0})));
  EXPECT_EQ(text(x.any(0)), text(x.any({0})));
  EXPECT_EQ(text(x.all(0, true)), text(x.all({0}, true)));
  EXPECT_EQ(text(x.amax(1)), text(x.amax({1})));
  EXPECT_EQ(text(x.amin(1)), text(x.amin({1})));
  EXPECT_EQ(text(x.flip(0)), text(x.flip({0})));
  EXPECT_EQ(text(x.roll(1, 0)), text(x.roll({1}, {0})));
  EXPECT_EQ(x.movedim(0, -1).shape(), x.movedim({0}, {1}).shape());
  EXPECT_EQ(text(td::sum(x, 1)), text(x.sum({1})));
  EXPECT_EQ(text(td::rms_norm(x, 3)), text(td::rms_norm(x, {3})));
}

TEST(Api, NumbersAreSizes) {
  const Tensor x = td::arange(6, td::kFloat).view(2, -1);
  EXPECT_EQ(x.shape(), Shape({2, 3}));
  EXPECT_EQ(x.view(-1).shape(), Shape({6}));
  EXPECT_EQ(x.view(x.size(0), 1, size_t{3}).shape(), Shape({2, 1, 3}));
  EXPECT_EQ(x.reshape(3, 2).shape(), Shape({3, 2}));
  EXPECT_EQ(x.reshape(-1).shape(), Shape({6}));
  EXPECT_EQ(x.permute(1, 0).shape(), Shape({3, 2}));
  EXPECT_EQ(x.expand(4, 2, 3).shape(), Shape({4, 2, 3}));
  EXPECT_EQ(x.repeat(1, 2).shape(), Shape({2, 6}));
  EXPECT_EQ(td::ones(1).expand(5).shape(), Shape({5}));
  EXPECT_EQ(td::ones(2).repeat(3).shape(), Shape({6}));
  EXPECT_EQ(Shape(3), Shape({3}));
  EXPECT_EQ(Shape(size_t{3}), Shape({3}));
  EXPECT_EQ(Shape(size_t{3}, 1), Shape({1, 1, 1}));
}

TEST(Api, PairsAreTiedAndBound) {
  const Tensor x = td::arange(6, td::kFloat).view(2, 3);
  const auto [largest, at] = x.max(1);
  Tensor values, indices, last;
  std::tie(values, indices) = x.max(1);
  EXPECT_EQ(text(values), text(largest));
  EXPECT_EQ(text(indices), text(at));
  std::tie(std::ignore, last) = x.sort(1);
  EXPECT_EQ(text(last), text(x.argsort(1)));
  std::tie(last, std::ignore) = x.topk(1);
  EXPECT_EQ(last.shape(), Shape({2, 1}));
  std::tie(values, last) = td::var_mean(x, 1);
  EXPECT_EQ(text(last), text(x.mean(1)));
}

TEST(Api, FunctionsOfTwoTensors) {
  const Tensor x = td::tensor({1., 5.}), y = td::tensor({2., 4.});
  for (const Tensor& larger : {td::max(x, y), x.max(y)}) EXPECT_EQ(text(larger), text(td::tensor({2., 5.})));
  for (const Tensor& smaller : {td::min(x, y), x.min(y)}) EXPECT_EQ(text(smaller), text(td::tensor({1., 4.})));
  EXPECT_EQ(text(td::pow(2.0, x)), text(td::tensor({2., 32.})));
  EXPECT_EQ(text(x.pow(y)), text(td::tensor({1., 625.})));
}

TEST(Api, NormalTakesTensors) {
  const Tensor mean = td::tensor({{10.}, {20.}}), std = td::tensor({0., 1., 100.});
  const auto drawn = [](const auto& run) {
    td::manual_seed(3);
    return text(run());
  };
  EXPECT_EQ(drawn([&] { return td::normal(mean, std); }), drawn([&] { return td::randn({2, 3}) * std + mean; }));
  EXPECT_EQ(drawn([&] { return td::normal(mean, 2); }), drawn([&] { return td::randn({2, 1}) * 2 + mean; }));
  EXPECT_EQ(drawn([&] { return td::normal(mean); }), drawn([&] { return td::randn({2, 1}) + mean; }));
  EXPECT_EQ(drawn([&] { return td::normal(5, std); }), drawn([&] { return td::randn(3) * std + 5; }));
  EXPECT_THROW(td::normal(td::arange(3)), td::DTypeError);
}

TEST(Api, LuOfASingularMatrix) {
  const Tensor a = td::tensor({{1., 2.}, {2., 4.}});
  const auto [LU, pivots] = td::linalg::lu_factor(a);
  const auto [P, L, U] = td::linalg::lu_unpack(LU, pivots);
  EXPECT_EQ(text(P.mm(L).mm(U)), text(a));
  EXPECT_EQ(pivots.to_vector<int>(), (std::vector<int>{2, 2}));
  EXPECT_THROW(td::linalg::lu_unpack(LU, pivots + 1), td::ValueError);
}

TEST(Api, MethodsAreTheFunctions) {
  const Tensor x = td::tensor({{1., 2.}, {3., 5.}}), y = td::tensor({{1., 1.}, {4., 5.}});
  EXPECT_EQ(text(x.mm(y)), text(td::mm(x, y)));
  EXPECT_EQ(text(x.diag()), text(td::diag(x)));
  EXPECT_EQ(text(x.diag(1)), text(td::diag(x, 1)));
  EXPECT_EQ(text(x.inverse()), text(td::linalg::inv(x)));
  EXPECT_EQ(x.multinomial(3, true).shape(), Shape({2, 3}));
  const std::vector<int64_t> sizes = {1, 1};
  EXPECT_EQ(x.split_with_sizes(sizes, 1)[1].shape(), Shape({2, 1}));
  EXPECT_EQ(x.split({2}, 1).size(), 1u);  // of these sizes
  EXPECT_EQ(x.split(1, 1).size(), 2u);    // of this size
  EXPECT_EQ(text(x.eq(y)) + text(x.eq(1)), text(x == y) + text(x == 1));
  EXPECT_EQ(text(x.ne(y)) + text(x.ne(1)), text(x != y) + text(x != 1));
  EXPECT_EQ(text(x.lt(y)) + text(x.lt(2)), text(x < y) + text(x < 2));
  EXPECT_EQ(text(x.le(y)) + text(x.le(2)), text(x <= y) + text(x <= 2));
  EXPECT_EQ(text(x.gt(y)) + text(x.gt(2)), text(x > y) + text(x > 2));
  EXPECT_EQ(text(x.ge(y)) + text(x.ge(2)), text(x >= y) + text(x >= 2));
}

TEST(Api, NamesArePyTorchs) {
  Tensor x = td::ones({2, 3});
  EXPECT_EQ(x.numel(), 6);
  EXPECT_EQ(x.sizes(), x.shape());
  EXPECT_EQ(td::ones(2).sizes(), Shape({2}));
  EXPECT_EQ(x.size(-1), 3);
  EXPECT_TRUE(x.requires_grad_().requires_grad());
  EXPECT_FALSE(x.requires_grad_(false).requires_grad());
  EXPECT_EQ(x.data_ptr<float>(), x.data<float>());
  EXPECT_THROW(x.data_ptr<double>(), td::DTypeError);
  EXPECT_EQ(x.sum().item<float>(), 6.f);
  EXPECT_EQ(x.sum().item<int64_t>(), 6);
}

// Other types than integers are neither shapes nor devices, nor the other way round.
static_assert(std::is_convertible_v<int, Shape> && std::is_convertible_v<size_t, Shape>);
static_assert(!std::is_convertible_v<bool, Shape> && !std::is_convertible_v<double, Shape>);
static_assert(!std::is_convertible_v<td::DType, Shape> && !std::is_convertible_v<td::DeviceType, Shape>);
static_assert(!std::is_convertible_v<Tensor, Shape> && !std::is_convertible_v<int, Tensor>);
static_assert(!std::is_convertible_v<int, td::Device> && !std::is_convertible_v<td::DType, td::Device>);
static_assert(!std::is_convertible_v<int, td::TensorOptions> && std::is_aggregate_v<td::TensorOptions>);

}  // namespace
