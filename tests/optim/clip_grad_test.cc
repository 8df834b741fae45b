#include <tandem/optim/clip_grad.h>

#include <tandem/base/parallel_for.h>
#include <tandem/tests/optim/gradients.h>

namespace td = tandem;
using td::optim::clip_grad_norm_;
using td::optim::clip_grad_value_;
using td::optim::get_total_norm;
using td::testing::parameter;
using td::testing::set_gradient;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Parameters with the gradients [3, -4] (float32), none, and [[1], [-2]] (float64).
std::vector<td::Tensor> three() {
  const std::vector<td::Tensor> parameters = {parameter<float>({0, 0}, {2}), parameter<float>({0}, {1}),
                                              parameter<double>({0, 0}, {2, 1})};
  set_gradient(parameters[0], td::from_vector<float>({3, -4}, {2}));
  set_gradient(parameters[2], td::from_vector<double>({1, -2}, {2, 1}));
  return parameters;
}

TEST(ClipGradNorm, NormAndGradientsMatchPyTorch) {
  // g = [torch.tensor([3.0, -4.0]), torch.tensor([[1.0], [-2.0]])]
  // torch.nn.utils.clip_grad_norm_(parameters with these gradients, 2.0, norm_type)
  struct Case {
    double norm_type;
    double norm;
    std::vector<double> first;
    std::vector<double> second;
  };
  const std::vector<Case> cases = {
      {1, 10, {0.5999999642372131, -0.7999999523162842}, {0.19999998807907104, -0.3999999761581421}},
      {2, 5.4772257804870605, {1.095444917678833, -1.4605932235717773}, {0.36514830589294434, -0.7302966117858887}},
      {3, 4.641589164733887, {1.2926604747772217, -1.7235472202301025}, {0.43088680505752563, -0.8617736101150513}},
      {kInfinity, 4, {1.4999996423721313, -1.9999995231628418}, {0.49999988079071045, -0.9999997615814209}},
  };
  for (const Case& c : cases) {
    const auto parameters = three();
    EXPECT_NEAR(clip_grad_norm_(parameters, 2.0, c.norm_type).item<double>(), c.norm, 1e-6);
    const auto first = parameters[0].grad().to_vector<double>();
    const auto second = parameters[2].grad().to_vector<double>();
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(first[i], c.first[i], 1e-6);
      EXPECT_NEAR(second[i], c.second[i], 1e-6);
    }
    EXPECT_FALSE(parameters[1].grad().defined());
  }
}

TEST(ClipGradNorm, GradientsOnSeveralDevicesAreClippedInPlace) {
  constexpr int64_t kSize = 30000;
  td::set_cpu_device_count(3);
  const td::Device devices[] = {td::Device("cpu"), td::Device("cpu:1"), td::Device("cpu:2")};
  for (const double norm_type : {1.0, 2.0, kInfinity}) {
    std::vector<td::Tensor> apart, together;
    for (int i = 0; i < 3; ++i) {
      for (auto* list : {&apart, &together}) {
        const td::TensorOptions options = {td::kFloat32, list == &apart ? devices[i] : td::Device()};
        list->push_back(td::zeros({kSize}, options).requires_grad_());
        set_gradient(list->back(), td::full({kSize}, 3 - 2 * i, options));
      }
    }
    td::reset_peak_memory(devices[0]);
    const int64_t before = td::memory_stats(devices[0]).allocated;
    const td::Tensor norm = clip_grad_norm_(apart, 0.5, norm_type);
    EXPECT_LT(td::memory_stats(devices[0]).peak_allocated, before + kSize);  // gradients stay on their devices
    EXPECT_EQ(norm.device(), td::Device());
    EXPECT_EQ(norm.item<double>(), clip_grad_norm_(together, 0.5, norm_type).item<double>());
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(apart[i].grad().device(), devices[i]);
      EXPECT_EQ(apart[i].grad().to_vector<float>(), together[i].grad().to_vector<float>());
    }
  }
}

TEST(ClipGradNorm, SmallGradientsAreNotChanged) {
  const auto parameters = three();
  EXPECT_NEAR(clip_grad_norm_(parameters, 100.0).item<double>(), std::sqrt(30.0), 1e-12);
  EXPECT_EQ(parameters[0].grad().to_vector<float>(), (std::vector<float>{3, -4}));
  EXPECT_EQ(clip_grad_norm_({}, 1.0).item<double>(), 0);
}

TEST(ClipGradNorm, ClippedGradientsIncreaseTheirVersion) {
  const auto parameters = three();
  const uint32_t version = parameters[0].grad().version();
  clip_grad_norm_(parameters, 1.0);
  EXPECT_GT(parameters[0].grad().version(), version);
}

TEST(ClipGradNorm, NormIncludesEveryValueAtEverySize) {
  for (const int64_t n : {0, 1, 3, 7, 31, 32, 33, (1 << 15) + 1, 100003}) {
    for (const int64_t offset : {0, 1}) {  // in a bucket; kernels access aligned gradients by 16 bytes
      SCOPED_TRACE(td::str(n, " values from ", offset));
      const td::Tensor bucket = td::full({offset + n + 1}, 100, {td::kFloat32, td::testing::test_device()});
      const td::Tensor p = td::zeros({n}, bucket.options()).requires_grad_();
      td::autograd::leaf(p).set_slot(bucket.slice(0, offset, offset + n));
      set_gradient(p, td::full({n}, -2));
      EXPECT_EQ(clip_grad_norm_({p}, 1e9, 2.0).item<double>(), std::sqrt(4.0 * static_cast<double>(n)));
      EXPECT_EQ(clip_grad_norm_({p}, 1e9, 1.0).item<double>(), 2.0 * static_cast<double>(n));
      EXPECT_EQ(clip_grad_norm_({p}, 1e9, kInfinity).item<double>(), n == 0 ? 0.0 : 2.0);
      EXPECT_NEAR(clip_grad_norm_({p}, 1e9, 4.0).item<double>(), 2.0 * std::pow(static_cast<double>(n), 0.25), 1e-10);
      clip_grad_value_({p}, 1.0);
      EXPECT_EQ(p.grad().to_vector<float>(), std::vector<float>(static_cast<size_t>(n), -1));
      EXPECT_EQ(bucket[offset + n].item(), 100);
    }
  }
}

TEST(ClipGradNorm, ResultDoesNotDependOnThreadCount) {
  const auto run = [](int threads) {
    td::set_num_threads(threads);
    std::vector<float> values(300001);
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i * i));
    const td::Tensor p = td::zeros({300001}, {td::kFloat32, td::testing::test_device()}).requires_grad_();
    set_gradient(p, td::from_vector<float>(values, {300001}));
    const double norm = clip_grad_norm_({p}, 0.5).item<double>();
    td::set_num_threads(0);
    return std::pair(norm, p.grad().to_vector<float>());
  };
  EXPECT_EQ(run(1), run(2));
}

TEST(ClipGradNorm, NonFiniteGradientsAreDetected) {
  for (const double bad : {std::nan(""), kInfinity, -kInfinity}) {
    for (const double norm_type : {2.0, kInfinity}) {
      const auto parameters = three();
      const td::Tensor gradient = parameters[0].grad();
      td::primitives::fill(td::make_view(gradient.storage(), gradient.dtype(), {1}, {1}, gradient.impl().offset + 1),
                           bad);
      EXPECT_ERROR(td::StateError, clip_grad_norm_(parameters, 1.0, norm_type, true),
                   td::str("clip_grad_norm_: the norm is ", std::isnan(bad) ? "nan" : "inf"));
      EXPECT_EQ(parameters[2].grad().to_vector<double>(), (std::vector<double>{1, -2}));
      EXPECT_FALSE(std::isfinite(clip_grad_norm_(parameters, 1.0, norm_type).item<double>()));
      const double other = parameters[2].grad().to_vector<double>()[0];
      EXPECT_TRUE(std::isnan(bad) ? std::isnan(other) : other == 0);
    }
  }
}

TEST(ClipGradNorm, InvalidArgumentsAreRejected) {
  const auto parameters = three();
  EXPECT_ERROR(td::ValueError, clip_grad_norm_(parameters, -1), "clip_grad_norm_: max_norm is -1, expected >= 0");
  EXPECT_ERROR(td::ValueError, clip_grad_norm_(parameters, std::nan("")),
               "clip_grad_norm_: max_norm is nan, expected >= 0");
  EXPECT_ERROR(td::ValueError, clip_grad_norm_(parameters, 1, 0), "clip_grad_norm_: norm_type is 0, expected > 0");
  EXPECT_ERROR(td::ValueError, clip_grad_value_(parameters, -1), "clip_grad_value_: clip_value is -1, expected >= 0");
  EXPECT_ERROR(td::ValueError, get_total_norm({}, -1), "get_total_norm: norm_type is -1, expected > 0");
  EXPECT_ERROR(td::DTypeError, get_total_norm({td::zeros({1}, {td::kInt32})}),
               "get_total_norm: a tensor is int32, expected a floating-point dtype");
  EXPECT_ERROR(td::StateError, get_total_norm({td::zeros({2, 3}).t()}), "get_total_norm: a tensor is not contiguous");
}

TEST(GetTotalNorm, IsTheNormThatClippingReturns) {
  for (const double norm_type : {1.0, 2.0, 3.0, kInfinity}) {
    const auto parameters = three();
    const double norm = get_total_norm({parameters[0].grad(), parameters[2].grad()}, norm_type).item<double>();
    EXPECT_EQ(clip_grad_norm_(parameters, 100, norm_type).item<double>(), norm);
  }
  EXPECT_EQ(get_total_norm({}).item<double>(), 0);
  EXPECT_ERROR(td::StateError, get_total_norm({td::full({1}, kInfinity)}, 2, true), "get_total_norm: the norm is inf");
}

TEST(GetTotalNorm, HalvesAreAccumulatedInFloat64) {
  for (const td::DType dtype : {td::kFloat16, td::kBFloat16})
    EXPECT_EQ(get_total_norm({td::full({10000}, 2, {dtype, td::testing::test_device()})}).item<double>(), 200);
}

TEST(ClipGradValue, LimitsEveryValueOfEveryGradient) {
  const auto parameters = three();
  clip_grad_value_(parameters, 1.5);
  EXPECT_EQ(parameters[0].grad().to_vector<double>(), (std::vector<double>{1.5, -1.5}));
  EXPECT_EQ(parameters[2].grad().to_vector<double>(), (std::vector<double>{1, -1.5}));
  EXPECT_FALSE(parameters[1].grad().defined());
}

TEST(ClipGradValue, NanStaysNan) {
  const td::Tensor p = parameter<float>({0, 0}, {2});
  set_gradient(p, td::from_vector<float>({std::nanf(""), static_cast<float>(-kInfinity)}, {2}));
  clip_grad_value_({p}, 2);
  EXPECT_TRUE(std::isnan(p.grad().to_vector<float>()[0]));
  EXPECT_EQ(p.grad().to_vector<float>()[1], -2);
}

}  // namespace
