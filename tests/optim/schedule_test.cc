#include <tandem/optim/schedule.h>

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/optim/sgd.h>
#include <tandem/tests/optim/gradients.h>
#include <tandem/tests/support/error_text.h>

namespace td = tandem;
using td::optim::CosineWarmupLR;
using td::optim::MultiStepLR;
using td::optim::Schedule;
using td::optim::SGD;
using td::optim::StepLR;
using td::testing::error_text;
using td::testing::parameter;

namespace {

/// An optimizer of two groups.
SGD two_groups(double lr0 = 0.5, double lr1 = 2) {
  return SGD({{.parameters = {parameter<float>({1}, {1})}, .options = {.lr = lr0}},
              {.parameters = {parameter<float>({1}, {1})}, .options = {.lr = lr1}}});
}

/// The rates of group 0 before and after each of the steps; those of group 1 are always four times as high.
std::vector<double> rates(SGD& sgd, Schedule& schedule, int steps) {
  std::vector<double> result = {sgd.lr()};
  for (int i = 0; i < steps; ++i) {
    schedule.step();
    result.push_back(sgd.lr());
    EXPECT_EQ(sgd.lr(1), 4 * sgd.lr());
    EXPECT_EQ(schedule.last_lr(), (std::vector<double>{sgd.lr(), sgd.lr(1)}));
  }
  EXPECT_EQ(schedule.steps(), steps);
  return result;
}

void expect_near(const std::vector<double>& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-15) << i;
}

// The expected rates are those of torch.optim.lr_scheduler for SGD with lr = 0.5 and the same settings.

TEST(StepLR, RatesMatchPyTorch) {
  SGD sgd = two_groups();
  StepLR schedule(sgd, 3, 0.5);
  EXPECT_EQ(rates(sgd, schedule, 7), (std::vector<double>{0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125}));
}

TEST(MultiStepLR, RatesMatchPyTorch) {
  SGD sgd = two_groups();
  MultiStepLR schedule(sgd, {2, 3, 6}, 0.1);
  expect_near(rates(sgd, schedule, 7), {0.5, 0.5, 0.05, 0.005, 0.005, 0.005, 0.0005, 0.0005});
}

TEST(CosineWarmupLR, RatesMatchPyTorch) {
  // SequentialLR(sgd, [LinearLR(sgd, 1 / 4, 1.0, 3), CosineAnnealingLR(sgd, 5, 0.05)], [3])
  SGD sgd = two_groups();
  CosineWarmupLR schedule(sgd, {.warmup_steps = 3, .total_steps = 8, .min_factor = 0.1});
  expect_near(rates(sgd, schedule, 10), {0.125, 0.25, 0.375, 0.5, 0.45702882373436315, 0.34452882373436317,
                                         0.20547117626563682, 0.09297117626563685, 0.05, 0.05, 0.05});
}

TEST(CosineWarmupLR, WarmupIsOptional) {
  SGD sgd = two_groups();
  CosineWarmupLR schedule(sgd, {.total_steps = 4});
  expect_near(rates(sgd, schedule, 5),
              {0.5, 0.5 * (0.5 + std::sqrt(0.125)), 0.25, 0.5 * (0.5 - std::sqrt(0.125)), 0, 0});
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
  {
    SGD sgd = two_groups();
    SGD later = two_groups(7, 7);
    StepLR schedule(sgd, 3, 0.7);
    StepLR restored(later, 1);
    expect_continues(sgd, schedule, later, restored);
  }
  {
    SGD sgd = two_groups();
    SGD later = two_groups(7, 7);
    MultiStepLR schedule(sgd, {1, 6, 7}, 0.7);
    MultiStepLR restored(later, {});
    expect_continues(sgd, schedule, later, restored);
  }
  {
    SGD sgd = two_groups();
    SGD later = two_groups(7, 7);
    CosineWarmupLR schedule(sgd, {.warmup_steps = 2, .total_steps = 11, .min_factor = 0.3});
    CosineWarmupLR restored(later, {.total_steps = 1});
    expect_continues(sgd, schedule, later, restored);
  }
}

TEST(Schedule, LoadErrorListsEveryMismatch) {
  SGD sgd = two_groups();
  StepLR schedule(sgd, 3, 0.5);
  td::State state;
  state.set("schedule", std::string("MultiStepLR"));
  state.set("step_size", int64_t{0});
  state.set("steps", int64_t{-1});
  state.set("initial_lr.0", std::nan(""));
  state.set("initial_lr.2", 1.0);
  EXPECT_EQ(error_text<td::StateError>([&] { schedule.load_state_dict(state); }),
            "StepLR: the state does not fit"
            "\n  different   schedule: StepLR expected, MultiStepLR in the state"
            "\n  different   steps: is -1, expected at least 0"
            "\n  different   initial_lr.0: initial_lr is nan, expected a finite number >= 0"
            "\n  missing     initial_lr.1"
            "\n  missing     gamma"
            "\n  different   options: step_size is 0, expected at least 1"
            "\n  unexpected  initial_lr.2");
  MultiStepLR milestones(sgd, {2, 3});
  state = milestones.state_dict();
  state.set("milestones.1", int64_t{2});
  EXPECT_EQ(error_text<td::StateError>([&] { milestones.load_state_dict(state); }),
            "MultiStepLR: the state does not fit"
            "\n  different   options: milestone 1 is 2, expected more than milestone 0, which is 2");
  state = milestones.state_dict();
  state.set("num_milestones", int64_t{1} << 60);
  EXPECT_EQ(error_text<td::StateError>([&] { milestones.load_state_dict(state); }),
            "MultiStepLR: the state does not fit"
            "\n  missing     milestones.2");
  CosineWarmupLR cosine(sgd, {.warmup_steps = 1, .total_steps = 5});
  state = cosine.state_dict();
  state.set("warmup_steps", int64_t{5});
  EXPECT_EQ(error_text<td::StateError>([&] { cosine.load_state_dict(state); }),
            "CosineWarmupLR: the state does not fit"
            "\n  different   options: warmup_steps is 5 and total_steps 5, expected 0 <= warmup_steps < total_steps");
  EXPECT_EQ(schedule.steps(), 0);
  EXPECT_EQ(schedule.last_lr(), (std::vector<double>{0.5, 2}));
}

TEST(Schedule, InvalidOptionsAreRejected) {
  SGD sgd = two_groups();
  EXPECT_EQ(error_text<td::ValueError>([&] { StepLR(sgd, 0); }), "StepLR: step_size is 0, expected at least 1");
  EXPECT_EQ(error_text<td::ValueError>([&] { StepLR(sgd, 1, -1); }),
            "StepLR: gamma is -1, expected a finite number >= 0");
  EXPECT_EQ(error_text<td::ValueError>([&] { MultiStepLR(sgd, {0}); }),
            "MultiStepLR: milestone 0 is 0, expected at least 1");
  EXPECT_EQ(error_text<td::ValueError>([&] {
              MultiStepLR(sgd, {3, 2});
            }),
            "MultiStepLR: milestone 1 is 2, expected more than milestone 0, which is 3");
  EXPECT_EQ(error_text<td::ValueError>([&] { CosineWarmupLR(sgd, {}); }),
            "CosineWarmupLR: warmup_steps is 0 and total_steps 0, expected 0 <= warmup_steps < total_steps");
  EXPECT_EQ(error_text<td::ValueError>([&] { CosineWarmupLR(sgd, {.total_steps = 2, .min_factor = 1.5}); }),
            "CosineWarmupLR: min_factor is 1.5, expected 0 <= min_factor <= 1");
  EXPECT_EQ(sgd.lr(), 0.5);
}

}  // namespace
