// Compares rates and momenta of all schedules with PyTorch's (tools/fixtures/schedules.py).

#include <tandem/io/safetensors.h>
#include <tandem/optim/reduce_lr_on_plateau.h>
#include <tandem/optim/schedules.h>
#include <tandem/optim/sgd.h>
#include <tandem/tests/optim/gradients.h>

namespace tandem::testing { namespace {

using namespace optim;

class PyTorchSchedule : public ::testing::Test {
 protected:
  PyTorchSchedule() {
    for (auto& [name, tensor] : io::load_safetensors("tests/fixtures/schedules.safetensors").tensors)
      tensors_.emplace(name, tensor);
  }

  static SGD two_groups() {
    return SGD({{{parameter<double>({1}, {1})}, {.lr = 0.5, .momentum = 0.9}},
                {{parameter<double>({1}, {1})}, {.lr = 2, .momentum = 0.9}}});
  }

  /// Expects the rates and momenta of the file before the first and after each of 200 calls step(t).
  template <class Step>
  void expect_rates(const std::string& name, SGD& sgd, const Step& step) {
    const auto recorded = tensors_.at("recorded").to_vector<int64_t>();
    const auto lr = tensors_.at(name + ".lr").to_vector<double>();
    const auto momentum = tensors_.at(name + ".momentum").to_vector<double>();
    size_t row = 0;
    for (int64_t t = 0; t <= 200; ++t) {
      if (t == recorded[row]) {
        EXPECT_NEAR(sgd.lr(0), lr[2 * row], 1e-13) << name << " " << t;
        EXPECT_NEAR(sgd.lr(1), lr[2 * row + 1], 1e-13) << name << " " << t;
        EXPECT_NEAR(sgd.option(0, "momentum"), momentum[row], 1e-13) << name << " " << t;
        ++row;
      }
      if (t < 200) step(t);
    }
    EXPECT_EQ(row, recorded.size());
    ++num_cases_;
  }

  template <class S>
  void expect_schedule(const std::string& variant, S options) {
    SGD sgd = two_groups();
    ScheduleOf<S> schedule(sgd, std::move(options));
    expect_rates(S::kName + variant, sgd, [&](int64_t) { schedule.step(); });
    EXPECT_EQ(schedule.last_lr(), (std::vector<double>{sgd.lr(0), sgd.lr(1)}));
    EXPECT_EQ(schedule.steps(), 200);
  }

  void expect_plateau(const std::string& variant, ReduceLROnPlateauOptions options) {
    SGD sgd = two_groups();
    ReduceLROnPlateau schedule(sgd, std::move(options));
    expect_rates("ReduceLROnPlateau" + variant, sgd, [&](int64_t t) {
      constexpr double kMetrics[] = {5, 4, 3.9999, 3.5, 3.6, 3.4999, 2, 2.5};
      schedule.step(kMetrics[t % 8] / static_cast<double>(1 + t / 24) - 0.5);
    });
  }

  size_t num_cases_in_file() const { return (tensors_.size() - 1) / 2; }
  size_t num_cases() const { return num_cases_; }

 private:
  std::map<std::string, Tensor> tensors_;
  size_t num_cases_ = 0;
};

TEST_F(PyTorchSchedule, RatesAndMomentaAreEqual) {
  expect_schedule("", LambdaLROptions{.lr_lambda = {[](int64_t t) { return 1 / (1 + static_cast<double>(t)); },
                                                    [](int64_t t) { return std::pow(0.95, t); }}});
  expect_schedule("",
                  MultiplicativeLROptions{.lr_lambda = [](int64_t t) { return 1 - 1 / (static_cast<double>(t) + 2); }});
  expect_schedule("", StepLROptions{.step_size = 30, .gamma = 0.5});
  expect_schedule("", MultiStepLROptions{.milestones = {2, 3, 3, 60}, .gamma = 0.3});
  expect_schedule("", ConstantLROptions{});
  expect_schedule("", LinearLROptions{.start_factor = 0.25, .end_factor = 0.75, .total_iters = 30});
  expect_schedule("", ExponentialLROptions{.gamma = 0.97});
  expect_schedule("", PolynomialLROptions{.total_iters = 150, .power = 0.7});
  expect_schedule("", CosineAnnealingLROptions{.T_max = 60, .eta_min = 0.01});
  expect_schedule("", CosineAnnealingWarmRestartsOptions{.T_0 = 13});
  expect_schedule(".T_mult", CosineAnnealingWarmRestartsOptions{.T_0 = 7, .T_mult = 2, .eta_min = 0.02});
  expect_schedule("", CosineWarmupLROptions{.warmup_steps = 10, .total_steps = 200});
  expect_schedule("", CyclicLROptions{.base_lr = 0.01, .max_lr = {0.1, 0.2}, .step_size_up = 11});
  expect_schedule(".triangular2", CyclicLROptions{.base_lr = 0.01,
                                                  .max_lr = 0.1,
                                                  .step_size_up = 11,
                                                  .step_size_down = 23,
                                                  .mode = "triangular2",
                                                  .base_momentum = 0.5});
  expect_schedule(".exp_range", CyclicLROptions{.base_lr = 0.01,
                                                .max_lr = 0.1,
                                                .step_size_up = 17,
                                                .mode = "exp_range",
                                                .gamma = 0.99,
                                                .cycle_momentum = false});
  expect_schedule(".scale_fn", CyclicLROptions{.base_lr = 0.01,
                                               .max_lr = 0.1,
                                               .step_size_up = 17,
                                               .scale_fn = [](double x) { return std::pow(5, -0.01 * x); },
                                               .scale_mode = "iterations"});
  expect_schedule("", OneCycleLROptions{.max_lr = {0.1, 0.3}, .total_steps = 200});
  expect_schedule(".three_phase", OneCycleLROptions{.max_lr = 0.1,
                                                    .epochs = 20,
                                                    .steps_per_epoch = 11,
                                                    .pct_start = 0.4,
                                                    .anneal_strategy = "linear",
                                                    .div_factor = 10,
                                                    .final_div_factor = 100,
                                                    .three_phase = true});
  expect_schedule("", SequentialLROptions{
                          .schedulers = {ConstantLROptions{.factor = 0.1, .total_iters = 20},
                                         ExponentialLROptions{.gamma = 0.9}, CosineAnnealingLROptions{.T_max = 100}},
                          .milestones = {20, 50}});
  expect_schedule("", ChainedSchedulerOptions{.schedulers = {LinearLROptions{.start_factor = 0.1, .total_iters = 10},
                                                             StepLROptions{.step_size = 25, .gamma = 0.5},
                                                             ExponentialLROptions{.gamma = 0.99}}});
  expect_schedule("", SWALROptions{.swa_lr = {0.05, 0.1}, .anneal_epochs = 30});
  expect_schedule(".linear", SWALROptions{.swa_lr = 0.05, .anneal_epochs = 17, .anneal_strategy = "linear"});
  expect_schedule(".at_once", SWALROptions{.swa_lr = 0.05, .anneal_epochs = 0});
  expect_plateau("", {.patience = 3, .cooldown = 4, .min_lr = {1e-3, 1e-2}});
  expect_plateau(".max",
                 {.mode = "max", .factor = 0.5, .patience = 5, .threshold = 0.1, .threshold_mode = "abs", .eps = 1e-3});
  expect_plateau(".max_rel", {.mode = "max", .factor = 0.7, .patience = 2, .threshold = 0.05});
  expect_plateau(".min_abs", {.factor = 0.7, .patience = 2, .threshold = 0.3, .threshold_mode = "abs", .cooldown = 1});
  EXPECT_EQ(num_cases(), num_cases_in_file());
}

}}  // namespace tandem::testing
