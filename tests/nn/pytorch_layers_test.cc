// Compares layers with PyTorch's modules: keys and shapes of their state, outputs in both modes, gradients, and the
// state after a call (tools/fixtures/layer_fixtures.py).
#include <tandem/base/rank_context.h>
#include <tandem/io/safetensors.h>
#include <tandem/tests/nn/layer_cases.h>
#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::Tensor;
using td::testing::LayerCase;
using Named = std::vector<std::pair<std::string, Tensor>>;

namespace {

const std::vector<LayerCase>& all_cases() {
  static const auto* const cases = new std::vector<LayerCase>(td::testing::all_layer_cases());
  return *cases;
}

/// The tensors of a family's fixture, in the order of the file.
const Named& fixture(const std::string& family) {
  static auto* const loaded = new std::map<std::string, Named>;
  const auto found = loaded->find(family);
  if (found != loaded->end()) return found->second;
  const std::string path = "tests/fixtures/nn/" + family + "_layers.safetensors";
  return (*loaded)[family] = td::io::load_safetensors(path).tensors;
}

/// The tensors of `all` whose names begin with `prefix`, without it.
Named below(const Named& all, const std::string& prefix) {
  Named result;
  for (const auto& [name, tensor] : all) {
    if (name.starts_with(prefix)) result.emplace_back(name.substr(prefix.size()), tensor);
  }
  return result;
}

void expect_near(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  ASSERT_EQ(actual.dtype(), expected.dtype()) << what;
  const auto a = actual.to(td::kFloat64).to_vector<double>(), e = expected.to(td::kFloat64).to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == e[i]) continue;  // infinities
    EXPECT_NEAR(a[i], e[i], 1e-12 * (1 + std::abs(e[i]))) << what << " " << i;
  }
}

void expect_near(const Named& actual, const Named& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].first, expected[i].first) << what;
    expect_near(actual[i].second, expected[i].second, what + " " + actual[i].first);
  }
}

/// Names tensors by their index.
Named numbered(const std::vector<Tensor>& tensors) {
  Named result;
  for (size_t i = 0; i < tensors.size(); ++i) result.emplace_back(std::to_string(i), tensors[i]);
  return result;
}

/// sum over i, j of cos(j) outputs[i][j], of the outputs that require grad; undefined if there is none.
Tensor probe(const std::vector<Tensor>& outputs) {
  Tensor sum;
  for (const Tensor& output : outputs) {
    if (!output.requires_grad()) continue;
    const Tensor factors = td::cos(td::arange(0, output.numel(), 1, {td::kFloat64})).reshape(output.shape());
    const Tensor part = (output * factors).sum();
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

class PyTorchLayer : public ::testing::TestWithParam<LayerCase> {};

TEST_P(PyTorchLayer, EqualsTandems) {
  const LayerCase& layer = GetParam();
  const Named expected = below(fixture(layer.family), layer.name + "/");
  ASSERT_FALSE(expected.empty()) << "the fixture has no such case; run tools/fixtures/layer_fixtures.py";
  const auto module = layer.make();
  module->to(td::kFloat64);
  td::State start;
  for (const auto& [key, tensor] : below(expected, "start/")) start.set(key, tensor);
  module->load_state_dict(start);
  expect_near(module->state_dict().tensors(), below(expected, "start/"), "state");

  std::vector<Tensor> inputs;
  const Named input_gradients = below(expected, "input_gradient/");
  for (const auto& [i, tensor] : below(expected, "input/")) {
    bool has_gradient = false;
    for (const auto& [name, gradient] : input_gradients) has_gradient = has_gradient || name == i;
    inputs.push_back(has_gradient ? tensor.clone().requires_grad_() : tensor);
  }
  const std::vector<Tensor> outputs = layer.call(*module, inputs);
  expect_near(numbered(outputs), below(expected, "output/"), "output");
  if (const Tensor sum = probe(outputs); sum.defined()) sum.backward();
  Named gradients;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].requires_grad()) gradients.emplace_back(std::to_string(i), inputs[i].grad());
  }
  expect_near(gradients, input_gradients, "gradient of input");
  gradients.clear();
  for (const auto& [name, parameter] : module->named_parameters()) gradients.emplace_back(name, parameter.grad());
  expect_near(gradients, below(expected, "gradient/"), "gradient of");
  expect_near(module->state_dict().tensors(), below(expected, "end/"), "state after a call");

  const td::NoGradGuard no_grad;
  module->eval();
  expect_near(numbered(layer.call(*module, inputs)), below(expected, "eval/"), "output in evaluation mode");
}

INSTANTIATE_TEST_SUITE_P(, PyTorchLayer, ::testing::ValuesIn(all_cases()),
                         [](const auto& parameter) { return parameter.param.name; });

TEST(PyTorchLayers, InitialValuesAreEqualOnAllRanks) {
  for (const LayerCase& layer : all_cases()) {
    const auto initial_state = [&](int rank) {
      td::RankContext context;
      context.rank = rank;
      const td::RankContext::Use use(context);
      td::manual_seed(0);
      return layer.make()->state_dict().tensors();
    };
    const Named expected = initial_state(0), state = initial_state(3);
    ASSERT_EQ(state.size(), expected.size());
    for (size_t i = 0; i < state.size(); ++i) {
      EXPECT_TRUE(td::equal(state[i].second, expected[i].second)) << layer.name << ' ' << state[i].first;
    }
  }
}

TEST(PyTorchLayers, EveryRecordedModuleHasALayer) {
  std::map<std::string, std::set<std::string>> names;
  for (const LayerCase& layer : all_cases()) names[layer.family].insert(layer.name);
  for (const auto& [family, layers] : names) {
    std::set<std::string> recorded;
    for (const auto& [name, tensor] : fixture(family)) recorded.insert(name.substr(0, name.find('/')));
    EXPECT_EQ(layers, recorded) << family;
  }
}

}  // namespace
