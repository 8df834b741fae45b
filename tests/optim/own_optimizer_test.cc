// An optimizer that is not part of tandem, in at most 60 lines.
#include <tandem/tests/extension/sign_sgd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/optim/schedules.h>
#include <tandem/tests/optim/gradients.h>
#include <tandem/tests/support/error_text.h>

namespace tandem::testing { namespace {

TEST(OwnOptimizer, HasAtMost60Lines) {
  std::string text;
  for (const char* path : {"tests/extension/sign_sgd.h", "tests/extension/sign_sgd.cc"}) {
    std::ifstream file(path);
    text.append(std::istreambuf_iterator<char>(file), {});
  }
  EXPECT_NE(text.find("class SignSGD"), std::string::npos);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 60);
}

TEST(OwnOptimizer, StepsWithMomentumAScheduleAndHalves) {
  const Tensor p = parameter<float>({1, -2, 3}, {3});
  const Tensor half = zeros({2}, {kBFloat16, test_device()}).requires_grad_();
  extension::SignSGD optimizer({{{p}, {.lr = 0.5, .momentum = 0.5}}, {{half}, {.lr = 0.25, .maximize = true}}});
  optim::StepLR schedule(optimizer, {.step_size = 1, .gamma = 0.5});
  for (const float g : {1.0f, -0.25f}) {
    set_gradient(p, from_vector<float>({g, -g, 0}, {3}));
    set_gradient(half, full({2}, g, {kBFloat16}));
    optimizer.step();
    schedule.step();
  }
  EXPECT_EQ(p.to_vector<float>(), (std::vector<float>{0.25, -1.25, 3}));
  EXPECT_EQ(half.to_vector<float>(), (std::vector<float>{0.125, 0.125}));
  extension::SignSGD restored({{{p}, {}}, {{half}, {}}});
  restored.load_state_dict(optimizer.state_dict());
  EXPECT_EQ(restored.option(0, "momentum"), 0.5);
  EXPECT_EQ(restored.lr(1), 0.0625);
}

TEST(OwnOptimizer, ErrorsHaveItsName) {
  EXPECT_ERROR(ValueError, extension::SignSGD({parameter<float>({1}, {1})}, {.momentum = 1}),
               "SignSGD: momentum is 1, expected 0 <= momentum < 1");
}

}}  // namespace tandem::testing
