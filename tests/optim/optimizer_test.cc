// Tests of every optimizer.

#include <tandem/base/parallel_for.h>
#include <tandem/base/trace.h>
#include <tandem/io/state_file.h>
#include <tandem/optim/grad_scaler.h>
#include <tandem/tensor/state_pieces.h>
#include <tandem/tests/optim/gradients.h>
#include <tandem/tests/optim/optimizers.h>

namespace tandem::testing { namespace {

template <class Cases>
struct EveryOptimizer : ::testing::Test {};
TYPED_TEST_SUITE(EveryOptimizer, AllOptimizers, OptimizerName);

/// n values of a parameter or gradient, which repeat after seven.
std::vector<float> repeated(int64_t n, double phase) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i)
    values.push_back(i < 7 ? static_cast<float>(std::sin(static_cast<double>(i) + phase))
                           : values[static_cast<size_t>(i - 7)]);
  return values;
}

Tensor repeated_parameter(int64_t n, DType dtype = kFloat32) {
  const Tensor p = zeros({n}, {dtype, test_device()}).requires_grad_();
  primitives::copy(from_vector<float>(repeated(n, 0), {n}), p.detach());
  return p;
}

/// Takes a step for each phase in [begin, end).
void take_steps(optim::Optimizer& optimizer, int begin, int end) {
  for (int phase = begin; phase < end; ++phase) {
    for (const Tensor& p : optimizer.parameters())
      set_gradient(p, from_vector<float>(repeated(p.numel(), 1 + phase), p.shape()));
    optimizer.step();
  }
}

/// Takes a step in which only `parameters` have gradients.
void step_with_gradients_of(optim::Optimizer& optimizer, const std::vector<Tensor>& parameters, int phase) {
  optimizer.zero_grad();
  for (const Tensor& p : parameters) {
    set_gradient(p, from_vector<float>(repeated(p.numel(), 1 + phase), p.shape()));
  }
  optimizer.step();
}

/// The state's tensors and numbers as text.
std::string state_text(const optim::Optimizer& optimizer) {
  std::string text;
  const State states = optimizer.state_dict().get<State>("state");
  for (const auto& [index, state] : states.entries()) {
    for (const auto& [name, value] : std::get<std::shared_ptr<State>>(state)->entries()) {
      text += index + " " + name + " ";
      if (const auto* steps = std::get_if<int64_t>(&value)) text += str(*steps);
      if (const auto* tensor = std::get_if<Tensor>(&value)) {
        for (const float number : tensor->to_vector<float>()) text += str(number, " ");
      }
    }
  }
  return text;
}

TYPED_TEST(EveryOptimizer, UpdatesEveryValueAlike) {
  for (const auto& options : TypeParam::options()) {
    for (const int64_t n : {0, 1, 31, 33, (1 << 15) + 1, 100003}) {
      for (const DType dtype : {kFloat32, kFloat64}) {
        const Tensor seven = repeated_parameter(7, dtype), p = repeated_parameter(n, dtype);
        typename TypeParam::Optimizer optimizer({seven, p}, options);
        take_steps(optimizer, 0, 3);
        const auto expected = seven.to_vector<double>(), values = p.to_vector<double>();
        EXPECT_NE(seven.to_vector<float>(), repeated(7, 0));
        for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], expected[i % 7]) << i << " of " << n;
      }
    }
  }
}

TYPED_TEST(EveryOptimizer, GradientsThatAreViewsAreUsed) {
  const Tensor with_view = repeated_parameter(9), with_copy = repeated_parameter(9);
  with_view.sum().backward({}, false, /*create_graph=*/true);
  ASSERT_FALSE(with_view.grad().is_contiguous());  // one element, expanded
  set_gradient(with_copy, ones({9}));
  for (const Tensor& p : {with_view, with_copy}) typename TypeParam::Optimizer({p}, TypeParam::options()[0]).step();
  EXPECT_EQ(with_view.to_vector<float>(), with_copy.to_vector<float>());
}

TYPED_TEST(EveryOptimizer, DoesNotDependOnTheNumberOfThreads) {
  std::vector<std::string> states;
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    typename TypeParam::Optimizer optimizer({repeated_parameter(70001)}, TypeParam::options().back());
    take_steps(optimizer, 0, 2);
    set_num_threads(0);
    states.push_back(state_text(optimizer) + str(optimizer.parameters()[0].template to_vector<float>()[70000]));
  }
  EXPECT_EQ(states[0], states[1]);
}

TYPED_TEST(EveryOptimizer, StateHasTheParametersShape) {
  size_t num_tensors = 0;
  for (const auto& options : TypeParam::options()) {
    const Tensor matrix = parameter<float>({1, 2, 3, 4, 5, 6}, {2, 3});
    const Tensor vector = parameter<double>({1, 2}, {2});
    typename TypeParam::Optimizer optimizer({matrix, vector}, options);
    set_gradient(matrix, ones({2, 3}));
    set_gradient(vector, ones({2}, {kFloat64}));
    optimizer.step();
    for (const auto& [path, tensor] : optimizer.state_dict().tensors()) {
      const Tensor& p = path.starts_with("state.0.") ? matrix : vector;
      EXPECT_EQ(tensor.shape(), p.shape()) << path;
      EXPECT_EQ(tensor.dtype(), p.dtype()) << path;
      EXPECT_EQ(tensor.device(), p.device()) << path;
      EXPECT_NE(tensor.data_ptr(), p.data_ptr()) << path;
      ++num_tensors;
    }
  }
  EXPECT_GT(num_tensors, 0u);
}

/// The state with every tensor in two pieces.
State in_pieces(State state) {
  for (const auto& [path, tensor] : state.tensors()) {
    const int64_t n = tensor.numel(), cut = n / 3;
    state.set(path, make_pieces(tensor.shape(), 0, view_elements(tensor, 0, cut)));
    state.set(str(path, ".[", cut, ":", n, "]"), view_elements(tensor, cut, n));
  }
  return state;
}

TYPED_TEST(EveryOptimizer, LoadedStateContinuesWithTheSameBits) {
  const std::string path = ::testing::TempDir() + TypeParam::kName + ".safetensors";
  for (const auto& options : TypeParam::options()) {
    const Tensor p = repeated_parameter(40), wide = repeated_parameter(3, kFloat64), unused = repeated_parameter(1);
    typename TypeParam::Optimizer optimizer({{{p, unused}, options}, {{wide}, TypeParam::options()[0]}});
    const auto step = [](optim::Optimizer& stepped, int phase) {
      const auto all = stepped.parameters();
      step_with_gradients_of(stepped, {all[0], all[2]}, phase);
    };
    for (const int phase : {0, 1, 2}) step(optimizer, phase);
    const Tensor q = repeated_parameter(40), other = repeated_parameter(3, kFloat64);
    primitives::copy(p.detach(), q.detach());
    primitives::copy(wide.detach(), other.detach());
    typename TypeParam::Optimizer restored({{{q, repeated_parameter(1)}, {}}, {{other}, {}}});
    io::save_state(path, optimizer.state_dict());
    restored.load_state_dict(io::load_state(path));
    EXPECT_EQ(state_text(restored), state_text(optimizer));
    restored.load_state_dict(in_pieces(io::load_state(path)));
    EXPECT_EQ(state_text(restored), state_text(optimizer));
    for (const int phase : {3, 4}) {
      step(optimizer, phase);
      step(restored, phase);
    }
    EXPECT_EQ(p.to_vector<float>(), q.to_vector<float>());
    EXPECT_EQ(wide.to_vector<double>(), other.to_vector<double>());
    EXPECT_EQ(state_text(restored), state_text(optimizer));
  }
}

TYPED_TEST(EveryOptimizer, GroupsHaveTheirOwnOptions) {
  using Optimizer = typename TypeParam::Optimizer;
  const auto all = TypeParam::options();
  std::vector<optim::ParameterGroup<typename TypeParam::Options>> groups;
  for (const auto& options : all) groups.push_back({{repeated_parameter(9), repeated_parameter(5)}, options});
  Optimizer together(groups);
  take_steps(together, 0, 3);
  for (size_t g = 0; g < all.size(); ++g) {
    Optimizer alone({repeated_parameter(9), repeated_parameter(5)}, all[g]);
    take_steps(alone, 0, 3);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(groups[g].parameters[i].template to_vector<float>(), alone.parameters()[i].template to_vector<float>())
          << g;
      EXPECT_TRUE(together.groups()[g].parameters[i].is_same(groups[g].parameters[i]));
    }
    EXPECT_EQ(together.lr(static_cast<int64_t>(g)), all[g].lr);
  }
  together.set_lr(1, 0.5);
  EXPECT_EQ(together.lr(), all[0].lr);
  EXPECT_EQ(together.groups()[1].options.lr, 0.5);
  together.set_lr(0.25);
  for (const auto& group : together.groups()) EXPECT_EQ(group.options.lr, 0.25);
}

TYPED_TEST(EveryOptimizer, LaterFirstStepsMatchASeparateOptimizer) {
  for (const auto& options : TypeParam::options()) {
    for (const size_t late : {0, 1}) {
      std::vector<Tensor> together, alone;
      std::vector<std::unique_ptr<optim::Optimizer>> own;
      for (const int64_t n : {9, 5}) {
        together.push_back(repeated_parameter(n));
        alone.push_back(repeated_parameter(n));
        own.push_back(std::make_unique<typename TypeParam::Optimizer>(std::vector<Tensor>{alone.back()}, options));
      }
      typename TypeParam::Optimizer optimizer(together, options);
      for (int phase = 0; phase < 3; ++phase) {
        std::vector<Tensor> trained = together;
        if (phase == 0) trained.erase(trained.begin() + static_cast<std::ptrdiff_t>(late));
        step_with_gradients_of(optimizer, trained, phase);
        for (size_t i = 0; i < 2; ++i) {
          if (phase > 0 || i != late) step_with_gradients_of(*own[i], {alone[i]}, phase);
        }
      }
      for (size_t i = 0; i < 2; ++i) EXPECT_EQ(together[i].to_vector<float>(), alone[i].to_vector<float>()) << late;
    }
  }
}

TYPED_TEST(EveryOptimizer, OptionsCanChangeBetweenSteps) {
  for (const auto& first : TypeParam::options()) {
    for (const auto& second : TypeParam::options()) {
      const Tensor p = repeated_parameter(20), q = repeated_parameter(20);
      typename TypeParam::Optimizer optimizer({p}, first);
      take_steps(optimizer, 0, 2);
      optimizer.set_options(0, second);
      primitives::copy(p.detach(), q);
      State state = optimizer.state_dict();
      typename TypeParam::Optimizer loaded({q});
      loaded.load_state_dict(state);
      take_steps(optimizer, 2, 4);
      take_steps(loaded, 2, 4);
      EXPECT_EQ(p.to_vector<float>(), q.to_vector<float>());
      for (const float value : p.to_vector<float>()) EXPECT_TRUE(std::isfinite(value));
    }
  }
}

TYPED_TEST(EveryOptimizer, OptionsAreReachedByName) {
  typename TypeParam::Optimizer optimizer({repeated_parameter(1)}, TypeParam::options().back());
  const State options = optimizer.state_dict().template get<State>("groups.0");
  for (const auto& [name, value] : options.entries()) {
    if (name == "num_parameters") continue;
    const double* const number = std::get_if<double>(&value);
    EXPECT_TRUE(optimizer.has_option(name));
    EXPECT_EQ(optimizer.option(0, name), number != nullptr ? *number : std::get<bool>(value)) << name;
    const double other = number != nullptr ? 0.5 : 0;
    optimizer.set_option(0, name, other);
    EXPECT_EQ(optimizer.option(0, name), other) << name;
  }
  EXPECT_EQ(optimizer.groups()[0].options.lr, 0.5);
  EXPECT_ERROR(ValueError, optimizer.set_option(0, "lr", -1),
               str(TypeParam::kName, ": lr is -1, expected a finite number >= 0"));
  EXPECT_EQ(optimizer.lr(), 0.5);
  EXPECT_FALSE(optimizer.has_option("rate"));
  EXPECT_ERROR(ValueError, optimizer.option(0, "rate"), str(TypeParam::kName, ": no option is named 'rate'"));
  EXPECT_ERROR(ValueError, optimizer.set_lr(-1), str(TypeParam::kName, ": lr is -1, expected a finite number >= 0"));
  EXPECT_ERROR(IndexError, optimizer.set_options(1, {}),
               str(TypeParam::kName, ": group is 1, expected 0 <= group < 1"));
  EXPECT_ERROR(IndexError, optimizer.lr(-1), str(TypeParam::kName, ": group is -1, expected 0 <= group < 1"));
  EXPECT_ERROR(IndexError, optimizer.set_option(1, "lr", 1),
               str(TypeParam::kName, ": group is 1, expected 0 <= group < 1"));
}

TYPED_TEST(EveryOptimizer, BooleanOptionsAreZeroOrOne) {
  typename TypeParam::Optimizer optimizer({repeated_parameter(1)});
  for (const double value : {0.5, -1.0, 2.0, std::nan("")}) {
    EXPECT_ERROR(ValueError, optimizer.set_option(0, "maximize", value),
                 str(TypeParam::kName, ": maximize is ", value, ", expected 0 or 1"));
    EXPECT_EQ(optimizer.option(0, "maximize"), 0);
  }
  optimizer.set_option(0, "maximize", 1);
  EXPECT_EQ(optimizer.option(0, "maximize"), 1);
}

TYPED_TEST(EveryOptimizer, AddedGroupsAreUpdated) {
  using Optimizer = typename TypeParam::Optimizer;
  const Tensor a = repeated_parameter(9), b = repeated_parameter(5), c = repeated_parameter(9);
  Optimizer optimizer({a}, TypeParam::options()[0]);
  take_steps(optimizer, 0, 2);
  optimizer.add_param_group({{b}, TypeParam::options().back()});
  EXPECT_EQ(optimizer.num_groups(), 2);
  take_steps(optimizer, 2, 4);
  Optimizer first({c}, TypeParam::options()[0]);
  take_steps(first, 0, 4);
  EXPECT_EQ(a.to_vector<float>(), c.to_vector<float>());
  const Tensor d = repeated_parameter(5);
  Optimizer second({d}, TypeParam::options().back());
  take_steps(second, 2, 4);
  EXPECT_EQ(b.to_vector<float>(), d.to_vector<float>());
  EXPECT_ERROR(ValueError, optimizer.add_param_group({{c, a}, {}}),
               str(TypeParam::kName, ": parameter 3 is given twice"));
  EXPECT_EQ(optimizer.num_groups(), 2);
}

TYPED_TEST(EveryOptimizer, MaximizeNegatesTheGradient) {
  for (auto options : TypeParam::options()) {
    const Tensor p = repeated_parameter(9), q = repeated_parameter(9);
    options.maximize = false;
    typename TypeParam::Optimizer minimizing({p}, options);
    options.maximize = true;
    typename TypeParam::Optimizer maximizing({q}, options);
    for (int step = 0; step < 3; ++step) {
      std::vector<float> values = repeated(9, step);
      set_gradient(p, from_vector<float>(values, {9}));
      for (float& value : values) value = -value;
      set_gradient(q, from_vector<float>(values, {9}));
      minimizing.step();
      maximizing.step();
    }
    EXPECT_EQ(p.to_vector<float>(), q.to_vector<float>());
  }
}

TYPED_TEST(EveryOptimizer, WrongOptionsAreRejected) {
  using Optimizer = typename TypeParam::Optimizer;
  const Tensor p = parameter<float>({1}, {1});
  for (const auto& [options, text] : TypeParam::wrong_options()) {
    EXPECT_ERROR(ValueError, Optimizer({p}, options), str(TypeParam::kName, ": ", text));
    Optimizer optimizer({p});
    EXPECT_ERROR(ValueError, optimizer.set_options(0, options), str(TypeParam::kName, ": ", text));
    EXPECT_EQ(optimizer.lr(), typename TypeParam::Options().lr);
  }
}

TYPED_TEST(EveryOptimizer, GradScalerSkipsStepsWithInfiniteGradients) {
  const Tensor p = repeated_parameter(7);
  typename TypeParam::Optimizer optimizer({p}, TypeParam::options().back());
  optim::GradScaler scaler({.init_scale = 2});
  take_steps(optimizer, 0, 2);
  const std::vector<float> before = p.to_vector<float>();
  const std::string state = state_text(optimizer);
  set_gradient(p, full({7}, std::numeric_limits<float>::infinity()));
  EXPECT_FALSE(scaler.step(optimizer));
  scaler.update();
  EXPECT_EQ(p.to_vector<float>(), before);
  EXPECT_EQ(state_text(optimizer), state);
  set_gradient(p, full({7}, 3));
  EXPECT_TRUE(scaler.step(optimizer));
  EXPECT_NE(p.to_vector<float>(), before);
}

TYPED_TEST(EveryOptimizer, SkipsParametersWithoutGradientAndFrozenOnes) {
  const Tensor used = repeated_parameter(2), unused = repeated_parameter(2), frozen = repeated_parameter(2);
  typename TypeParam::Optimizer optimizer({used, unused, frozen}, TypeParam::options().back());
  for (const Tensor& p : {used, frozen}) set_gradient(p, ones({2}));
  Tensor(frozen).requires_grad_(false);
  const uint32_t used_version = used.version(), unused_version = unused.version();
  optimizer.step();
  EXPECT_GT(used.version(), used_version);
  EXPECT_EQ(unused.version(), unused_version);
  EXPECT_EQ(frozen.to_vector<float>(), repeated(2, 0));
  const State states = static_cast<optim::Optimizer&>(optimizer).state_dict().template get<State>("state");
  for (const char* index : {"1", "2"}) EXPECT_TRUE(states.get<State>(index).empty());
}

// A step without enough memory throws before it changes anything; it succeeds when memory is available.
TYPED_TEST(EveryOptimizer, OutOfMemoryStepChangesNothing) {
  const auto options = TypeParam::options()[1];  // has a state
  set_cpu_device_count(2);
  const Device device("cpu:1");
  const auto on_device = [&](double value, int64_t n) {
    Tensor p = full({n}, value, {kFloat32, device});
    p.requires_grad_();
    set_gradient(p, full({n}, 1, {kFloat32, device}));
    return p;
  };
  const Tensor small = on_device(3, 2);
  const Tensor large = on_device(5, 1 << 20);
  typename TypeParam::Optimizer optimizer({small, large}, options);
  empty_cache(device);
  set_memory_limit(device, memory_stats(device).allocated + (1 << 20));
  EXPECT_THROW(optimizer.step(), OutOfMemory);
  set_memory_limit(device, 0);
  EXPECT_EQ(small.to_vector<float>(), (std::vector<float>{3, 3}));
  EXPECT_TRUE(optimizer.state_dict().template get<State>("state.0").empty());
  optimizer.step();

  const Tensor same = on_device(3, 2);
  typename TypeParam::Optimizer other({same}, options);
  other.step();
  EXPECT_NE(small.to_vector<float>()[0], 3);
  EXPECT_EQ(small.to_vector<float>(), same.to_vector<float>());
}

// Parameters on two devices are updated like parameters on one, without memory on the first device.
TYPED_TEST(EveryOptimizer, ParametersAreUpdatedOnTheirOwnDevices) {
  set_cpu_device_count(3);
  std::vector<std::vector<Tensor>> lists;
  for (const std::vector<const char*>& names : {std::vector<const char*>{"cpu", "cpu"}, {"cpu:1", "cpu:2"}}) {
    auto& list = lists.emplace_back();
    for (size_t i = 0; i < 2; ++i) {
      const TensorOptions on_it = {kFloat32, Device(names[i])};
      list.push_back(full({3}, 1.5 - static_cast<double>(i), on_it).requires_grad_());
      set_gradient(list.back(), full({3}, 0.5, on_it));
    }
  }
  const auto options = TypeParam::options()[1];
  typename TypeParam::Optimizer together(lists[0], options), apart(lists[1], options);
  together.step();
  reset_peak_memory({});
  const int64_t before = memory_stats({}).allocated;
  apart.step();
  EXPECT_EQ(memory_stats({}).peak_allocated, before);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(lists[0][i].to_vector<float>(), lists[1][i].to_vector<float>());
  EXPECT_NE(lists[1][0].to_vector<float>()[0], 1.5);
}

TEST(Optimizer, ParameterMovedAfterFirstStepIsRejected) {
  set_cpu_device_count(2);
  const Tensor p = parameter<float>({1}, {1});
  autograd::leaf(p).name = "w";
  optim::SGD sgd({p}, {.momentum = 0.9});
  set_gradient(p, ones({1}));
  sgd.step();
  const Tensor moved = full({1}, 5, {kFloat32, Device("cpu:1")});
  p.impl().storage = moved.storage();
  autograd::leaf(p).move_to(Device("cpu:1"), p.dtype());
  EXPECT_ERROR(DeviceError, sgd.step(),
               str("SGD: parameter 0 ('w') is on cpu:1, its momentum_buffer on ", test_device(),
                   "; create the optimizer after moving the model"));
  EXPECT_EQ(p.item<float>(), 5);
}

TEST(Optimizer, TraceRecordsBytesOfStep) {
  const Tensor p = repeated_parameter(3);
  optim::AdamW adamw({p}, {.lr = 0.5});
  optim::SGD sgd({p}, {.lr = 0.5, .momentum = 0.25});
  set_gradient(p, ones({3}));
  start_trace();
  adamw.step();
  sgd.step();
  std::vector<int64_t> bytes;
  for (const TraceEvent& event : stop_trace()) {
    if (event.category == std::string("optimizer")) bytes.push_back(event.num_bytes);
  }
  EXPECT_EQ(bytes, (std::vector<int64_t>{7 * 3 * 4, 5 * 3 * 4}));
}

TEST(Optimizer, LoadErrorListsEveryMismatch) {
  const Tensor p = parameter<float>({1, 2}, {2});
  autograd::leaf(p).name = "fc1.weight";
  optim::AdamW adamw({p}, {.lr = 0.1});
  take_steps(adamw, 0, 1);
  State state = adamw.state_dict();
  EXPECT_EQ(state.get<std::string>("state.0.name"), "fc1.weight");
  state.set("optimizer", std::string("Adam"));
  state.set("groups.0.lr", -1.0);
  state.set("groups.0.eps", int64_t{1});
  state.set("groups.1.lr", 0.5);
  state.set("state.0.name", std::string("fc2.weight"));
  state.set("state.0.step", int64_t{0});
  state.set("state.0.exp_avg", zeros({3}));
  state.set("state.0.exp_avg_sq", zeros({2}, {kFloat64}));
  state.set("state.0.momentum_buffer", zeros({2}));
  state.set("state.1.exp_avg", zeros({1}));
  const auto before = p.to_vector<float>();
  optim::AdamW other({p, parameter<float>({5}, {1})}, {.lr = 0.2});
  EXPECT_ERROR(StateError, other.load_state_dict(state),
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
  optim::SGD sgd({p});
  EXPECT_ERROR(StateError, sgd.load_state_dict({}),
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

TEST(Optimizer, InvalidParametersAreRejected) {
  EXPECT_ERROR(ValueError, optim::SGD(std::vector<Tensor>{}), "SGD: no parameters, expected at least one");
  EXPECT_ERROR(StateError, optim::SGD(std::vector<Tensor>{Tensor()}), "SGD: parameter 0 is undefined");
  const Tensor p = parameter<float>({1, 2, 3, 4}, {2, 2});
  EXPECT_ERROR(ValueError, optim::SGD({p, p}), "SGD: parameter 1 is given twice");
  EXPECT_ERROR(
      StateError, optim::SGD({p.exp()}),
      str("SGD: parameter 0 is the result of an operation (float32 [2, 2] on ", test_device(), "), expected a leaf"));
  EXPECT_ERROR(DTypeError, optim::SGD({zeros({1}, {kInt32})}),
               "SGD: parameter 0 is int32, expected a floating-point dtype");
  EXPECT_ERROR(StateError, optim::SGD({zeros({2, 3}).t()}), "SGD: parameter 0 is not contiguous");
}

}}  // namespace tandem::testing
