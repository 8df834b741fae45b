// An optimizer that is not part of tandem, in at most 60 lines.
#include <tandem/tests/extension/sign_sgd.h>

#include <tandem/optim/define_optimizer.h>
#include <tandem/optim/schedules.h>
#include <tandem/tests/optim/gradients.h>

namespace tandem::testing { namespace {

struct GrowingOptions {
  double lr = 1;
  bool maximize = false;
};

/// The step's number times the gradient, by operations.
struct GrowingRule {
  using Options = GrowingOptions;
  static constexpr const char* kName = "Growing";
  static constexpr bool kCountsSteps = true;
  static std::vector<optim::Option> options(Options& o) { return {{"lr", &o.lr}, {"maximize", &o.maximize}}; }
  static constexpr optim::StateTensor<Options> kState[] = {{"last"}};
  static void update_tensor(const Options& o, const optim::TensorStep& step) {
    step.parameter.sub_(step.gradient, o.lr * static_cast<double>(step.number));
    step.state[0].copy_(step.gradient);
  }
};

class Growing : public optim::GroupedOptimizer<GrowingOptions> {
 public:
  explicit Growing(std::vector<Tensor> parameters, GrowingOptions options = {});
  explicit Growing(std::vector<optim::ParameterGroup<GrowingOptions>> groups);
};

TANDEM_DEFINE_OPTIMIZER(Growing, GrowingRule)

TEST(OwnOptimizer, OperationsUpdateTheMasterByTheNegatedGradient) {
  const Tensor half = full({2}, 1, {kBFloat16, test_device()}).requires_grad_();
  Growing optimizer({half}, {.maximize = true});
  set_gradient(half, full({2}, 0x1p-10, {kBFloat16, test_device()}));
  for (int step = 0; step < 4; ++step) {
    if (step == 3) half.detach()[0].fill_(2);
    optimizer.step();
  }
  const State state = static_cast<optim::Optimizer&>(optimizer).state_dict();
  EXPECT_EQ(state.get<int64_t>("state.0.step"), 4);
  EXPECT_EQ(state.get<Tensor>("state.0.last").to_vector<float>(), (std::vector<float>{-0x1p-10f, -0x1p-10f}));
  EXPECT_EQ(state.get<Tensor>("state.0.master").to_vector<float>(), (std::vector<float>{2 + 0x1p-8f, 1 + 0x5p-9f}));
  EXPECT_EQ(half.to_vector<float>(), (std::vector<float>{2, 1 + 0x1p-7f}));
}

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
