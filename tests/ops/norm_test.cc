#include <tandem/ops/common/common.h>
#include <tandem/ops/norm/norm_functions.h>
#include <tandem/tests/ops/norm_reference.h>

namespace tandem::testing { namespace {

using namespace norm;

/// Random values on the device under test.
Tensor random_here(const Shape& shape, uint64_t seed, DType dtype = kFloat32) {
  return make_tensor(random_dense(shape, seed), dtype, Layout::kContiguous, test_device());
}

Tensor here(const Dense& values, DType dtype = kFloat32) {
  return make_tensor(values, dtype, Layout::kContiguous, test_device());
}

class BatchNorm : public ::testing::TestWithParam<Tail> {};
INSTANTIATE_TEST_SUITE_P(, BatchNorm, ::testing::Values(Tail::kNone, Tail::kRelu, Tail::kRelu6, Tail::kAddRelu),
                         [](const auto& p) { return to_string(p.param); });

/// The result and gradients of a fused batch norm and of separate operations.
TEST_P(BatchNorm, FusedResultMatchesPartsBitwise) {
  const auto run = [&](const std::vector<Tensor>& in, bool fused) {
    const Options o = {.tail = fused ? GetParam() : Tail::kNone};
    Tensor y = run_batch_norm(o, in[0], in[1], in[2], in[3]);
    if (!fused && GetParam() == Tail::kAddRelu) y = add(y, in[1]);
    if (!fused && GetParam() != Tail::kNone) y = GetParam() == Tail::kRelu6 ? relu6(y) : relu(y);
    return y;
  };
  for (const DType dtype : {kFloat32, kFloat64}) {
    const std::vector<Tensor> in = {ops::channels_last(random_here({3, 33, 3, 3}, 1, dtype)).requires_grad_(),
                                    ops::channels_last(random_here({3, 33, 3, 3}, 2, dtype)).requires_grad_(),
                                    (random_here({33}, 3, dtype) * 10).detach().requires_grad_(),
                                    random_here({33}, 4, dtype).requires_grad_()};
    const Tensor cotangent = random_here({3, 33, 3, 3}, 5, dtype);
    const Tensor fused = run(in, true), parts = run(in, false);
    EXPECT_EQ(fused.to_vector<double>(), parts.to_vector<double>());
    std::vector<Tensor> wanted = in;
    if (GetParam() != Tail::kAddRelu) wanted.erase(wanted.begin() + 1);
    const std::vector<Tensor> a = grad(std::vector{fused}, wanted, std::vector{cotangent});
    const std::vector<Tensor> b = grad(std::vector{parts}, wanted, std::vector{cotangent});
    for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].to_vector<double>(), b[i].to_vector<double>()) << i;
  }
}

TEST_P(BatchNorm, ResultAndGradientsKeepMemoryOrder) {
  for (const bool channels_last : {false, true}) {
    const Tensor plain = random_here({2, 3, 4, 5}, 1);
    Tensor leaf = (channels_last ? ops::channels_last(plain) : plain).detach().requires_grad_();
    Tensor x = neg(leaf), residual = neg(leaf);
    const Tensor y = run_batch_norm({.tail = GetParam()}, x, residual, {}, {});
    EXPECT_EQ(ops::is_channels_last(y), channels_last);
    EXPECT_EQ(y.is_contiguous(), !channels_last);
    std::vector<Tensor> wanted = {x};
    if (GetParam() == Tail::kAddRelu) wanted.push_back(residual);
    for (const Tensor& gradient : grad(std::vector{y}, wanted, std::vector{random_here(y.shape(), 2)})) {
      EXPECT_EQ(ops::is_channels_last(gradient), channels_last);
      EXPECT_EQ(gradient.is_contiguous(), !channels_last);
    }
  }
}

TEST(BatchNormAddRelu, GradientsOfSeveralConsumersAreAdded) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
    for (const bool channels_last : {false, true}) {
      for (const size_t consumers : {2u, 3u}) {
        std::vector<Tensor> in, cotangents;
        for (uint64_t i = 0; i < 2; ++i) {
          const Tensor values = random_here({3, 40, 3, 5}, i, dtype);
          in.push_back(channels_last ? ops::channels_last(values) : values);
          in.back().requires_grad_();
        }
        for (uint64_t i = 2; i < 4; ++i) in.push_back(random_here({40}, i, dtype).requires_grad_());
        for (uint64_t i = 0; i < consumers; ++i) cotangents.push_back(random_here({3, 40, 3, 5}, 10 + i, dtype));
        const auto run = [&] { return run_batch_norm({.tail = Tail::kAddRelu}, in[0], in[1], in[2], in[3]); };

        const Tensor y = run();
        std::vector<Tensor> roots;
        for (size_t i = 0; i < consumers; ++i) roots.push_back(y * static_cast<double>(i + 1));
        const std::vector<Tensor> gradients = grad(roots, in, cotangents);

        // The newest consumer's gradient is the first; the others are added to each other.
        Tensor others = cotangents[consumers - 2] * static_cast<double>(consumers - 1);
        for (size_t i = consumers - 2; i-- > 0;) others = others + cotangents[i] * static_cast<double>(i + 1);
        const Tensor total = cotangents.back() * static_cast<double>(consumers) + others;
        const std::vector<Tensor> expected = grad(std::vector{run()}, in, std::vector{total});
        for (size_t i = 0; i < in.size(); ++i) {
          EXPECT_TRUE(same_bits(gradients[i], expected[i])) << dtype << channels_last << consumers << " input " << i;
        }
      }
    }
  }
}

TEST_P(BatchNorm, GradientsOfTheCallerAreNotOverwritten) {
  for (const bool channels_last : {false, true}) {
    const Tensor values = random_here({3, 33, 3, 5}, 1), residual = random_here({3, 33, 3, 5}, 2);
    Tensor x = channels_last ? ops::channels_last(values) : values.clone();
    x.requires_grad_();
    const Tensor y = run_batch_norm({.tail = GetParam()}, x, residual, random_here({33}, 3), random_here({33}, 4));
    const Tensor own = random_here({3, 33, 3, 5}, 5), cotangent = channels_last ? ops::channels_last(own) : own;
    const Tensor before = cotangent.clone();
    const Tensor expected = grad({y}, {x}, {cotangent}, {.retain_graph = true})[0];
    EXPECT_TRUE(same_bits(cotangent, before));
    EXPECT_TRUE(same_bits(grad({y * 1}, {x}, {cotangent}, {.retain_graph = true})[0], expected));  // may be overwritten
    EXPECT_TRUE(same_bits(grad({y * 1}, {x}, {cotangent})[0], expected));
  }
}

TEST(BatchNormStatistics, LargeOffsetsDoNotLosePrecision) {
  // 10^4 plus values of deviation about 1: results and gradients must be those of the same numbers in float64.
  for (const bool channels_last : {false, true}) {
    for (const DType dtype : {kFloat32, kFloat64}) {
      const Dense values = dense(random_tensor({32, 5, 9, 7}, 1, dtype, 1e4 - 1.7, 1e4 + 1.7));
      const auto inputs = [&](DType type) {
        Tensor x = here(values, type);
        if (channels_last) x = ops::channels_last(x);
        return std::vector<Tensor>{x.requires_grad_(), random_here({5}, 2, type).requires_grad_(),
                                   random_here({5}, 3, type).requires_grad_()};
      };
      const auto in = inputs(dtype);
      const Tensor y = batch_norm_relu(in[0], {}, {}, in[1], in[2], true, 0.1, kEps);
      const auto exact_in = inputs(kFloat64);
      const Dense weight = dense(in[1]), bias = dense(in[2]);
      // Compared with exact differences summed in high precision.
      const Dense expected = batch_norm_reference(values, {.tail = Tail::kRelu}, nullptr, &weight, &bias);
      EXPECT_TRUE(close(y, expected, dtype == kFloat64 ? 1e-11 : 1e-6));
      if (dtype == kFloat64) continue;
      const Tensor exact = batch_norm_relu(exact_in[0], {}, {}, in[1].detach().to(kFloat64),
                                           in[2].detach().to(kFloat64), true, 0.1, kEps);
      const Tensor cotangent = random_here(y.shape(), 4);
      const Tensor a = grad(std::vector{y}, std::vector{in[0]}, std::vector{cotangent})[0];
      const Tensor b = grad(std::vector{exact}, std::vector{exact_in[0]}, std::vector{cotangent.to(kFloat64)})[0];
      EXPECT_TRUE(close(a, dense(b), 1e-6));
    }
  }
}

TEST(BatchNormStatistics, OutlyingFirstValuesDoNotLosePrecision) {
  // The sampled elements are 10^4, all others are around 0: the shift must not reduce the precision of their variance.
  for (const bool channels_last : {false, true}) {
    Dense values = random_dense({3, 2, 40, 40}, 1);
    for (int64_t i = 0; i < 40; ++i) values[i] = values[1600 + i] = 1e4;
    const Tensor x = here(values);
    const Tensor y = batch_norm(channels_last ? ops::channels_last(x) : x, {}, {}, {}, {}, true, 0.1, kEps);
    EXPECT_TRUE(close(y, batch_norm_reference(dense(x), {}, nullptr, nullptr, nullptr), 1e-6));
  }
}

TEST(BatchNormStatistics, RunningStatisticsUseUnbiasedVariance) {
  for (const DType dtype : {kFloat32, kFloat64}) {
    Tensor mean = from_vector<double>({8, -4}, {2}, {dtype, test_device()}),
           var = from_vector<double>({1, 16}, {2}, {dtype, test_device()});
    const uint32_t version = mean.version();
    const Tensor x = from_vector<double>({1, 10, 2, 30, 3, 20, 6, 40}, {4, 2},
                                         {kFloat32, test_device()});  // means 3 and 25, variances 14/4 and 500/4
    batch_norm(x, mean, var, {}, {}, true, 0.25);
    EXPECT_TRUE(close(mean, {{2}, {0.75 * 8 + 0.25 * 3, 0.75 * -4 + 0.25 * 25}}, 4 * epsilon(dtype)));
    EXPECT_TRUE(close(var, {{2}, {0.75 * 1 + 0.25 * 14.0 / 3, 0.75 * 16 + 0.25 * 500.0 / 3}}, 4 * epsilon(dtype)));
    EXPECT_EQ(mean.version(), version + 1);
    const std::vector<double> before = mean.to_vector<double>();
    batch_norm(x, mean, var, {}, {}, false, 0.25);
    EXPECT_EQ(mean.to_vector<double>(), before);
    EXPECT_EQ(mean.version(), version + 1);
  }
}

TEST(BatchNormStatistics, RunningStatisticsMayBeStridedOrOmitted) {
  const Tensor both = zeros({3, 2}, {kFloat32, test_device()});
  const Tensor x = from_vector<double>({1, 10, 100, 3, 20, 300}, {2, 3}, {kFloat32, test_device()});
  batch_norm(x, both.select(1, 1), {}, {}, {}, true, 1.0);
  EXPECT_EQ(both.to_vector<double>(), (std::vector<double>{0, 2, 0, 15, 0, 200}));
  batch_norm(x, {}, both.select(1, 0), {}, {}, true, 1.0);
  EXPECT_EQ(both.to_vector<double>(), (std::vector<double>{2, 2, 50, 15, 20000, 200}));
}

TEST(BatchNormStatistics, NaNSpreadsOnlyWithinItsChannel) {
  for (const bool channels_last : {false, true}) {
    Tensor x = random_here({4, 2, 3, 3}, 1);
    x.select(1, 1).select(0, 2).fill_(NAN);
    if (channels_last) x = ops::channels_last(x);
    const Tensor y = batch_norm_relu(x, {}, {}, {}, {}, true);
    for (const double value : y.select(1, 0).to_vector<double>()) EXPECT_FALSE(std::isnan(value));
    for (const double value : y.select(1, 1).to_vector<double>()) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(BatchNormStatistics, EmptyInputGivesEmptyResultAndZeroGradients) {
  const TensorOptions options = {kFloat32, test_device()};
  const Tensor mean = ones({3}, options), var = ones({3}, options);
  for (const Shape& shape : {Shape{0, 3, 2, 2}, Shape{0, 3}, Shape{2, 3, 0}}) {
    const Tensor x = zeros(shape, options).requires_grad_(), weight = ones({3}, options).requires_grad_();
    const Tensor y = batch_norm(x, mean, var, weight, {}, false);
    EXPECT_EQ(y.shape(), shape);
    y.backward(zeros(shape, options));
    EXPECT_EQ(weight.grad().to_vector<float>(), (std::vector<float>{0, 0, 0}));
  }
  for (const bool training : {false, true}) {
    const Tensor x = zeros({2, 0}, options).requires_grad_(), none = ones({0}, options);
    const Tensor y = batch_norm(x, none, none, {}, {}, training);
    EXPECT_EQ(y.shape(), Shape({2, 0}));
    y.backward(zeros({2, 0}, options));
  }
}

/// The exchange of a single rank.
struct SingleRank : BatchNormExchange {
  Tensor gather(const Tensor& moments) override { return moments.unsqueeze(0); }
  void sum(const Tensor&) override {}
};

TEST_P(BatchNorm, HalfInputsTakeFloat32Parameters) {
  for (const DType half : {kBFloat16, kFloat16}) {
    for (const Shape& shape : {Shape{6, 3, 4, 5}, Shape{6, 8}, Shape{3, 16}}) {
      SCOPED_TRACE(str(half, " ", shape));
      const Shape channels = {shape[1]};
      const Tensor x = random_here(shape, 1, half), residual = random_here(shape, 2, half);
      const Tensor weight = random_here(channels, 3), bias = random_here(channels, 4),
                   grad = random_here(shape, 5, half);
      const auto run = [&](DType dtype) {
        std::vector<Tensor> leaves = {x.to(dtype), residual.to(dtype), weight.clone(), bias.clone()};
        for (Tensor& leaf : leaves) leaf = leaf.detach().requires_grad_();
        const Tensor out = run_batch_norm({.tail = GetParam()}, leaves[0], leaves[1], leaves[2], leaves[3]);
        EXPECT_EQ(out.dtype(), dtype);
        out.backward(grad.to(dtype));
        std::vector<Tensor> results = {out.detach(), leaves[0].grad(), leaves[2].grad(), leaves[3].grad()};
        if (GetParam() == Tail::kAddRelu) results.push_back(leaves[1].grad());
        return results;
      };
      const std::vector<Tensor> actual = run(half), exact = run(kFloat32);
      for (size_t i = 0; i < actual.size(); ++i) {
        EXPECT_EQ(actual[i].dtype(), i == 2 || i == 3 ? kFloat32 : half) << i;
        EXPECT_TRUE(close(actual[i], dense(exact[i]), (i == 2 || i == 3 ? 1e-5 : 2 * epsilon(half)))) << i;
      }
    }
  }
}

TEST(BatchNormErrors, HalfParametersDoNotFitAFloat32Input) {
  const Tensor x = ones({2, 3}), weight = ones({3}, {kBFloat16});
  EXPECT_THROW(batch_norm(x, {}, {}, weight, {}, true), DTypeError);
  EXPECT_THROW(batch_norm(x.to(kBFloat16), {}, {}, weight, ones({3}), true), DTypeError);
}

TEST(SyncBatchNorm, PairsOfRanksCanBeJoinedFirst) {
  using Moments = std::vector<double>;  // of one channel: count, mean, squares of each rank
  const auto join = [](Moments ranks) {
    Moments all = {0, 0, 0};
    for (size_t i = 0; i < ranks.size(); i += 3) all[0] += ranks[i];
    functions::join_moments(static_cast<int64_t>(ranks.size() / 3), 1, ranks.data(), 0, &all[1], &all[2]);
    return all;
  };
  const Moments first = {3, 0.1, 0.7, 5, 0.3, 1.1}, last = {7, 1.9, 0.3, 2, 0.7, 0.9};
  Moments four = first, pairs = join(first);
  four.insert(four.end(), last.begin(), last.end());
  for (const double x : join(last)) pairs.push_back(x);
  EXPECT_EQ(join(four), join(pairs));
}

TEST(SyncBatchNorm, SingleRankResultEqualsBatchNorm) {
  const Tensor x = random_here({4, 3, 5}, 1);
  EXPECT_EQ(sync_batch_norm(x, {}, {}, {}, {}, std::make_shared<SingleRank>()).to_vector<float>(),
            batch_norm(x, {}, {}, {}, {}, true).to_vector<float>());
}

TEST(BatchNormErrors, InvalidArgumentsAreNamed) {
  const Tensor x = zeros({2, 3, 4, 5});
  const auto run = [](const Tensor& input, const Tensor& mean, const Tensor& var, const Tensor& weight, bool training) {
    batch_norm(input, mean, var, weight, {}, training);
  };
  EXPECT_ERROR(ShapeError, run(zeros({3}), {}, {}, {}, true),
               "batch_norm: input must be [N, C] or [N, C, ...]\n  input  cpu  float32 [3]");
  EXPECT_ERROR(DTypeError, run(zeros({2, 3}, {kInt64}), {}, {}, {}, true),
               "batch_norm: input must be floating\n  input  cpu  int64 [2, 3]");
  EXPECT_ERROR(ShapeError, run(x, zeros({4}), {}, ones({3}), true),
               "batch_norm: running_mean must have shape [3]\n"
               "  input         cpu  float32 [2, 3, 4, 5]\n"
               "  running_mean  cpu  float32 [4]\n"
               "  weight        cpu  float32 [3]");
  EXPECT_ERROR(DTypeError, run(x, {}, zeros({3}, {kInt64}), {}, true),
               "batch_norm: running_var must be floating\n"
               "  input        cpu  float32 [2, 3, 4, 5]\n"
               "  running_var  cpu  int64   [3]");
  EXPECT_ERROR(DTypeError, run(x, {}, {}, zeros({3}, {kFloat64}), true),
               "batch_norm: weight must have input's dtype\n"
               "  input   cpu  float32 [2, 3, 4, 5]\n"
               "  weight  cpu  float64 [3]");
  EXPECT_ERROR(StateError, run(x, {}, expand(ones({1}), {3}), {}, true),
               "batch_norm: running_var is expanded, its elements share memory: clone it first\n"
               "  input        cpu  float32 [2, 3, 4, 5]\n"
               "  running_var  cpu  float32 [3]");
  EXPECT_ERROR(ValueError, batch_norm(x, {}, {}, {}, {}, true, 1.5),
               "batch_norm: momentum is 1.5, expected a number from 0 to 1");
  EXPECT_ERROR(ValueError, batch_norm(x, {}, {}, {}, {}, true, 0.1, -1),
               "batch_norm: eps is -1, expected a finite number >= 0");
  EXPECT_ERROR(ValueError, layer_norm(x, {5}, {}, {}, std::numeric_limits<double>::quiet_NaN()),
               "layer_norm: eps is nan, expected a finite number >= 0");
  EXPECT_ERROR(StateError, run(x, zeros({3}), {}, {}, false),
               "batch_norm: without training, running_mean and running_var must be defined");
  EXPECT_ERROR(ShapeError, run(zeros({1, 3, 1}), {}, {}, {}, true),
               "batch_norm: training needs at least two values per channel, got 1\n  input  cpu  float32 [1, 3, 1]");
  EXPECT_ERROR(ShapeError, batch_norm_add_relu(x, zeros({2, 3, 4}), {}, {}, {}, {}, true),
               "batch_norm_add_relu: input and residual must have the same shape\n"
               "  input     cpu  float32 [2, 3, 4, 5]\n"
               "  residual  cpu  float32 [2, 3, 4]");
  EXPECT_ERROR(DTypeError, batch_norm_add_relu(x, zeros({2, 3, 4, 5}, {kFloat64}), {}, {}, {}, {}, true),
               "batch_norm_add_relu: input and residual must have the same dtype\n"
               "  input     cpu  float32 [2, 3, 4, 5]\n"
               "  residual  cpu  float64 [2, 3, 4, 5]");
  EXPECT_ERROR(ValueError, sync_batch_norm(x, {}, {}, {}, {}, nullptr), "sync_batch_norm: exchange is null");
  for (const OpCase& op : {batch_norm_case({3, 2}, {}), batch_norm_case({3, 2}, {.tail = Tail::kRelu}),
                           batch_norm_case({3, 2}, {.tail = Tail::kAddRelu})}) {
    const std::string text = error_text<StateError>([&] { op.run(std::vector<Tensor>(4)); });
    EXPECT_EQ(text.substr(0, op.name.size() + 7), op.name + ": input") << text;
  }
}

TEST(LayerNorm, LargeOffsetsDoNotLosePrecision) {
  const Dense values = dense(random_tensor({37, 129}, 1, kFloat32, 1e4 - 1.7, 1e4 + 1.7));
  const auto run = [&](DType dtype) {
    Tensor x = here(values, dtype).requires_grad_(), weight = random_here({129}, 2, dtype).requires_grad_();
    const Tensor y = layer_norm(x, {129}, weight, random_here({129}, 3, dtype));
    y.backward(random_here({37, 129}, 4, kFloat32).to(dtype));
    return std::vector<Tensor>{y, x.grad(), weight.grad()};
  };
  const std::vector<Tensor> actual = run(kFloat32), exact = run(kFloat64);
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(close(actual[i], dense(exact[i]), 4e-6)) << i;
}

TEST(LayerNorm, WideRowsDoNotLosePrecision) {
  const int64_t n = (int64_t{1} << 22) + 6;
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 2 == 0 ? 1 : -1;
  const Tensor signs = from_vector<float>(values, {n}).to(test_device()), tenths = full({n}, 0.1, signs.options());
  const Tensor constant = tenths.clone().requires_grad_();
  const auto largest = [](const Tensor& error) { return error.abs().max().item(); };
  for (const double mean : {1e4, 1e6}) {
    const Tensor x = (signs + mean).requires_grad_();
    const Tensor y = layer_norm(x, {n}, {}, {});
    EXPECT_LT(largest(y - signs), 1e-3) << mean;
    y.backward(tenths);
    EXPECT_LT(largest(x.grad()), 1e-4) << mean;
  }
  const Tensor z = rms_norm(constant, {n}, {}, 0);
  EXPECT_LT(largest(z - 1), 1e-3);
  z.backward(tenths);
  EXPECT_LT(largest(constant.grad()), 1e-3);

  const Dense random = random_dense({n}, 5, 1e6 - 1.67, 1e6 + 1.73);  // the mean is between two float32
  const Tensor uniform = make_tensor(random, kFloat32, Layout::kContiguous, test_device());
  const Tensor wide = uniform.cpu().to(kFloat64), exact = layer_norm(wide, {n}, {}, {});
  EXPECT_LT(largest(layer_norm(uniform, {n}, {}, {}).cpu() - exact), 4e-3);
  EXPECT_LT(largest(group_norm(uniform.view({1, 1, n}), 1).flatten().cpu() - exact), 4e-3);
  EXPECT_NEAR(var(uniform).item(), var(wide).item(), 1e-4);
}

TEST(LayerNorm, GradientsAccumulateInFilledSlots) {
  const Tensor x = random_here({70, 33}, 1, kFloat64), cotangent = random_here({70, 33}, 2, kFloat64);
  Tensor weight = ones({33}, {kFloat64, test_device()}).requires_grad_(),
         bias = zeros({33}, {kFloat64, test_device()}).requires_grad_();
  layer_norm(x, {33}, weight, bias).backward(cotangent);
  const Dense once_weight = dense(weight.grad()), once_bias = dense(bias.grad());
  layer_norm(x, {33}, weight, bias).backward(cotangent);
  for (int64_t i = 0; i < 33; ++i) {
    EXPECT_DOUBLE_EQ(dense(weight.grad())[i], 2 * once_weight[i]);
    EXPECT_DOUBLE_EQ(dense(bias.grad())[i], 2 * once_bias[i]);
  }
}

TEST(LayerNorm, EmptyInputGivesZeroGradients) {
  const TensorOptions options = {kFloat32, test_device()};
  Tensor weight = ones({3}, options).requires_grad_(), bias = ones({3}, options).requires_grad_();
  const Tensor y = layer_norm(zeros({0, 3}, options), {3}, weight, bias);
  EXPECT_EQ(y.shape(), Shape({0, 3}));
  y.backward(zeros({0, 3}, options));
  EXPECT_EQ(weight.grad().to_vector<float>(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(bias.grad().to_vector<float>(), (std::vector<float>{0, 0, 0}));
}

// Rows that a warp and rows that a block normalizes on GPUs.
// The gradients of a residual connection are summed by the kernel.
TEST(LayerNorm, GradientIsAddedToOtherGradientsOfTheInput) {
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
    for (const int64_t n : {33, 384, 5001}) {
      const Tensor p = random_here({5, n}, 1, dtype).requires_grad_(), weight = random_here({n}, 2, dtype);
      const Tensor x = p * 1, first = layer_norm(x, {n}, weight, {}), second = layer_norm(x, {n}, {}, {}),
                   other = x * 3;
      const std::vector<Tensor> cotangents = {random_here({5, n}, 3, dtype), random_here({5, n}, 4, dtype),
                                              random_here({5, n}, 5, dtype)};
      const auto gradient = [&](const Tensor& root, const Tensor& cotangent) {
        return grad({root}, {x}, {cotangent}, {.retain_graph = true})[0];
      };
      // In the order of backward: the newest operation first.
      const Tensor expected =
          gradient(other, cotangents[2]) + gradient(second, cotangents[1]) + gradient(first, cotangents[0]);
      const std::vector<Tensor> before = {cotangents[0].clone(), cotangents[1].clone(), cotangents[2].clone()};
      autograd::backward(std::vector{first, second, other}, cotangents);
      if (dtype == kBFloat16) {  // rounded less often
        EXPECT_TRUE(close(p.grad(), dense(expected), 0x1p-5)) << n;
      } else {
        EXPECT_TRUE(same_bits(p.grad(), expected)) << dtype << n;
      }
      for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(cotangents[i], before[i]));
    }
  }
}

TEST(LayerNorm, DoesNotAddToAGradientOfTheCaller) {
  const Tensor p = random_here({5, 384}, 1, kFloat32).requires_grad_();
  const Tensor x = p * 1, y = layer_norm(x, {384}, {}, {});
  const Tensor of_x = random_here({5, 384}, 2, kFloat32), of_y = random_here({5, 384}, 3, kFloat32);
  const Tensor before = of_x.clone();
  autograd::backward(std::vector{x, y}, std::vector{of_x, of_y});
  EXPECT_TRUE(same_bits(of_x, before));
  EXPECT_FALSE(same_bits(p.grad(), before));
}

TEST(LayerNorm, LowPrecisionResultIsTheConvertedResult) {
  for (const DType dtype : {kBFloat16, kFloat16}) {
    for (const int64_t n : {33, 384, 5001}) {
      const Tensor cotangent = random_here({5, n}, 4, kFloat32).to(dtype);
      const auto run = [&](bool low_precision_result, bool recorded) {
        Tensor x = random_here({5, n}, 1, kFloat32).requires_grad_(),
               weight = random_here({n}, 2, kFloat32).requires_grad_(),
               bias = random_here({n}, 3, kFloat32).requires_grad_();
        const auto norm = [&] {
          const Autocast autocast(dtype);
          return layer_norm(x, {n}, weight, bias, 1e-5, low_precision_result);
        };
        const Tensor y = norm(), low = y.to(dtype);
        const auto grads = grad({low}, {x, weight, bias}, {cotangent}, {.create_graph = recorded});
        return std::vector<Tensor>{y, low, grads[0], grads[1], grads[2]};
      };
      for (const bool recorded : {false, true}) {
        const std::vector<Tensor> low = run(true, recorded), wide = run(false, recorded);
        EXPECT_EQ(low[0].dtype(), dtype);
        EXPECT_EQ(wide[0].dtype(), kFloat32);
        for (size_t i = 1; i < low.size(); ++i) EXPECT_TRUE(same_bits(low[i], wide[i])) << dtype << n << i;
      }
    }
  }
  EXPECT_EQ(layer_norm(random_here({2, 8}, 1, kFloat32), {8}, {}, {}, 1e-5, true).dtype(), kFloat32);
  const Autocast autocast(kBFloat16);
  EXPECT_EQ(layer_norm(random_here({2, 8}, 1, kFloat64), {8}, {}, {}, 1e-5, true).dtype(), kFloat64);
}

/// The dtypes of an add_layer_norm.
struct AddedDTypes {
  DType input, other;
  std::optional<DType> autocast;  // with low_precision_result
};

// Rows that a warp and rows that a block normalizes on GPUs, in one kernel or in two.
TEST(AddLayerNorm, MatchesSeparateOperations) {
  const AddedDTypes all[] = {{kFloat32, kFloat32, {}},         {kFloat64, kFloat64, {}},
                             {kBFloat16, kBFloat16, {}},       {kFloat32, kFloat16, {}},
                             {kFloat32, kBFloat16, kBFloat16}, {kFloat32, kFloat16, kFloat16},
                             {kFloat32, kFloat32, kBFloat16}};
  for (const auto& [dtype, other_dtype, autocast_dtype] : all) {
    for (const int64_t n : {33, 384, 5001}) {
      SCOPED_TRACE(str(dtype, " ", other_dtype, " ", autocast_dtype.has_value(), " ", n));
      const auto run = [&](bool in_one, bool recorded) {
        const Tensor x = random_here({5, n}, 1, dtype).requires_grad_(),
                     y = random_here({5, n}, 2, other_dtype).requires_grad_(),
                     weight = random_here({n}, 3, dtype).requires_grad_(),
                     bias = random_here({n}, 4, dtype).requires_grad_();
        const auto forward = [&]() -> std::pair<Tensor, Tensor> {
          std::optional<Autocast> autocast;
          if (autocast_dtype) autocast.emplace(*autocast_dtype);
          if (in_one) return add_layer_norm(x, y, {n}, weight, bias, kEps, autocast_dtype.has_value());
          const Tensor sum = add(x, y);
          return {sum, layer_norm(sum, {n}, weight, bias, kEps, autocast_dtype.has_value())};
        };
        const auto [sum, normal] = forward();
        const auto grads = grad({sum, normal}, {x, y, weight, bias},
                                {random_here({5, n}, 5, sum.dtype()), random_here({5, n}, 6, normal.dtype())},
                                {.create_graph = recorded});
        return std::vector<Tensor>{sum, normal, grads[0], grads[1], grads[2], grads[3]};
      };
      for (const bool recorded : {false, true}) {
        const std::vector<Tensor> one = run(true, recorded), two = run(false, recorded);
        for (size_t i = 0; i < one.size(); ++i) {
          EXPECT_EQ(one[i].dtype(), two[i].dtype()) << i;
          EXPECT_TRUE(same_bits(one[i], two[i])) << i;
        }
      }
    }
  }
}

TEST(AddLayerNorm, InvalidOtherIsNamedInErrors) {
  const Tensor x = zeros({2, 4});
  EXPECT_ERROR(ShapeError, add_layer_norm(x, zeros({4}), {4}, {}, {}),
               "add_layer_norm: input and other must have the same shape\n"
               "  input  cpu  float32 [2, 4]\n"
               "  other  cpu  float32 [4]");
  EXPECT_ERROR(DTypeError, add_layer_norm(x, zeros({2, 4}, {kInt32}), {4}, {}, {}),
               "add_layer_norm: other must be floating\n  other  cpu  int32 [2, 4]");
}

TEST(LayerNorm, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = zeros({2, 3, 4});
  EXPECT_ERROR(ShapeError, layer_norm(x, {3}, {}, {}),
               "layer_norm: input must end in normalized_shape [3]\n  input  cpu  float32 [2, 3, 4]");
  EXPECT_ERROR(ShapeError, layer_norm(x, {1, 2, 3, 4}, {}, {}),
               "layer_norm: input must end in normalized_shape [1, 2, 3, 4]\n  input  cpu  float32 [2, 3, 4]");
  EXPECT_ERROR(ShapeError, layer_norm(x, {}, {}, {}),
               "layer_norm: input must end in normalized_shape []\n  input  cpu  float32 [2, 3, 4]");
  EXPECT_ERROR(ShapeError, layer_norm(zeros({2, 0}), {0}, {}, {}),
               "layer_norm: normalized_shape has a size of 0\n  input  cpu  float32 [2, 0]");
  EXPECT_ERROR(ShapeError, layer_norm(x, {3, 4}, ones({3, 4}), zeros({4})),
               "layer_norm: bias must have shape [3, 4]\n"
               "  input   cpu  float32 [2, 3, 4]\n"
               "  weight  cpu  float32 [3, 4]\n"
               "  bias    cpu  float32 [4]");
  EXPECT_ERROR(DTypeError, layer_norm(x, {4}, ones({4}, {kFloat64}), {}),
               "layer_norm: operands have different dtypes\n"
               "  input   cpu  float32 [2, 3, 4]\n"
               "  weight  cpu  float64 [4]        <- differs");
  EXPECT_ERROR(DTypeError, layer_norm(zeros({2, 3}, {kInt32}), {3}, {}, {}),
               "layer_norm: input must be floating\n  input  cpu  int32 [2, 3]");
}

}}  // namespace tandem::testing
