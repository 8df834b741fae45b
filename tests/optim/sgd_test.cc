#include <tandem/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/base/parallel_for.h>
#include <tandem/base/trace.h>
#include <tandem/tests/optim/gradients.h>
#include <tandem/tests/support/error_text.h>

namespace td = tandem;
using td::optim::SGD;
using td::optim::SGDOptions;
using td::testing::error_text;
using td::testing::parameter;
using td::testing::set_gradient;

namespace {

/// The parameter [1, -2, 0.5] after steps with the gradients below, one of them without gradient.
template <class T>
std::vector<double> after_steps(const SGDOptions& options) {
  const td::Tensor p = parameter<T>({1, -2, 0.5}, {3});
  SGD sgd({p}, options);
  const std::vector<std::vector<T>> gradients = {{0.5, 1, -1.5}, {-0.25, 2, 0}, {}, {3, -1, 0.125}};
  for (const auto& gradient : gradients) {
    sgd.zero_grad();
    if (!gradient.empty()) set_gradient(p, td::from_vector<T>(gradient, {3}));
    sgd.step();
  }
  return p.to_vector<double>();
}

struct Case {
  SGDOptions options;
  std::vector<double> expected;
};

// import torch
// p = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
// sgd = torch.optim.SGD([p], **options)
// for grad in ([0.5, 1.0, -1.5], [-0.25, 2.0, 0.0], None, [3.0, -1.0, 0.125]):
//     p.grad = None if grad is None else torch.tensor(grad, dtype=torch.float64)
//     sgd.step()
const std::vector<Case> kPyTorch = {
    {{.lr = 0.1}, {0.6749999999999999, -2.2, 0.6375000000000001}},
    {{.lr = 0.1, .momentum = 0.9}, {0.6119999999999999, -2.551, 0.894}},
    {{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.05},
     {0.6647318262499999, -2.4179386024999996, 0.883946181875}},
    {{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.05, .nesterov = true},
     {0.28801651887499996, -2.60736183275, 0.9644531425625}},
    {{.lr = 0.1, .weight_decay = 0.05}, {0.660448625, -2.16815225, 0.6285411875}},
};

TEST(Sgd, StepsMatchPyTorch) {
  for (const Case& c : kPyTorch) {
    const auto in_double = after_steps<double>(c.options);
    const auto in_float = after_steps<float>(c.options);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(in_double[i], c.expected[i], 1e-15);
      EXPECT_NEAR(in_float[i], c.expected[i], 1e-6);
    }
  }
}

TEST(Sgd, StepsMatchFormulaForEverySize) {
  for (const int64_t n : {0, 1, 3, 7, 31, 32, 33, (1 << 15) + 1, 100003}) {
    const td::Tensor p = td::full({n}, 2.0, {td::kFloat32, td::testing::test_device()}).set_requires_grad();
    SGD sgd({p}, {.lr = 0.25, .momentum = 0.5, .weight_decay = 0.125});
    set_gradient(p, td::full({n}, 3.0));
    sgd.step();  // d = 3.25, b = 3.25, p = 2 - 0.8125
    sgd.step();  // d = 3 + 1.1875 / 8, b = 1.625 + d, p = 1.1875 - b / 4
    const float b = 1.625f + 3.0f + 1.1875f / 8;
    for (const float value : p.to_vector<float>()) ASSERT_EQ(value, 1.1875f - b / 4);
  }
}

TEST(Sgd, ResultDoesNotDependOnThreadCount) {
  const auto run = [](int threads) {
    td::set_num_threads(threads);
    std::vector<float> values(100003);
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
    const td::Tensor p = parameter<float>(values, {100003});
    SGD sgd({p}, {.lr = 0.3, .momentum = 0.7, .nesterov = true});
    for (int step = 0; step < 3; ++step) {
      set_gradient(p, td::from_vector<float>(values, {100003}));
      sgd.step();
    }
    td::set_num_threads(0);
    return p.to_vector<float>();
  };
  EXPECT_EQ(run(1), run(2));
}

TEST(Sgd, StepSkipsParametersWithoutGradient) {
  const td::Tensor used = parameter<float>({1}, {1});
  const td::Tensor unused = parameter<float>({1}, {1});
  td::Tensor frozen = parameter<float>({1}, {1});
  set_gradient(used, td::ones({1}));
  set_gradient(frozen, td::ones({1}));
  frozen.set_requires_grad(false);
  const uint32_t unused_version = unused.version();
  const uint32_t used_version = used.version();
  SGD sgd({used, unused, frozen}, {.lr = 0.5, .momentum = 0.9, .weight_decay = 0.1});
  sgd.step();
  EXPECT_FLOAT_EQ(used.item<float>(), 0.45f);
  EXPECT_EQ(unused.item<float>(), 1.0f);
  EXPECT_EQ(frozen.item<float>(), 1.0f);
  EXPECT_EQ(unused.version(), unused_version);
  EXPECT_GT(used.version(), used_version);
  EXPECT_EQ(sgd.state_dict().find("state.1.momentum_buffer"), nullptr);
  EXPECT_NE(sgd.state_dict().find("state.0.momentum_buffer"), nullptr);
}

TEST(Sgd, ZeroGradClearsGradients) {
  const td::Tensor p = parameter<float>({1, 2}, {2});
  SGD sgd({p});
  set_gradient(p, td::ones({2}));
  EXPECT_TRUE(p.grad().defined());
  sgd.zero_grad();
  EXPECT_FALSE(p.grad().defined());
}

TEST(Sgd, LearningRateCanChangeBetweenSteps) {
  const td::Tensor p = parameter<float>({1}, {1});
  SGD sgd({p}, {.lr = 0.5});
  EXPECT_EQ(sgd.lr(), 0.5);
  set_gradient(p, td::ones({1}));
  sgd.step();
  sgd.set_lr(0.25);
  sgd.step();
  EXPECT_EQ(p.item<float>(), 0.25f);
  EXPECT_EQ(error_text<td::ValueError>([&] { sgd.set_lr(-1); }), "SGD: lr is -1, expected a finite number >= 0");
}

TEST(Sgd, StateDictContinuesBitExactly) {
  const auto step = [](SGD& sgd, const td::Tensor& p, float gradient) {
    set_gradient(p, td::full({2}, gradient));
    sgd.step();
  };
  const td::Tensor p = parameter<float>({1, 2}, {2});
  SGD sgd({p}, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
  step(sgd, p, 1);
  step(sgd, p, -3);

  const td::Tensor q = parameter<float>(p.to_vector<float>(), {2});
  SGD restored({q}, {.lr = 7});
  restored.load_state_dict(sgd.state_dict());
  EXPECT_EQ(restored.lr(), 0.1);
  for (const float gradient : {2.0f, 0.5f}) {
    step(sgd, p, gradient);
    step(restored, q, gradient);
  }
  EXPECT_EQ(p.to_vector<float>(), q.to_vector<float>());
}

TEST(Sgd, StateDictStoresParameterNames) {
  const td::Tensor p = parameter<float>({1}, {1});
  td::autograd::leaf(p).name = "fc1.weight";
  const SGD sgd({p});
  EXPECT_EQ(sgd.state_dict().get<std::string>("state.0.name"), "fc1.weight");
  const td::Tensor q = parameter<float>({1}, {1});
  td::autograd::leaf(q).name = "fc2.weight";
  SGD other({q});
  EXPECT_EQ(error_text<td::StateError>([&] { other.load_state_dict(sgd.state_dict()); }),
            "SGD: the state does not fit"
            "\n  different   state.0.name: 'fc2.weight' expected, 'fc1.weight' in the state");
}

TEST(Sgd, MismatchedStatesAreRejected) {
  const td::Tensor p = parameter<float>({1, 2}, {2});
  SGD sgd({p}, {.lr = 0.1, .momentum = 0.9});
  set_gradient(p, td::ones({2}));
  sgd.step();
  const td::State state = sgd.state_dict();

  SGD two({parameter<float>({1}, {1}), parameter<float>({1, 2}, {2})});
  EXPECT_EQ(error_text<td::StateError>([&] { two.load_state_dict(state); }),
            "SGD: the state does not fit"
            "\n  different   groups.0.num_parameters: 2 expected, 1 in the state"
            "\n  different   state.0.momentum_buffer: float32 [1] expected, float32 [2] in the state");
  SGD larger({parameter<float>({1, 2, 3}, {3})}, {.lr = 0.2});
  EXPECT_EQ(error_text<td::StateError>([&] { larger.load_state_dict(state); }),
            "SGD: the state does not fit"
            "\n  different   state.0.momentum_buffer: float32 [3] expected, float32 [2] in the state");
  EXPECT_EQ(larger.lr(), 0.2);
  EXPECT_EQ(error_text<td::StateError>([&] { larger.load_state_dict({}); }),
            "SGD: the state does not fit"
            "\n  missing     optimizer"
            "\n  missing     groups.0.num_parameters"
            "\n  missing     groups.0.lr"
            "\n  missing     groups.0.momentum"
            "\n  missing     groups.0.dampening"
            "\n  missing     groups.0.weight_decay"
            "\n  missing     groups.0.nesterov"
            "\n  missing     groups.0.maximize");
}

TEST(Sgd, ParameterGroupsUseTheirOwnOptions) {
  const td::Tensor a = parameter<float>({1}, {1});
  const td::Tensor b = parameter<float>({1}, {1});
  SGD sgd({{.parameters = {a}, .options = {.lr = 0.5, .momentum = 0.5}}, {.parameters = {b}, .options = {.lr = 0.25}}});
  for (int step = 0; step < 2; ++step) {
    set_gradient(a, td::ones({1}));
    set_gradient(b, td::ones({1}));
    sgd.step();
  }
  EXPECT_EQ(a.item<float>(), -0.25f);
  EXPECT_EQ(b.item<float>(), 0.5f);
  EXPECT_EQ(sgd.groups()[0].options.momentum, 0.5);
  sgd.set_options(0, {.lr = 2});
  EXPECT_EQ(sgd.lr(), 2);
  sgd.step();
  EXPECT_EQ(a.item<float>(), -2.25f);
  sgd.set_lr(1);
  EXPECT_EQ(sgd.lr(0), 1);
  EXPECT_EQ(sgd.lr(1), 1);

  SGD other({{.parameters = {parameter<float>({1}, {1})}}, {.parameters = {parameter<float>({1}, {1})}}});
  other.load_state_dict(sgd.state_dict());
  EXPECT_EQ(other.lr(1), 1);
  SGD joined({parameter<float>({1}, {1}), parameter<float>({1}, {1})});
  EXPECT_EQ(error_text<td::StateError>([&] { joined.load_state_dict(sgd.state_dict()); }),
            "SGD: the state does not fit"
            "\n  different   groups.0.num_parameters: 2 expected, 1 in the state"
            "\n  unexpected  groups.1.dampening"
            "\n  unexpected  groups.1.lr"
            "\n  unexpected  groups.1.maximize"
            "\n  unexpected  groups.1.momentum"
            "\n  unexpected  groups.1.nesterov"
            "\n  unexpected  groups.1.num_parameters"
            "\n  unexpected  groups.1.weight_decay");
}

TEST(Sgd, InvalidOptionsAreRejected) {
  const auto rejected = [](const SGDOptions& options) {
    return error_text<td::ValueError>([&] { SGD({parameter<float>({1}, {1})}, options); });
  };
  EXPECT_EQ(rejected({.lr = -0.1}), "SGD: lr is -0.1, expected a finite number >= 0");
  EXPECT_EQ(rejected({.lr = std::numeric_limits<double>::infinity()}), "SGD: lr is inf, expected a finite number >= 0");
  EXPECT_EQ(rejected({.momentum = -1}), "SGD: momentum is -1, expected a finite number >= 0");
  EXPECT_EQ(rejected({.weight_decay = std::nan("")}), "SGD: weight_decay is nan, expected a finite number >= 0");
  EXPECT_EQ(rejected({.dampening = std::nan("")}), "SGD: dampening is nan, expected a finite number");
  EXPECT_EQ(rejected({.nesterov = true}), "SGD: nesterov needs momentum > 0 and dampening 0, got 0 and 0");
  EXPECT_EQ(rejected({.momentum = 0.9, .dampening = 0.5, .nesterov = true}),
            "SGD: nesterov needs momentum > 0 and dampening 0, got 0.9 and 0.5");
}

TEST(Sgd, InvalidParametersAreRejected) {
  EXPECT_EQ(error_text<td::ValueError>([] { SGD(std::vector<td::Tensor>{}); }),
            "SGD: no parameters, expected at least one");
  EXPECT_EQ(error_text<td::StateError>([] { SGD(std::vector<td::Tensor>{td::Tensor()}); }),
            "SGD: parameter 0 is undefined");
  const td::Tensor p = parameter<float>({1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(error_text<td::ValueError>([&] { SGD({p, p}); }), "SGD: parameter 1 is given twice");
  EXPECT_EQ(error_text<td::StateError>([&] { SGD({p.exp()}); }),
            td::str("SGD: parameter 0 is the result of an operation (float32 [2, 2] on ", td::testing::test_device(),
                    "), expected a leaf"));
  EXPECT_EQ(error_text<td::DTypeError>([] { SGD({td::zeros({1}, {td::kInt32})}); }),
            "SGD: parameter 0 is int32, expected a floating-point dtype");
  EXPECT_EQ(error_text<td::StateError>([&] { SGD({td::zeros({2, 3}).t()}); }), "SGD: parameter 0 is not contiguous");
}

TEST(Sgd, ParameterMovedAfterFirstStepIsRejected) {
  td::set_cpu_device_count(2);
  const td::Tensor p = parameter<float>({1}, {1});
  td::autograd::leaf(p).name = "w";
  SGD sgd({p}, {.momentum = 0.9});
  set_gradient(p, td::ones({1}));
  sgd.step();
  const td::Tensor moved = td::full({1}, 5, {td::kFloat32, td::Device("cpu:1")});
  p.impl().storage = moved.storage();
  td::autograd::leaf(p).move_to(td::Device("cpu:1"), p.dtype());
  EXPECT_EQ(error_text<td::DeviceError>([&] { sgd.step(); }),
            td::str("SGD: parameter 0 ('w') is on cpu:1, its momentum_buffer on ", td::testing::test_device(),
                    "; create the optimizer after moving the model"));
  EXPECT_EQ(p.item<float>(), 5);
}

TEST(Sgd, TraceRecordsBytesOfStep) {
  const td::Tensor p = parameter<float>({1, -2, 0.5}, {3});
  SGD optimizer({p}, {.lr = 0.5, .momentum = 0.25});
  set_gradient(p, td::from_vector<float>({3, -1, 0.125}, {3}));
  td::start_trace();
  optimizer.step();
  const std::vector<td::TraceEvent> events = td::stop_trace();
  const auto step = std::find_if(events.begin(), events.end(), [](const auto& e) { return e.category == "optimizer"; });
  ASSERT_NE(step, events.end());
  EXPECT_EQ(step->num_bytes, 5 * 3 * 4);
}

}  // namespace
