#include <tandem/optim/adagrad.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/reduce_lr_on_plateau.h>
#include <tandem/optim/schedules.h>
#include <tandem/optim/sgd.h>
#include <tandem/tests/optim/gradients.h>

namespace td = tandem;
using namespace td::optim;
using td::testing::error_text;
using td::testing::parameter;

namespace {

/// An optimizer of two groups.
SGD two_groups(double lr0 = 0.5, double lr1 = 2) {
  return SGD({{.parameters = {parameter<float>({1}, {1})}, .options = {.lr = lr0}},
              {.parameters = {parameter<float>({1}, {1})}, .options = {.lr = lr1}}});
}

/// Takes four steps of `schedule`, loads its state into `restored`, which has other options, and expects equal rates in
/// five more steps of both.
void expect_continues(SGD& sgd, Schedule& schedule, SGD& later, Schedule& restored) {
  for (int i = 0; i < 4; ++i) schedule.step();
  later.load_state_dict(sgd.state_dict());
  restored.load_state_dict(schedule.state_dict());
  EXPECT_EQ(later.lr(), sgd.lr());
  EXPECT_EQ(restored.last_lr(), schedule.last_lr());
  for (int i = 0; i < 5; ++i) {
    schedule.step();
    restored.step();
    EXPECT_EQ(later.lr(), sgd.lr());
    EXPECT_EQ(later.lr(1), sgd.lr(1));
  }
  EXPECT_EQ(restored.steps(), 9);
  EXPECT_LT(later.lr(), 0.5);
}

TEST(Schedule, StateDictContinuesBitExactly) {
  const auto check = []<class S>(std::type_identity<ScheduleOf<S>>, std::type_identity_t<S> options,
                                 std::type_identity_t<S> others) {
    SGD sgd = two_groups(), later = two_groups(7, 7);
    ScheduleOf<S> schedule(sgd, options), restored(later, others);
    expect_continues(sgd, schedule, later, restored);
  };
  check(std::type_identity<StepLR>(), {.step_size = 3, .gamma = 0.7}, {.step_size = 1});
  check(std::type_identity<MultiStepLR>(), {.milestones = {1, 6, 7}, .gamma = 0.7}, {.milestones = {}});
  check(std::type_identity<CosineWarmupLR>(), {.warmup_steps = 2, .total_steps = 11, .min_factor = 0.3},
        {.total_steps = 1});
  const td::optim::PerGroup<StepFunction> function = [](int64_t t) { return t < 3 ? 0.9 : 0.8; };
  check(std::type_identity<MultiplicativeLR>(), {.lr_lambda = function}, {.lr_lambda = function});
  check(std::type_identity<OneCycleLR>(),
        {.max_lr = {0.1, 0.2}, .total_steps = 12, .anneal_strategy = "linear", .three_phase = true},
        {.max_lr = 1, .total_steps = 3, .cycle_momentum = false});
  check(std::type_identity<SWALR>(), {.swa_lr = 0.1, .anneal_epochs = 6}, {.swa_lr = {0.3, 0.4}});
  check(std::type_identity<SequentialLR>(),
        {.schedulers = {LinearLROptions{.total_iters = 3}, ExponentialLROptions{.gamma = 0.9}}, .milestones = {3}},
        {.schedulers = {LinearLROptions{}, ExponentialLROptions{.gamma = 0.1}}, .milestones = {1}});
}

TEST(Schedule, StatesOfEarlierVersionsAreLoaded) {
  SGD sgd = two_groups();
  MultiStepLR schedule(sgd, {.milestones = {5}});
  td::State state;
  state.set("schedule", std::string("MultiStepLR"));
  state.set("gamma", 0.5);
  state.set("num_milestones", int64_t{2});
  state.set("milestones.0", int64_t{1});
  state.set("milestones.1", int64_t{3});
  state.set("steps", int64_t{2});
  state.set("initial_lr.0", 0.5);
  state.set("initial_lr.1", 2.0);
  schedule.load_state_dict(state);
  EXPECT_EQ(schedule.last_lr(), (std::vector<double>{0.25, 1}));
  schedule.step();
  EXPECT_EQ(sgd.lr(), 0.125);
}

TEST(Schedule, LoadErrorListsEveryMismatch) {
  SGD sgd = two_groups();
  StepLR schedule(sgd, {.step_size = 3, .gamma = 0.5});
  td::State state;
  state.set("schedule", std::string("MultiStepLR"));
  state.set("step_size", int64_t{0});
  state.set("steps", int64_t{-1});
  state.set("initial_lr.0", std::nan(""));
  state.set("initial_lr.2", 1.0);
  EXPECT_ERROR(td::StateError, schedule.load_state_dict(state),
               "StepLR: the state does not fit"
               "\n  different   schedule: StepLR expected, MultiStepLR in the state"
               "\n  different   steps: is -1, expected at least 0"
               "\n  different   initial_lr.0: initial_lr is nan, expected a finite number >= 0"
               "\n  missing     initial_lr.1"
               "\n  missing     gamma"
               "\n  different   options: step_size is 0, expected at least 1"
               "\n  unexpected  initial_lr.2");
  MultiStepLR milestones(sgd, {.milestones = {2, 3}});
  state = milestones.state_dict();
  state.set("milestones.1", int64_t{1});
  EXPECT_ERROR(td::StateError, milestones.load_state_dict(state),
               "MultiStepLR: the state does not fit"
               "\n  different   options: milestones.1 is 1, expected at least milestones.0, which is 2");
  state = milestones.state_dict();
  state.set("num_milestones", int64_t{1} << 60);
  EXPECT_ERROR(td::StateError, milestones.load_state_dict(state),
               "MultiStepLR: the state does not fit\n  missing     milestones.2");
  CosineWarmupLR cosine(sgd, {.warmup_steps = 1, .total_steps = 5});
  state = cosine.state_dict();
  state.set("warmup_steps", int64_t{5});
  EXPECT_ERROR(
      td::StateError, cosine.load_state_dict(state),
      "CosineWarmupLR: the state does not fit"
      "\n  different   options: warmup_steps is 5 and total_steps 5, expected 0 <= warmup_steps < total_steps");
  ChainedScheduler chained(sgd, {.schedulers = {ConstantLROptions{}, ConstantLROptions{}}});
  ChainedScheduler other(sgd, {.schedulers = {ExponentialLROptions{.gamma = 1}}});
  EXPECT_ERROR(td::StateError, chained.load_state_dict(other.state_dict()),
               "ChainedScheduler: the state does not fit"
               "\n  different   schedulers: 2 schedules expected, 1 in the state"
               "\n  different   schedulers.0.schedule: ConstantLR expected, ExponentialLR in the state"
               "\n  missing     schedulers.0.factor"
               "\n  missing     schedulers.0.total_iters"
               "\n  missing     schedulers.1.schedule"
               "\n  missing     schedulers.1.factor"
               "\n  missing     schedulers.1.total_iters"
               "\n  unexpected  schedulers.0.gamma");
  EXPECT_EQ(schedule.steps(), 0);
  EXPECT_EQ(schedule.last_lr(), (std::vector<double>{0.5, 2}));
}

/// The error text of constructing a schedule with these options.
template <class S>
std::string wrong(S options) {
  SGD sgd = two_groups();
  const std::string text = error_text<td::ValueError>([&] { ScheduleOf<S>(sgd, std::move(options)); });
  EXPECT_EQ(sgd.lr(), 0.5);
  return text;
}

/// The rates of a SequentialLR, beginning at 0.1.
std::vector<double> sequential_rates(SequentialLROptions options, int steps) {
  SGD sgd({parameter<float>({1}, {1})}, {.lr = 0.1});
  SequentialLR schedule(sgd, std::move(options));
  std::vector<double> rates = schedule.last_lr();
  for (int i = 0; i < steps; ++i) {
    schedule.step();
    rates.push_back(sgd.lr());
  }
  return rates;
}

// The expected rates are those of torch.optim.lr_scheduler.SequentialLR.
TEST(SequentialLR, PartsThatStartAtTheCurrentRateContinueThePartBefore) {
  const auto expect_rates = [](const std::vector<double>& expected, SequentialLROptions options) {
    const std::vector<double> rates = sequential_rates(std::move(options), static_cast<int>(expected.size()) - 1);
    for (size_t t = 0; t < expected.size(); ++t) EXPECT_NEAR(rates[t], expected[t], 1e-8) << t;
  };
  const ExponentialLROptions half = {.gamma = 0.5};
  const StepFunction factors = [](int64_t t) { return t == 0 ? 9 : 1 - 0.1 * static_cast<double>(t); };
  const auto swa = [](int64_t anneal_epochs) {
    return SWALROptions{.swa_lr = 0.05, .anneal_epochs = anneal_epochs, .anneal_strategy = "linear"};
  };
  expect_rates({0.1, 0.05, 0.025, 0.0125, 0.0125, 0.021875, 0.03125, 0.040625, 0.05, 0.05},
               {.schedulers = {half, swa(4)}, .milestones = {4}});
  expect_rates({0.1, 0.05, 0.025, 0.025, 0.03125, 0.0375, 0.04375, 0.05},
               {.schedulers = {half, half, swa(4)}, .milestones = {3, 3}});
  expect_rates({0.1, 0.05, 0.025, 0.05, 0.05}, {.schedulers = {half, swa(0)}, .milestones = {3}});
  expect_rates({0.01, 0.01, 0.01, 0.01, 0.01585786, 0.03, 0.04414214, 0.05},
               {.schedulers = {ConstantLROptions{.factor = 0.1, .total_iters = 20},
                               SWALROptions{.swa_lr = 0.05, .anneal_epochs = 4}},
                .milestones = {3}});
  expect_rates(
      {0.1, 0.05, 0.025, 0.0225, 0.02025, 0.018225},
      {.schedulers = {half, MultiplicativeLROptions{.lr_lambda = [](int64_t) { return 0.9; }}}, .milestones = {3}});
  expect_rates({0.1, 0.05, 0.025, 0.225, 0.2025, 0.162, 0.1134, 0.06804},
               {.schedulers = {half, MultiplicativeLROptions{.lr_lambda = factors}}, .milestones = {3}});
  expect_rates({0.1, 0.09, 0.072, 0.1, 0.05, 0.025},
               {.schedulers = {MultiplicativeLROptions{.lr_lambda = factors}, half}, .milestones = {3}});
  expect_rates({0.1, 0.05, 0.025, 0.025, 0.0375, 0.03375, 0.030375, 0.0273375},
               {.schedulers = {half, swa(2), MultiplicativeLROptions{.lr_lambda = [](int64_t) { return 0.9; }}},
                .milestones = {3, 5}});
  expect_rates({0.1, 0.05, 0.025, 0.025, 0.0375, 0.1, 0.05, 0.025},
               {.schedulers = {half, swa(2), half}, .milestones = {3, 5}});
}

// The other order of the groups changes which one is set first.
TEST(Schedule, StepWithAnInvalidRateChangesNothing) {
  for (const int64_t bad : {0, 1}) {
    SGD sgd = two_groups();
    const StepFunction good_rate = [](int64_t) { return 0.5; };
    const StepFunction bad_rate = [](int64_t t) { return t == 2 ? -1.0 : 0.5; };
    LambdaLR schedule(sgd, {.lr_lambda = {bad == 0 ? bad_rate : good_rate, bad == 1 ? bad_rate : good_rate}});
    schedule.step();
    sgd.set_lr(0, 0.125);
    EXPECT_ERROR(td::ValueError, schedule.step(),
                 td::str("SGD: lr is ", bad == 0 ? "-0.5" : "-2", ", expected a finite number >= 0"));
    EXPECT_EQ(sgd.lr(0), 0.125);
    EXPECT_EQ(sgd.lr(1), 1);
    EXPECT_EQ(schedule.steps(), 1);
    EXPECT_EQ(schedule.last_lr(), (std::vector<double>{0.25, 1}));
  }
}

TEST(Schedule, StepWithAnInvalidMomentumChangesNothing) {
  SGD sgd({{{parameter<float>({1}, {1})}, {.lr = 1, .momentum = 0.5}},
           {{parameter<float>({1}, {1})}, {.lr = 1, .momentum = 0.5, .nesterov = true}}});
  const CyclicLROptions options = {
      .base_lr = 0.1, .max_lr = 1, .step_size_up = 1, .base_momentum = {0.5, 0}, .max_momentum = 0.9};
  CyclicLR schedule(sgd, options);
  EXPECT_ERROR(td::ValueError, schedule.step(), "SGD: nesterov needs momentum > 0 and dampening 0, got 0 and 0");
  for (const int64_t group : {0, 1}) {
    EXPECT_EQ(sgd.lr(group), 0.1);
    EXPECT_EQ(sgd.option(group, "momentum"), 0.9);
  }
  EXPECT_EQ(schedule.steps(), 0);
}

TEST(Schedule, SetStepsAppliesTheRatesOfThatStep) {
  SGD sgd = two_groups(), other = two_groups();
  CosineAnnealingLR stepped(sgd, {.T_max = 9}), set(other, {.T_max = 9});
  for (int i = 0; i < 5; ++i) stepped.step();
  for (const int64_t steps : {8, 5}) set.set_steps(steps);
  EXPECT_EQ(set.steps(), 5);
  EXPECT_EQ(other.lr(1), sgd.lr(1));
  EXPECT_ERROR(td::ValueError, set.set_steps(-1), "CosineAnnealingLR: steps is -1, expected at least 0");
  EXPECT_EQ(set.last_lr(), stepped.last_lr());
}

TEST(Schedule, LastRatesAreNotComputedAgain) {
  SGD sgd({parameter<float>({1}, {1})}, {.lr = 1});
  int calls = 0;
  LambdaLR schedule(sgd, {.lr_lambda = [&calls](int64_t) { return 1.0 / ++calls; }});
  schedule.step();
  EXPECT_EQ(schedule.last_lr(), (std::vector<double>{0.5}));
  EXPECT_EQ(schedule.last_lr(), (std::vector<double>{0.5}));
  EXPECT_EQ(calls, 2);
}

TEST(Schedule, InvalidOptionsAreRejected) {
  const StepFunction one = [](int64_t) { return 1.0; };
  EXPECT_EQ(wrong(StepLROptions{.step_size = 0}), "StepLR: step_size is 0, expected at least 1");
  EXPECT_EQ(wrong(StepLROptions{.step_size = 1, .gamma = -1}), "StepLR: gamma is -1, expected a finite number >= 0");
  EXPECT_EQ(wrong(MultiStepLROptions{.milestones = {0}}), "MultiStepLR: milestones.0 is 0, expected at least 1");
  EXPECT_EQ(wrong(MultiStepLROptions{.milestones = {3, 2}}),
            "MultiStepLR: milestones.1 is 2, expected at least milestones.0, which is 3");
  EXPECT_EQ(wrong(CosineWarmupLROptions{}),
            "CosineWarmupLR: warmup_steps is 0 and total_steps 0, expected 0 <= warmup_steps < total_steps");
  EXPECT_EQ(wrong(CosineWarmupLROptions{.total_steps = 2, .min_factor = 1.5}),
            "CosineWarmupLR: min_factor is 1.5, expected 0 <= min_factor <= 1");
  EXPECT_EQ(wrong(LambdaLROptions{.lr_lambda = {one, one, one}}),
            "LambdaLR: lr_lambda has 3 functions, expected 1 or one for each of the 2 groups");
  EXPECT_EQ(wrong(MultiplicativeLROptions{.lr_lambda = StepFunction()}), "MultiplicativeLR: lr_lambda 0 is empty");
  EXPECT_EQ(wrong(LinearLROptions{.start_factor = 0}), "LinearLR: start_factor is 0, expected 0 < start_factor <= 1");
  EXPECT_EQ(wrong(CyclicLROptions{.base_lr = {1, 2, 3}, .max_lr = 1}),
            "CyclicLR: base_lr has 3 values, expected 1 or one for each of the 2 groups");
  EXPECT_EQ(wrong(CyclicLROptions{.base_lr = {1, -2}, .max_lr = 1}),
            "CyclicLR: base_lr.1 is -2, expected a finite number >= 0");
  EXPECT_EQ(wrong(CyclicLROptions{.base_lr = 1, .max_lr = 1, .mode = "square"}),
            "CyclicLR: mode is 'square', expected 'triangular' or 'triangular2' or 'exp_range'");
  EXPECT_EQ(wrong(OneCycleLROptions{.max_lr = 1, .epochs = 3}),
            "OneCycleLR: total_steps is 0, epochs 3 and steps_per_epoch 0, expected total_steps > 0, or both others");
  EXPECT_EQ(wrong(SequentialLROptions{.schedulers = {ConstantLROptions{}}, .milestones = {1}}),
            "SequentialLR: 1 schedulers and 1 milestones, expected one more schedule than milestones");
  EXPECT_EQ(wrong(ChainedSchedulerOptions{}), "ChainedScheduler: no schedulers, expected at least one");
  EXPECT_EQ(wrong(ChainedSchedulerOptions{.schedulers = {ExponentialLROptions{.gamma = -1}}}),
            "ChainedScheduler: gamma is -1, expected a finite number >= 0");
  EXPECT_EQ(wrong(ChainedSchedulerOptions{.schedulers = {MultiStepLROptions{.milestones = {3, 2}}}}),
            "ChainedScheduler: milestones.1 is 2, expected at least milestones.0, which is 3");
  Adagrad adagrad({parameter<float>({1}, {1})});
  EXPECT_ERROR(td::ValueError, CyclicLR(adagrad, {.base_lr = 0.1, .max_lr = 1}),
               "CyclicLR: cycle_momentum needs an optimizer with the option momentum or betas");
}

TEST(Schedule, GroupsAddedLaterBeginAtTheirOwnRate) {
  SGD sgd = two_groups();
  StepLR schedule(sgd, {.step_size = 2, .gamma = 0.5});
  schedule.step();
  sgd.add_param_group({.parameters = {parameter<float>({1}, {1})}, .options = {.lr = 8}});
  EXPECT_EQ(schedule.state_dict().get<double>("initial_lr.2"), 8);
  schedule.step();
  EXPECT_EQ(schedule.last_lr(), (std::vector<double>{0.25, 1, 4}));
  EXPECT_EQ(sgd.lr(2), 4);
}

TEST(Schedule, GroupAddedLaterWithoutItsOwnValueIsAnError) {
  SGD sgd = two_groups();
  CyclicLR schedule(sgd, {.base_lr = {0.1, 0.2}, .max_lr = 1});
  sgd.add_param_group({.parameters = {parameter<float>({1}, {1})}});
  EXPECT_ERROR(td::IndexError, schedule.step(),
               "PerGroup: group is 2, expected 0 <= group < 2; give one value for each group of the optimizer");
  EXPECT_EQ(schedule.steps(), 0);
  EXPECT_EQ(sgd.lr(0), 0.1);
}

TEST(OneCycleLR, StepsAfterTheCycleAreAnError) {
  SGD sgd = two_groups(), other = two_groups();
  OneCycleLR schedule(sgd, {.max_lr = 1, .total_steps = 2});
  td::State state = OneCycleLR(other, {.max_lr = 1, .total_steps = 5}).state_dict();
  state.set("steps", int64_t{6});
  EXPECT_ERROR(td::StateError, schedule.load_state_dict(state),
               "OneCycleLR: the state does not fit"
               "\n  different   steps: OneCycleLR: step 6, expected at most total_steps, which is 5; train fewer steps "
               "or set total_steps");
  schedule.step();
  schedule.step();
  EXPECT_ERROR(td::ValueError, schedule.step(),
               "OneCycleLR: step 3, expected at most total_steps, which is 2; train fewer steps or set total_steps");
  EXPECT_EQ(schedule.steps(), 2);
}

// torch.optim.lr_scheduler.OneCycleLR, but for the linear rates of the last step, which are negative there.
TEST(OneCycleLR, StepAfterTheLastPhaseIsValid) {
  const auto last_rates = [](OneCycleLROptions options) {
    SGD sgd({parameter<float>({1}, {1})}, {.lr = 0.1, .momentum = 0.9});
    options.max_lr = 0.1;
    options.total_steps = 10;
    OneCycleLR schedule(sgd, options);
    for (int i = 0; i < 9; ++i) schedule.step();
    const double last = sgd.lr();
    schedule.step();
    EXPECT_GE(sgd.option(0, "momentum"), 0.85);
    EXPECT_LE(sgd.option(0, "momentum"), 0.95);
    return std::vector<double>{last, sgd.lr()};
  };
  const auto expect_near = [](const std::vector<double>& actual, double last, double after) {
    EXPECT_NEAR(actual[0], last, 1e-8);
    EXPECT_NEAR(actual[1], after, 1e-8);
  };
  expect_near(last_rates({.max_lr = 0, .anneal_strategy = "linear"}), 4e-7, 4e-7);
  expect_near(last_rates({.max_lr = 0, .anneal_strategy = "linear", .three_phase = true}), 4e-7, 4e-7);
  expect_near(last_rates({.max_lr = 0, .anneal_strategy = "linear", .final_div_factor = 1}), 0.004, 0.004);
  expect_near(last_rates({.max_lr = 0}), 4e-7, 0.00495194);
  expect_near(last_rates({.max_lr = 0, .three_phase = true}), 4e-7, 0.00038233);
}

TEST(OneCycleLR, CyclesTheFirstBetaOfAdam) {
  Adam adam({parameter<float>({1}, {1})});
  OneCycleLR schedule(adam, {.max_lr = 1, .total_steps = 10});
  EXPECT_EQ(adam.option(0, "beta1"), 0.95);
  schedule.step();
  schedule.step();
  EXPECT_NEAR(adam.option(0, "beta1"), 0.85, 1e-15);
  EXPECT_EQ(adam.option(0, "beta2"), 0.999);
}

TEST(MultiplicativeLR, CallsTheFunctionOncePerStep) {
  SGD sgd({parameter<float>({1}, {1})}, {.lr = 1});
  std::vector<int64_t> calls;
  MultiplicativeLR schedule(sgd, {.lr_lambda = [&calls](int64_t t) {
                              calls.push_back(t);
                              return 0.5;
                            }});
  for (int i = 0; i < 3; ++i) schedule.step();
  EXPECT_EQ(calls, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(sgd.lr(), 0.125);
}

TEST(SWALR, BeginsAtTheRateBeforeItsFirstStep) {
  SGD sgd({parameter<float>({1}, {1})}, {.lr = 1});
  SWALR schedule(sgd, {.swa_lr = 0.1, .anneal_epochs = 2, .anneal_strategy = "linear"});
  sgd.set_lr(0.5);
  schedule.step();
  EXPECT_DOUBLE_EQ(sgd.lr(), 0.3);
  schedule.step();
  EXPECT_DOUBLE_EQ(sgd.lr(), 0.1);
}

TEST(ReduceLROnPlateau, StateDictContinuesBitExactly) {
  SGD sgd = two_groups(), later = two_groups(7, 7);
  ReduceLROnPlateau schedule(sgd, {.factor = 0.5, .patience = 1, .cooldown = 1, .min_lr = {0.01, 0.1}});
  for (const double metric : {3.0, 2.0, 2.5, 2.5}) schedule.step(metric);
  EXPECT_EQ(schedule.last_lr(), (std::vector<double>{0.25, 1}));
  ReduceLROnPlateau restored(later, {.mode = "max"});
  later.load_state_dict(sgd.state_dict());
  restored.load_state_dict(schedule.state_dict());
  for (const double metric : {2.5, 2.5, 2.5, 2.5, 1.0, 2.5, 2.5}) {
    schedule.step(metric);
    restored.step(metric);
    EXPECT_EQ(restored.last_lr(), schedule.last_lr());
  }
  EXPECT_EQ(sgd.lr(), 0.0625);
}

TEST(ReduceLROnPlateau, NanIsNoImprovement) {
  SGD sgd = two_groups();
  ReduceLROnPlateau schedule(sgd, {.factor = 0.5, .patience = 0});
  schedule.step(std::nan(""));
  EXPECT_EQ(sgd.lr(), 0.25);
}

TEST(ReduceLROnPlateau, StepWithoutAMinimumForAnAddedGroupChangesNothing) {
  SGD sgd = two_groups();
  ReduceLROnPlateau schedule(sgd, {.factor = 0.5, .patience = 0, .min_lr = {0.01, 0.1}});
  schedule.step(1);
  sgd.add_param_group({.parameters = {parameter<float>({1}, {1})}, .options = {.lr = 8}});
  EXPECT_ERROR(td::IndexError, schedule.step(2),
               "PerGroup: group is 2, expected 0 <= group < 2; give one value for each group of the optimizer");
  EXPECT_EQ(schedule.last_lr(), (std::vector<double>{0.5, 2, 8}));
  EXPECT_EQ(schedule.state_dict().get<int64_t>("steps"), 1);
  EXPECT_EQ(schedule.state_dict().get<int64_t>("num_bad_epochs"), 0);
}

TEST(ReduceLROnPlateau, InvalidOptionsAndStatesAreRejected) {
  SGD sgd = two_groups();
  const auto text = [&](ReduceLROnPlateauOptions options) {
    return error_text<td::ValueError>([&] { ReduceLROnPlateau(sgd, options); });
  };
  EXPECT_EQ(text({.mode = "avg"}), "ReduceLROnPlateau: mode is 'avg', expected 'min' or 'max'");
  EXPECT_EQ(text({.factor = 1}), "ReduceLROnPlateau: factor is 1, expected 0 <= factor < 1");
  EXPECT_EQ(text({.min_lr = {1, 2, 3}}),
            "ReduceLROnPlateau: min_lr has 3 values, expected 1 or one for each of the 2 groups");
  ReduceLROnPlateau schedule(sgd);
  td::State state = schedule.state_dict();
  state.set("schedule", std::string("StepLR"));
  state.set("patience", int64_t{-1});
  state.set("steps", int64_t{-2});
  EXPECT_ERROR(td::StateError, schedule.load_state_dict(state),
               "ReduceLROnPlateau: the state does not fit"
               "\n  different   schedule: ReduceLROnPlateau expected, StepLR in the state"
               "\n  different   options: patience is -1, expected a finite number >= 0"
               "\n  different   steps: steps is -2, expected a finite number >= 0");
}

}  // namespace
