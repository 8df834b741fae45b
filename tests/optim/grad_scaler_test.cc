#include <tandem/optim/grad_scaler.h>

#include <tandem/optim/clip_grad.h>
#include <tandem/optim/sgd.h>
#include <tandem/tests/optim/gradients.h>

namespace td = tandem;
using td::optim::GradScaler;
using td::optim::SGD;
using td::testing::error_text;
using td::testing::parameter;
using td::testing::set_gradient;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct TwoParameters {
  std::vector<td::Tensor> all = {parameter<float>({1, 2, 3}, {3}), parameter<double>({5, 6}, {2})};
  SGD sgd{all, {.lr = 1}};

  void give(const std::vector<float>& first, const std::vector<double>& second) {
    set_gradient(all[0], td::from_vector<float>(first, {3}));
    set_gradient(all[1], td::from_vector<double>(second, {2}));
  }
};

TEST(GradScaler, BackwardScalesAndStepUnscales) {
  TwoParameters p;
  GradScaler scaler({.init_scale = 1024});
  scaler.backward(td::mul(p.all[0], p.all[0]).sum());
  EXPECT_EQ(p.all[0].grad().to_vector<float>(), (std::vector<float>{2048, 4096, 6144}));
  EXPECT_TRUE(scaler.step(p.sgd));
  scaler.update();
  EXPECT_EQ(p.all[0].to_vector<float>(), (std::vector<float>{-1, -2, -3}));  // x - 2 x
  EXPECT_EQ(p.all[1].to_vector<double>(), (std::vector<double>{5, 6}));      // without a gradient
}

TEST(GradScaler, NonFiniteGradientSkipsTheStep) {
  for (const float bad : {kInfinity, -kInfinity, kNan}) {
    for (const int where : {0, 1, 2, 3, 4}) {
      TwoParameters p;
      GradScaler scaler({.init_scale = 8});
      std::vector<float> first = {8, 8, 8};
      std::vector<double> second = {8, 8};
      if (where < 3) first[static_cast<size_t>(where)] = bad;
      if (where >= 3) second[static_cast<size_t>(where - 3)] = bad;
      p.give(first, second);
      EXPECT_FALSE(scaler.step(p.sgd));
      scaler.update();
      EXPECT_EQ(p.all[0].to_vector<float>(), (std::vector<float>{1, 2, 3}));
      EXPECT_EQ(p.all[1].to_vector<double>(), (std::vector<double>{5, 6}));
      EXPECT_EQ(scaler.get_scale(), 4);
      p.give({4, 4, 4}, {4, 4});
      EXPECT_TRUE(scaler.step(p.sgd));
      EXPECT_EQ(p.all[0].to_vector<float>(), (std::vector<float>{0, 1, 2}));
    }
  }
}

// Larger than a block and than a chunk; the largest finite value does not count as infinite.
TEST(GradScaler, LargeGradientsAreCheckedCompletely) {
  const int64_t n = 40000;
  for (const int64_t where : {int64_t{-1}, int64_t{0}, int64_t{16383}, int64_t{16384}, n - 1}) {
    const td::Tensor x = parameter<float>(std::vector<float>(static_cast<size_t>(n), 1), {n});
    std::vector<float> gradient(static_cast<size_t>(n), std::numeric_limits<float>::max());
    if (where >= 0) gradient[static_cast<size_t>(where)] = kInfinity;
    set_gradient(x, td::from_vector<float>(gradient, {n}));
    SGD sgd({x}, {.lr = 0});
    GradScaler scaler({.init_scale = 2});
    EXPECT_EQ(scaler.step(sgd), where < 0) << where;
    EXPECT_EQ(x.grad().to_vector<float>()[7], std::numeric_limits<float>::max() / 2);
  }
}

// torch.amp.GradScaler(init_scale=16, growth_interval=2) after updates with found_inf of 0 0 0 1 0 0: 16 32 32 16 16
// 32.
TEST(GradScaler, ScaleGrowsAndShrinksAsInPyTorch) {
  TwoParameters p;
  GradScaler scaler({.init_scale = 16, .growth_interval = 2});
  std::vector<double> scales;
  for (const bool bad : {false, false, false, true, false, false}) {
    p.give({bad ? kInfinity : 1, 1, 1}, {1, 1});
    scaler.step(p.sgd);
    scaler.update();
    scales.push_back(scaler.get_scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{16, 32, 32, 16, 16, 32}));
}

TEST(GradScaler, ScaleHasALowerBoundAndItsStateCanBeLoaded) {
  for (const auto& [options, bound] :
       {std::pair<td::optim::GradScalerOptions, double>{{}, 0x1p-16}, {{.init_scale = 8, .min_scale = 3}, 3}}) {
    TwoParameters p;
    GradScaler scaler(options), other(options);
    for (int step = 0; step < 1200; ++step) {
      p.give({kInfinity, 1, 1}, {1, 1});
      EXPECT_FALSE(scaler.step(p.sgd));
      scaler.update();
    }
    EXPECT_EQ(scaler.get_scale(), bound);
    for (const double saved : {bound, 0.0}) {
      td::State state = scaler.state_dict();
      state.set("scale", saved);
      other.load_state_dict(state);
      EXPECT_EQ(other.get_scale(), bound);
    }
  }
}

// 65536 is infinite in float16.
TEST(GradScaler, Float16LossSkipsStepsUntilTheScaleFits) {
  const td::Tensor w = parameter<float>({0.5}, {1});
  SGD sgd({w}, {.lr = 0.01});
  GradScaler scaler;
  std::vector<bool> taken;
  for (int step = 0; step < 3; ++step) {
    sgd.zero_grad();
    scaler.backward(w.to(td::kFloat16).sum());
    taken.push_back(scaler.step(sgd));
    scaler.update();
  }
  EXPECT_EQ(taken, (std::vector{false, true, true}));
}

TEST(GradScaler, ScaleGrowthIsLimitedToFloatRange) {
  TwoParameters p;
  GradScaler scaler({.init_scale = 0x1p127, .growth_interval = 1});
  p.give({1, 1, 1}, {1, 1});
  scaler.step(p.sgd);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 0x1p127);
}

TEST(GradScaler, UnscaledGradientsCanBeClippedBeforeStep) {
  TwoParameters p;
  GradScaler scaler({.init_scale = 4});
  p.give({12, 0, 16}, {0, 0});
  scaler.unscale_(p.sgd);
  EXPECT_NEAR(td::optim::clip_grad_norm_(p.all, 1).item<double>(), 5, 1e-6);
  EXPECT_TRUE(scaler.step(p.sgd));  // must not divide again
  EXPECT_NEAR(p.all[0].to_vector<float>()[2], 3 - 0.8, 1e-6);
}

TEST(GradScaler, SkipDecisionIsSharedAmongRanks) {
  std::vector<double> reported;
  GradScaler scaler({.init_scale = 2, .all_reduce_found_inf = [&](const td::Tensor& found) {
                       EXPECT_EQ(found.device(), td::Device());
                       reported.push_back(found.to_vector<double>()[0]);
                       td::primitives::fill(found, 1);  // another rank found an infinity
                     }});
  TwoParameters p;
  p.give({1, 1, 1}, {1, 1});
  EXPECT_FALSE(scaler.step(p.sgd));
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 1);
  p.give({kNan, 1, 1}, {1, 1});
  EXPECT_FALSE(scaler.step(p.sgd));
  EXPECT_EQ(reported, (std::vector<double>{0, 1}));
}

TEST(GradScaler, StateDictContinuesScaleAndGrowth) {
  TwoParameters p;
  GradScaler scaler({.init_scale = 16, .growth_interval = 2});
  p.give({1, 1, 1}, {1, 1});
  scaler.step(p.sgd);
  scaler.update();
  GradScaler other({.init_scale = 1, .growth_interval = 2});
  other.load_state_dict(scaler.state_dict());
  other.step(p.sgd);
  other.update();
  EXPECT_EQ(other.get_scale(), 32);
  GradScaler sooner(
      {.init_scale = 1, .growth_interval = 1});  // the loaded growth_tracker is already beyond this interval
  sooner.load_state_dict(scaler.state_dict());
  sooner.step(p.sgd);
  sooner.update();
  EXPECT_EQ(sooner.get_scale(), 32);
  const auto refusal = [&](const char* name, auto value) {
    td::State wrong = scaler.state_dict();
    wrong.set(name, value);
    return error_text<td::StateError>([&] { other.load_state_dict(wrong); });
  };
  EXPECT_NE(refusal("scale", -1.0).find("scale: is -1, expected a finite number of at least 0"), std::string::npos);
  EXPECT_NE(refusal("growth_tracker", int64_t{-1}).find("growth_tracker: is -1, expected at least 0"),
            std::string::npos);
  EXPECT_EQ(other.get_scale(), 32);
}

TEST(GradScaler, InvalidOptionsAndUseAreRejected) {
  EXPECT_ERROR(td::ValueError, GradScaler({.init_scale = 0}),
               "GradScaler: init_scale is 0, expected a positive number");
  EXPECT_ERROR(td::ValueError, GradScaler({.min_scale = 0}), "GradScaler: min_scale is 0, expected a positive number");
  EXPECT_EQ(GradScaler({.init_scale = 1e-6}).get_scale(), 1e-6);
  EXPECT_ERROR(td::ValueError, GradScaler({.growth_factor = 1}), "GradScaler: growth_factor is 1, expected > 1");
  EXPECT_ERROR(td::ValueError, GradScaler({.backoff_factor = 1}),
               "GradScaler: backoff_factor is 1, expected between 0 and 1");
  EXPECT_ERROR(td::ValueError, GradScaler({.growth_interval = 0}), "GradScaler: growth_interval is 0, expected > 0");
  TwoParameters p;
  p.give({1, 1, 1}, {1, 1});
  GradScaler scaler;
  EXPECT_ERROR(td::StateError, scaler.update(), "GradScaler: update was called before step; call step first");
  scaler.step(p.sgd);
  EXPECT_ERROR(td::StateError, scaler.step(p.sgd),
               "GradScaler: step was already called for this optimizer; call update() before the next step");
  EXPECT_ERROR(td::StateError, scaler.unscale_(p.sgd),
               "GradScaler: unscale_ was already called for this optimizer; call update() before the next step");
}

}  // namespace
