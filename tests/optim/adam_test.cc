#include <tandem/optim/adam.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/base/parallel_for.h>
#include <tandem/base/trace.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tests/optim/gradients.h>
#include <tandem/tests/support/error_text.h>

namespace td = tandem;
using td::optim::Adam;
using td::optim::AdamOptions;
using td::optim::AdamW;
using td::optim::AdamWOptions;
using td::testing::error_text;
using td::testing::parameter;
using td::testing::set_gradient;

namespace {

/// The parameter [1, -2, 0.5] after steps with the gradients below, one of them without gradient.
template <class Optimizer, class T, class Options>
std::vector<double> after_steps(const Options& options) {
  const td::Tensor p = parameter<T>({1, -2, 0.5}, {3});
  Optimizer optimizer({p}, options);
  const std::vector<std::vector<T>> gradients = {{0.5, 1, -1.5}, {-0.25, 2, 0}, {}, {3, -1, 0.125}};
  for (const auto& gradient : gradients) {
    optimizer.zero_grad();
    if (!gradient.empty()) set_gradient(p, td::from_vector<T>(gradient, {3}));
    optimizer.step();
  }
  return p.to_vector<double>();
}

template <class Optimizer, class Options>
void expect_steps(const Options& options, const std::vector<double>& expected) {
  const auto in_double = after_steps<Optimizer, double>(options);
  const auto in_float = after_steps<Optimizer, float>(options);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(in_double[i], expected[i], 2e-15);
    EXPECT_NEAR(in_float[i], expected[i], 5e-7);
  }
}

// import torch
// p = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
// adam = torch.optim.Adam([p], **options)                                                      # or AdamW
// for grad in ([0.5, 1.0, -1.5], [-0.25, 2.0, 0.0], None, [3.0, -1.0, 0.125]):
//     p.grad = None if grad is None else torch.tensor(grad, dtype=torch.float64)
//     adam.step()
TEST(Adam, StepsMatchPyTorch) {
  expect_steps<Adam>(AdamOptions{.lr = 0.1}, {0.8067958876646854, -2.2385271310318133, 0.7133119175809274});
  expect_steps<Adam>(AdamOptions{.lr = 0.1, .betas = {0.8, 0.95}, .eps = 1e-3, .weight_decay = 0.05},
                     {0.7962477568793198, -2.2262790138435853, 0.6992619229231367});
  expect_steps<Adam>(AdamOptions{.lr = 0.03, .betas = {0.0, 0.9}},
                     {0.9405892821267098, -2.046129190629702, 0.5254466775556211});
}

TEST(AdamW, StepsMatchPyTorch) {
  expect_steps<AdamW>(AdamWOptions{.lr = 0.1}, {0.8040254203639795, -2.232236710831841, 0.7115465112574783});
  expect_steps<AdamW>(AdamWOptions{.lr = 0.1, .betas = {0.8, 0.95}, .eps = 1e-3, .weight_decay = 0.05},
                      {0.7943493696970197, -2.202055459379192, 0.695127623855822});
  expect_steps<AdamW>(AdamWOptions{.lr = 0.1, .weight_decay = 0},
                      {0.8067958876646854, -2.2385271310318133, 0.7133119175809274});
}

/// The rule in double, value by value.
struct Reference {
  double p;
  double m = 0;
  double v = 0;

  void step(double g, int t, const AdamOptions& o, bool decoupled) {
    if (decoupled) {
      p -= o.lr * o.weight_decay * p;
    } else {
      g += o.weight_decay * p;
    }
    m = o.betas.first * m + (1 - o.betas.first) * g;
    v = o.betas.second * v + (1 - o.betas.second) * g * g;
    const double mean = m / (1 - std::pow(o.betas.first, t));
    const double square = v / (1 - std::pow(o.betas.second, t));
    p -= o.lr * mean / (std::sqrt(square) + o.eps);
  }
};

template <class Optimizer, class T, class Options>
void expect_every_value(int64_t n, const Options& options, bool decoupled, double tolerance) {
  std::vector<T> start(static_cast<size_t>(n));
  for (size_t i = 0; i < start.size(); ++i) start[i] = static_cast<T>(std::cos(static_cast<double>(i)));
  std::vector<Reference> reference;
  for (const T value : start) reference.push_back({static_cast<double>(value)});
  const AdamOptions rule = {options.lr, options.betas, options.eps, options.weight_decay};
  const td::Tensor p = parameter<T>(start, {n});
  Optimizer optimizer({p}, options);
  for (int t = 1; t <= 4; ++t) {
    std::vector<T> gradient(static_cast<size_t>(n));
    for (size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = static_cast<T>(std::sin(static_cast<double>(i) + 0.7 * t));
      reference[i].step(static_cast<double>(gradient[i]), t, rule, decoupled);
    }
    set_gradient(p, td::from_vector<T>(gradient, {n}));
    optimizer.step();
  }
  const auto values = p.to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], reference[i].p, tolerance) << i << " of " << n;
}

TEST(Adam, StepsMatchFormulaForEverySize) {
  for (const int64_t n : {0, 1, 3, 7, 31, 32, 33, (1 << 15) + 1, 100003}) {
    const AdamOptions joined = {.lr = 0.02, .betas = {0.85, 0.97}, .eps = 1e-5, .weight_decay = 0.07};
    const AdamWOptions decoupled = {.lr = 0.02, .betas = {0.85, 0.97}, .eps = 1e-5, .weight_decay = 0.07};
    const AdamWOptions none = {.lr = 0.02, .betas = {0.85, 0.97}, .eps = 1e-5, .weight_decay = 0};
    expect_every_value<Adam, double>(n, joined, false, 1e-14);
    expect_every_value<AdamW, double>(n, decoupled, true, 1e-14);
    expect_every_value<AdamW, double>(n, none, true, 1e-14);
    // Rounding errors of float32 for values near 1 and four steps of 0.02.
    expect_every_value<Adam, float>(n, joined, false, 1e-6);
    expect_every_value<AdamW, float>(n, decoupled, true, 1e-6);
    expect_every_value<AdamW, float>(n, none, true, 1e-6);
  }
}

TEST(Adam, ResultDoesNotDependOnThreadCount) {
  const auto run = [](int threads) {
    td::set_num_threads(threads);
    std::vector<float> values(100003);
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
    const td::Tensor p = parameter<float>(values, {100003});
    AdamW adamw({p}, {.lr = 0.3, .weight_decay = 0.1});
    for (int step = 0; step < 3; ++step) {
      set_gradient(p, td::from_vector<float>(values, {100003}));
      adamw.step();
    }
    td::set_num_threads(0);
    return p.to_vector<float>();
  };
  EXPECT_EQ(run(1), run(2));
}

TEST(Adam, EachParameterHasItsOwnStepCount) {
  const td::Tensor often = parameter<double>({1}, {1});
  const td::Tensor once = parameter<double>({1}, {1});
  Adam adam({often, once}, {.lr = 0.5, .eps = 0});
  for (int step = 0; step < 3; ++step) {
    adam.zero_grad();
    set_gradient(often, td::full({1}, 4, {td::kFloat64}));
    if (step == 2) set_gradient(once, td::full({1}, -4, {td::kFloat64}));
    const uint32_t version = once.version();
    adam.step();
    EXPECT_EQ(once.version() == version, step < 2);
  }
  // A constant gradient makes every corrected step exactly lr.
  EXPECT_NEAR(often.item<double>(), -0.5, 1e-14);
  EXPECT_NEAR(once.item<double>(), 1.5, 1e-14);
  EXPECT_EQ(adam.state_dict().get<int64_t>("state.0.step"), 3);
  EXPECT_EQ(adam.state_dict().get<int64_t>("state.1.step"), 1);
}

TEST(Adam, ParameterGroupsUseTheirOwnOptions) {
  const td::Tensor a = parameter<double>({1}, {1});
  const td::Tensor b = parameter<double>({2}, {1});
  const td::Tensor c = parameter<double>({3}, {1});
  AdamW adamw({{.parameters = {a}, .options = {.lr = 0.5, .eps = 0, .weight_decay = 0.1}},
               {.parameters = {b, c}, .options = {.lr = 0.25, .eps = 0, .weight_decay = 0}}});
  EXPECT_EQ(adamw.parameters().size(), 3u);
  ASSERT_EQ(adamw.groups().size(), 2u);
  EXPECT_TRUE(adamw.groups()[1].parameters[0].is_same(b));
  EXPECT_EQ(adamw.groups()[0].options.weight_decay, 0.1);
  for (const td::Tensor& p : adamw.parameters()) set_gradient(p, td::full({1}, 8, {td::kFloat64}));
  adamw.step();
  EXPECT_NEAR(a.item<double>(), 1 - 0.05 - 0.5, 1e-15);
  EXPECT_NEAR(b.item<double>(), 1.75, 1e-15);
  EXPECT_NEAR(c.item<double>(), 2.75, 1e-15);
  adamw.set_lr(1, 0.5);
  EXPECT_EQ(adamw.lr(), 0.5);
  EXPECT_EQ(adamw.lr(1), 0.5);
  adamw.set_options(0, {.lr = 0, .weight_decay = 0});
  adamw.step();
  EXPECT_NEAR(a.item<double>(), 0.45, 1e-15);
  EXPECT_NEAR(c.item<double>(), 2.25, 1e-14);
}

void step(td::optim::Optimizer& optimizer, const td::Tensor& p, float gradient) {
  set_gradient(p, td::from_vector<float>({gradient, 1 / gradient}, {2}));
  optimizer.step();
}

TEST(Adam, StateDictContinuesBitExactly) {
  const td::Tensor p = parameter<float>({1, 2}, {2});
  const td::Tensor unused = parameter<float>({7}, {1});
  AdamW adamw({p, unused}, {.lr = 0.013, .betas = {0.8, 0.93}, .eps = 1e-7, .weight_decay = 0.03});
  step(adamw, p, 0.3f);
  step(adamw, p, -3);

  const td::Tensor q = parameter<float>(p.to_vector<float>(), {2});
  AdamW restored({q, parameter<float>({7}, {1})});
  const td::State state = adamw.state_dict();
  restored.load_state_dict(state);
  for (const float gradient : {2.0f, 0.7f, -0.1f}) {
    step(adamw, p, gradient);
    step(restored, q, gradient);
  }
  EXPECT_EQ(p.to_vector<float>(), q.to_vector<float>());
  EXPECT_EQ(restored.groups()[0].options.betas, (std::pair<double, double>{0.8, 0.93}));
  EXPECT_EQ(restored.state_dict().get<int64_t>("state.0.step"), 5);
  EXPECT_EQ(restored.state_dict().find("state.1.step"), nullptr);
}

TEST(Adam, StateDictNamesMatchPyTorch) {
  const td::Tensor p = parameter<float>({1, 2}, {2});
  td::autograd::leaf(p).name = "fc1.weight";
  Adam adam({p}, {.lr = 0.5, .betas = {0.5, 0.75}, .eps = 0.125, .weight_decay = 0.25});
  step(adam, p, 2);
  const td::State state = adam.state_dict();
  EXPECT_EQ(state.get<std::string>("optimizer"), "Adam");
  EXPECT_EQ(state.get<double>("groups.0.lr"), 0.5);
  EXPECT_EQ(state.get<double>("groups.0.beta1"), 0.5);
  EXPECT_EQ(state.get<double>("groups.0.beta2"), 0.75);
  EXPECT_EQ(state.get<double>("groups.0.eps"), 0.125);
  EXPECT_EQ(state.get<double>("groups.0.weight_decay"), 0.25);
  EXPECT_EQ(state.get<int64_t>("groups.0.num_parameters"), 1);
  EXPECT_EQ(state.get<std::string>("state.0.name"), "fc1.weight");
  EXPECT_EQ(state.get<int64_t>("state.0.step"), 1);
  EXPECT_EQ(state.get<td::Tensor>("state.0.exp_avg").to_vector<float>(), (std::vector<float>{1.125, 0.5}));
  EXPECT_EQ(state.get<td::Tensor>("state.0.exp_avg_sq").to_vector<float>(), (std::vector<float>{1.265625, 0.25}));
}

TEST(Adam, LoadErrorListsEveryMismatch) {
  const td::Tensor p = parameter<float>({1, 2}, {2});
  td::autograd::leaf(p).name = "fc1.weight";
  AdamW adamw({p}, {.lr = 0.1});
  step(adamw, p, 2);
  td::State state = adamw.state_dict();
  state.set("optimizer", std::string("Adam"));
  state.set("groups.0.lr", -1.0);
  state.set("groups.0.eps", int64_t{1});
  state.set("groups.1.lr", 0.5);
  state.set("state.0.name", std::string("fc2.weight"));
  state.set("state.0.step", int64_t{0});
  state.set("state.0.exp_avg", td::zeros({3}));
  state.set("state.0.exp_avg_sq", td::zeros({2}, {td::kFloat64}));
  state.set("state.0.momentum_buffer", td::zeros({2}));
  state.set("state.1.exp_avg", td::zeros({1}));
  const auto before = p.to_vector<float>();
  AdamW other({p, parameter<float>({5}, {1})}, {.lr = 0.2});
  EXPECT_EQ(error_text<td::StateError>([&] { other.load_state_dict(state); }),
            "AdamW: the state does not fit"
            "\n  different   optimizer: AdamW expected, Adam in the state"
            "\n  different   groups.0.num_parameters: 2 expected, 1 in the state"
            "\n  different   state.0.name: 'fc1.weight' expected, 'fc2.weight' in the state"
            "\n  different   groups.0.eps: a number expected, an integer in the state"
            "\n  different   groups.0: lr is -1, expected a finite number >= 0"
            "\n  different   state.0.step: is 0, expected at least 1"
            "\n  different   state.0.exp_avg: float32 [2] expected, float32 [3] in the state"
            "\n  different   state.0.exp_avg_sq: float32 [2] expected, float64 [2] in the state"
            "\n  missing     state.1.step"
            "\n  missing     state.1.exp_avg_sq"
            "\n  unexpected  groups.1.lr"
            "\n  unexpected  state.0.momentum_buffer");
  EXPECT_EQ(other.lr(), 0.2);
  EXPECT_EQ(other.state_dict().find("state.0.step"), nullptr);
  EXPECT_EQ(p.to_vector<float>(), before);
}

TEST(Adam, InvalidOptionsAreRejected) {
  const auto rejected = [](const AdamOptions& options) {
    return error_text<td::ValueError>([&] { Adam({parameter<float>({1}, {1})}, options); });
  };
  EXPECT_EQ(rejected({.lr = -0.1}), "Adam: lr is -0.1, expected a finite number >= 0");
  EXPECT_EQ(rejected({.betas = {1, 0.5}}), "Adam: beta1 is 1, expected 0 <= beta1 < 1");
  EXPECT_EQ(rejected({.betas = {0.5, std::nan("")}}), "Adam: beta2 is nan, expected 0 <= beta2 < 1");
  EXPECT_EQ(rejected({.eps = -1}), "Adam: eps is -1, expected a finite number >= 0");
  EXPECT_EQ(rejected({.weight_decay = std::numeric_limits<double>::infinity()}),
            "Adam: weight_decay is inf, expected a finite number >= 0");
  AdamW adamw({parameter<float>({1}, {1})});
  EXPECT_EQ(error_text<td::ValueError>([&] { adamw.set_options(0, {.lr = -1}); }),
            "AdamW: lr is -1, expected a finite number >= 0");
  EXPECT_EQ(error_text<td::IndexError>([&] { adamw.set_options(1, {}); }),
            "AdamW: group is 1, expected 0 <= group < 1");
  EXPECT_EQ(error_text<td::IndexError>([&] { adamw.lr(-1); }), "AdamW: group is -1, expected 0 <= group < 1");
  EXPECT_EQ(adamw.lr(), 1e-3);
}

/// A step without enough memory throws before it changes anything; it succeeds when memory is available.
template <class Optimizer, class Options>
void expect_survives_lack_of_memory(const Options& options) {
  td::set_cpu_device_count(2);
  const td::Device device("cpu:1");
  const auto on_device = [&](double value, int64_t n) {
    td::Tensor p = td::full({n}, value, {td::kFloat32, device});
    p.set_requires_grad();
    set_gradient(p, td::full({n}, 1, {td::kFloat32, device}));
    return p;
  };
  const td::Tensor small = on_device(3, 2);
  const td::Tensor large = on_device(5, 1 << 20);
  Optimizer optimizer({small, large}, options);
  td::empty_cache(device);
  td::set_memory_limit(device, td::memory_stats(device).allocated + (1 << 20));
  EXPECT_THROW(optimizer.step(), td::OutOfMemory);
  td::set_memory_limit(device, 0);
  EXPECT_EQ(small.to_vector<float>(), (std::vector<float>{3, 3}));
  EXPECT_TRUE(optimizer.state_dict().template get<td::State>("state.0").empty());
  optimizer.step();

  const td::Tensor same = on_device(3, 2);
  Optimizer other({same}, options);
  other.step();
  EXPECT_NE(small.to_vector<float>()[0], 3);
  EXPECT_EQ(small.to_vector<float>(), same.to_vector<float>());
}

TEST(Optimizer, OutOfMemoryStepChangesNothing) {
  expect_survives_lack_of_memory<AdamW>(AdamWOptions{.lr = 0.1, .weight_decay = 0.5});
  expect_survives_lack_of_memory<td::optim::SGD>(td::optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5});
}

/// Parameters on two devices are updated like parameters on one, without memory on the first device.
template <class Optimizer, class Options>
void expect_steps_on_each_device(const Options& options) {
  td::set_cpu_device_count(3);
  std::vector<std::vector<td::Tensor>> lists;
  for (const std::vector<const char*>& names : {std::vector<const char*>{"cpu", "cpu"}, {"cpu:1", "cpu:2"}}) {
    auto& list = lists.emplace_back();
    for (size_t i = 0; i < 2; ++i) {
      const td::TensorOptions on_it = {td::kFloat32, td::Device(names[i])};
      list.push_back(td::full({3}, 1.5 - static_cast<double>(i), on_it).set_requires_grad());
      set_gradient(list.back(), td::full({3}, 0.5, on_it));
    }
  }
  Optimizer together(lists[0], options), apart(lists[1], options);
  together.step();
  td::reset_peak_memory({});
  const int64_t before = td::memory_stats({}).allocated;
  apart.step();
  EXPECT_EQ(td::memory_stats({}).peak_allocated, before);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(lists[0][i].to_vector<float>(), lists[1][i].to_vector<float>());
  EXPECT_NE(lists[1][0].to_vector<float>()[0], 1.5);
}

TEST(Optimizer, ParametersAreUpdatedOnTheirOwnDevices) {
  expect_steps_on_each_device<AdamW>(AdamWOptions{.lr = 0.1, .weight_decay = 0.5});
  expect_steps_on_each_device<td::optim::SGD>(td::optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
}

TEST(Adam, ParameterMovedAfterFirstStepIsRejected) {
  td::set_cpu_device_count(2);
  const td::Tensor p = parameter<float>({1, 2}, {2});
  Adam adam({p});
  step(adam, p, 1);
  p.impl().storage = td::full({2}, 5, {td::kFloat32, td::Device("cpu:1")}).storage();
  td::autograd::leaf(p).move_to(td::Device("cpu:1"), p.dtype());
  EXPECT_EQ(error_text<td::DeviceError>([&] { adam.step(); }),
            td::str("Adam: parameter 0 is on cpu:1, its exp_avg on ", td::testing::test_device(),
                    "; create the optimizer after moving the model"));
  EXPECT_EQ(p.to_vector<float>(), (std::vector<float>{5, 5}));
}

TEST(Adam, TraceRecordsBytesOfStep) {
  const td::Tensor p = parameter<float>({1, -2, 0.5}, {3});
  AdamW optimizer({p}, {.lr = 0.5});
  set_gradient(p, td::from_vector<float>({3, -1, 0.125}, {3}));
  td::start_trace();
  optimizer.step();
  const std::vector<td::TraceEvent> events = td::stop_trace();
  const auto step = std::find_if(events.begin(), events.end(), [](const auto& e) { return e.category == "optimizer"; });
  ASSERT_NE(step, events.end());
  EXPECT_EQ(step->num_bytes, 7 * 3 * 4);
}

}  // namespace
