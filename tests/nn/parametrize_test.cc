#include <tandem/io/safetensors.h>
#include <tandem/optim/sgd.h>
#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::Tensor;

namespace {

// --- PyTorch's results (tools/fixtures/layer_fixtures.py) ------------------------------------------------

struct Case {
  const char* name;
  std::function<std::unique_ptr<nn::Layer>()> make;
};

template <class L, class... Args>
auto made(Args... args) {
  return [=](auto parametrize) {
    return std::function<std::unique_ptr<nn::Layer>()>([=] {
      auto layer = std::make_unique<L>(args...);
      parametrize(*layer);
      return layer;
    });
  };
}

std::vector<Case> cases() {
  const auto linear = made<nn::Linear>(3, 4);
  const auto conv = made<nn::Conv2d>(2, 3, 2);
  return {
      {"weight_norm_linear", linear([](nn::Linear& l) { nn::weight_norm(l); })},
      {"weight_norm_dim1", linear([](nn::Linear& l) { nn::weight_norm(l, "weight", 1); })},
      {"weight_norm_all", made<nn::Linear>(3, 4, nn::LinearOptions{.bias = false})(
                              [](nn::Linear& l) { nn::weight_norm(l, "weight", std::nullopt); })},
      {"weight_norm_conv", conv([](nn::Conv2d& l) { nn::weight_norm(l); })},
      {"weight_norm_bias", linear([](nn::Linear& l) { nn::weight_norm(l, "bias"); })},
      {"spectral_norm_linear", linear([](nn::Linear& l) { nn::spectral_norm(l); })},
      {"spectral_norm_conv", conv([](nn::Conv2d& l) { nn::spectral_norm(l, "weight", 3, 1e-6); })},
      {"spectral_norm_dim1", conv([](nn::Conv2d& l) { nn::spectral_norm(l, "weight", 1, 1e-12, 1); })},
      {"spectral_norm_vector", linear([](nn::Linear& l) { nn::spectral_norm(l, "bias"); })},
  };
}

class Fixture {
 public:
  explicit Fixture(const std::string& name) {
    for (auto& [key, tensor] : td::io::load_safetensors("tests/fixtures/nn/parametrizations.safetensors").tensors) {
      if (key.starts_with(name + "/")) tensors_.emplace_back(key.substr(name.size() + 1), tensor);
    }
  }
  const Tensor& operator[](const std::string& key) const {
    for (const auto& [name, tensor] : tensors_) {
      if (name == key) return tensor;
    }
    throw td::ValueError("the fixture has no '" + key + "'");
  }
  /// The entries below a prefix, in the order of the file.
  std::vector<std::pair<std::string, Tensor>> below(const std::string& prefix) const {
    std::vector<std::pair<std::string, Tensor>> result;
    for (const auto& [name, tensor] : tensors_) {
      if (name.starts_with(prefix)) result.emplace_back(name.substr(prefix.size()), tensor);
    }
    return result;
  }

 private:
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

void expect_near(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  const auto a = actual.to_vector<double>(), e = expected.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], e[i], 1e-12 * (1 + std::abs(e[i]))) << what << " " << i;
}

void expect_state(const nn::Module& layer, const Fixture& fixture, const std::string& prefix) {
  const auto actual = layer.state_dict().tensors(), expected = fixture.below(prefix);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].first, expected[i].first);
    expect_near(actual[i].second, expected[i].second, actual[i].first);
  }
}

TEST(Parametrize, TrainingEqualsPyTorchs) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const Fixture fixture(c.name);
    const std::unique_ptr<nn::Layer> layer = c.make();
    layer->to(td::kFloat64);
    td::State start;
    for (const auto& [key, tensor] : fixture.below("start/")) start.set(key, tensor);
    layer->load_state_dict(start);
    expect_state(*layer, fixture, "start/");
    td::optim::SGD sgd(layer->parameters(), {.lr = 0.1});
    for (int call = 0; call < 2; ++call) {
      const Tensor x = fixture["input"].clone().requires_grad_();
      layer->zero_grad();
      const Tensor y = (*layer)(x);
      expect_near(y, fixture[td::str("output", call)], "output");
      y.backward(fixture["cotangent"]);
      expect_near(x.grad(), fixture[td::str("input_gradient", call)], "input gradient");
      for (const auto& [key, parameter] : layer->named_parameters())
        expect_near(parameter.grad(), fixture[td::str("gradient", call, "/", key)], "gradient of " + key);
      sgd.step();
    }
    expect_state(*layer, fixture, "end/");
    layer->eval();
    expect_near((*layer)(fixture["input"]), fixture["eval"], "output in evaluation mode");
    expect_state(*layer, fixture, "end/");
  }
}

struct Net : nn::Layer {
  nn::Linear& fc = nn::weight_norm(add<nn::Linear>("fc", 3, 4));
  nn::Linear& head = nn::spectral_norm(add<nn::Linear>("head", 4, 2));
  Tensor forward(const Tensor& input) override { return head(fc(input)); }
};

std::vector<std::string> keys(const std::vector<std::pair<std::string, Tensor>>& named) {
  std::vector<std::string> result;
  for (const auto& [path, tensor] : named) result.push_back(path);
  return result;
}

TEST(Parametrize, OriginalsAreTheParameters) {
  Net net;
  EXPECT_EQ(keys(net.named_parameters()), (std::vector<std::string>{"fc.bias", "fc.parametrizations.weight.original0",
                                                                    "fc.parametrizations.weight.original1", "head.bias",
                                                                    "head.parametrizations.weight.original"}));
  EXPECT_EQ(keys(net.named_buffers()),
            (std::vector<std::string>{"head.parametrizations.weight.0._u", "head.parametrizations.weight.0._v"}));
  for (const auto& [path, parameter] : net.named_parameters()) EXPECT_EQ(td::autograd::leaf(parameter).name, path);
  EXPECT_TRUE(nn::is_parametrized(net.fc, "weight"));
  EXPECT_FALSE(nn::is_parametrized(net.fc, "bias"));
  EXPECT_EQ(net.fc.weight.shape(), td::Shape({4, 3}));
}

TEST(Parametrize, InitialValueIsKeptByWeightNorm) {
  nn::Linear layer(3, 4);
  const auto before = layer.weight.to_vector<float>();
  nn::weight_norm(layer);
  const auto after = layer.weight.to_vector<float>();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_FLOAT_EQ(after[i], before[i]);
}

TEST(Parametrize, ResultHoldsNoGraphBetweenCalls) {
  Net net;
  const Tensor y = net(td::ones({1, 3}));
  EXPECT_TRUE(net.fc.weight.is_leaf());
  EXPECT_FALSE(net.fc.weight.requires_grad());
  y.sum().backward();
  net(td::ones({1, 3})).sum().backward();  // every call computes the weight anew
}

TEST(Parametrize, EarlierCallsCanBeDifferentiatedAfterLaterOnes) {
  Net net;
  const Tensor first = net(td::ones({1, 3}));
  const Tensor second = net(td::ones({1, 3}));
  (first + second).sum().backward();
  EXPECT_TRUE(net.get_parameter("head.parametrizations.weight.original").grad().defined());
}

TEST(Parametrize, FrozenParametersStayFrozen) {
  nn::Linear layer(3, 4);
  layer.requires_grad_(false);
  nn::weight_norm(layer);
  for (const Tensor& parameter : layer.parameters()) EXPECT_FALSE(parameter.requires_grad());
  EXPECT_FALSE(layer(td::ones({1, 3})).requires_grad());
}

TEST(Parametrize, CloneComputesTheSame) {
  td::manual_seed(4);
  Net net;
  net(td::ones({1, 3}));
  const std::unique_ptr<Net> copy = nn::clone(net);
  const auto weight = copy->head.weight.to_vector<float>();
  EXPECT_EQ(weight, net.head.weight.to_vector<float>());
  const Tensor x = td::ones({2, 3});
  EXPECT_EQ((*copy)(x).to_vector<float>(), net(x).to_vector<float>());
  td::optim::SGD sgd(copy->parameters(), {.lr = 0.1});
  (*copy)(x).sum().backward();
  sgd.step();
  EXPECT_NE((*copy)(x).to_vector<float>(), net(x).to_vector<float>());
}

TEST(Parametrize, RemovalMakesAParameterOfTheValue) {
  Net net;
  const auto expected = net(td::ones({1, 3})).to_vector<float>();
  net.eval();
  nn::remove_parametrizations(net.fc, "weight");
  nn::remove_parametrizations(net.head, "weight");
  EXPECT_EQ(keys(net.named_parameters()),
            (std::vector<std::string>{"fc.weight", "fc.bias", "head.weight", "head.bias"}));
  EXPECT_TRUE(net.named_buffers().empty());
  EXPECT_EQ(td::autograd::leaf(net.fc.weight).name, "fc.weight");
  EXPECT_EQ(net(td::ones({1, 3})).to_vector<float>(), expected);
  net(td::ones({1, 3})).sum().backward();
  EXPECT_TRUE(net.fc.weight.grad().defined());
  nn::weight_norm(net.fc);
  EXPECT_TRUE(nn::is_parametrized(net.fc, "weight"));
}

TEST(Parametrize, RemovalMayRestoreTheOriginal) {
  nn::Linear layer(3, 4);
  const Tensor original = layer.weight;
  const auto values = original.to_vector<float>();
  nn::spectral_norm(layer);
  nn::remove_parametrizations(layer, "weight", /*leave_parametrized=*/false);
  EXPECT_TRUE(layer.weight.is_same(original));
  EXPECT_EQ(layer.weight.to_vector<float>(), values);
  EXPECT_EQ(td::autograd::leaf(layer.weight).name, "weight");
}

/// w = original + original^T.
struct Symmetric : nn::Parametrization {
  Tensor forward(const std::vector<Tensor>& originals) override { return originals[0] + originals[0].t(); }
};

TEST(Parametrize, OwnParametrizationsAreTrained) {
  nn::Linear layer(2, 2, {.bias = false});
  nn::register_parametrization(layer, "weight", std::make_unique<Symmetric>());
  layer(td::from_vector<float>({1, 0}, {1, 2})).backward(td::from_vector<float>({0, 1}, {1, 2}));
  EXPECT_EQ(layer.get_parameter("parametrizations.weight.original").grad().to_vector<float>(),
            (std::vector<float>{0, 1, 1, 0}));
}

TEST(Parametrize, SpectralNormOfTransposedConvolutionsUsesTheirSecondDimension) {
  struct ConvTranspose2d : nn::Layer {
    Tensor& weight = add_parameter("weight", td::ones({2, 5, 3, 3}));
    Tensor forward(const Tensor& input) override { return input; }
  } layer;
  nn::spectral_norm(layer);
  EXPECT_EQ(layer.get_buffer("parametrizations.weight.0._u").shape(), td::Shape({5}));
}

TEST(Parametrize, SpectralNormDividesByTheLargestSingularValue) {
  nn::Linear layer(2, 2, {.bias = false});
  layer.load_state_dict([] {
    td::State state;
    state.set("weight", td::from_vector<float>({4, 0, 0, 2}, {2, 2}));
    return state;
  }());
  td::manual_seed(1);
  nn::spectral_norm(layer);
  for (int i = 0; i < 20; ++i) layer(td::ones({1, 2}));
  const auto weight = layer.weight.to_vector<float>();
  EXPECT_NEAR(weight[0], 1, 1e-5);
  EXPECT_NEAR(weight[3], 0.5, 1e-5);
}

TEST(Parametrize, InvalidArgumentsAreRejected) {
  Net net;
  nn::Linear layer(3, 4);
  EXPECT_ERROR(td::ValueError, nn::weight_norm(net.fc),
               "register_parametrization: 'weight' of Linear 'fc' is parametrized already");
  EXPECT_ERROR(td::ValueError, nn::weight_norm(layer, "scale"),
               "register_parametrization: Linear has no parameter 'scale', its parameters are 'weight', 'bias'");
  EXPECT_ERROR(td::ValueError, nn::register_parametrization(layer, "weight", nullptr),
               "register_parametrization: the parametrization is null");
  EXPECT_ERROR(td::ValueError, nn::spectral_norm(layer, "weight", 0),
               "spectral_norm: n_power_iterations is 0, expected at least 1");
  EXPECT_THROW(nn::spectral_norm(layer, "weight", 1, 1e-12, 2), td::IndexError);
  EXPECT_THROW(nn::weight_norm(layer, "weight", 2), td::IndexError);
  EXPECT_ERROR(td::ValueError, nn::remove_parametrizations(layer, "weight"),
               "remove_parametrizations: 'weight' of Linear is not parametrized");
  EXPECT_ERROR(td::ValueError, nn::remove_parametrizations(net.fc, "weight", false),
               "remove_parametrizations: 'weight' is computed from 2 originals; pass leave_parametrized = true");
  EXPECT_EQ(keys(layer.named_parameters()), (std::vector<std::string>{"weight", "bias"}));
}

TEST(Parametrize, FrozenStructureIsRejected) {
  Net net;
  nn::Linear& plain = net.add<nn::Linear>("plain", 1, 1);
  const td::HookHandle frozen = net.freeze_structure("it is trained");
  EXPECT_ERROR(td::StateError, nn::weight_norm(plain),
               "register_parametrization: the structure of Net is fixed while it is trained");
  EXPECT_ERROR(td::StateError, nn::remove_parametrizations(net.fc, "weight"),
               "remove_parametrizations: the structure of Net is fixed while it is trained");
  net(td::ones({1, 3})).sum().backward();
}

TEST(Parametrize, FailedRegistrationChangesNothing) {
  struct Failing : nn::Parametrization {
    Tensor forward(const std::vector<Tensor>&) override { throw td::ValueError("Failing: as planned"); }
  };
  struct OtherShape : nn::Parametrization {
    Tensor forward(const std::vector<Tensor>& originals) override { return originals[0].sum(); }
  };
  nn::Linear layer(2, 2);
  EXPECT_THROW(nn::weight_norm(layer, "weight", 5), td::IndexError);
  EXPECT_ERROR(td::ValueError, nn::register_parametrization(layer, "weight", std::make_unique<Failing>()),
               "Failing: as planned");
  EXPECT_ERROR(td::ShapeError, nn::register_parametrization(layer, "weight", std::make_unique<OtherShape>()),
               "register_parametrization: OtherShape returned float32 [] on cpu for float32 [2, 2] on cpu");
  EXPECT_FALSE(nn::is_parametrized(layer, "weight"));
  EXPECT_EQ(keys(layer.named_parameters()), (std::vector<std::string>{"weight", "bias"}));
  nn::weight_norm(layer);
  EXPECT_TRUE(nn::is_parametrized(layer, "weight"));
}

TEST(SpectralNorm, LayerInEvaluationModeKeepsItsVectors) {
  nn::Linear layer(4, 4);
  layer.eval();
  nn::spectral_norm(layer);
  const auto before = layer.get_buffer("parametrizations.weight.0._u").to_vector<float>();
  layer(td::ones({1, 4}));
  EXPECT_EQ(layer.get_buffer("parametrizations.weight.0._u").to_vector<float>(), before);
}

TEST(SpectralNorm, CheckpointHasTheSameBits) {
  const auto run = [](bool checkpoint) {
    td::manual_seed(3);
    nn::Linear layer(8, 8);
    nn::spectral_norm(layer);
    const Tensor x = td::randn({4, 8});
    (checkpoint ? nn::checkpoint(layer, x) : layer(x)).sum().backward();
    std::vector<float> result = layer.get_parameter("parametrizations.weight.original").grad().to_vector<float>();
    for (const float u : layer.get_buffer("parametrizations.weight.0._u").to_vector<float>()) result.push_back(u);
    return result;
  };
  EXPECT_EQ(run(true), run(false));
}

// Backward of the first call would use the buffers of the second one.
TEST(SpectralNorm, SecondCallBeforeBackwardOfACheckpointIsRejected) {
  nn::Linear layer(8, 8);
  nn::spectral_norm(layer);
  const Tensor real = nn::checkpoint(layer, td::randn({4, 8})), fake = nn::checkpoint(layer, td::randn({4, 8}));
  EXPECT_ERROR(
      td::StateError, (real - fake).sum().backward(),
      "checkpoint: a tensor that the function uses was changed in place after the call, but backward needs its value");
  layer.eval();
  const Tensor first = nn::checkpoint(layer, td::randn({4, 8})), second = nn::checkpoint(layer, td::randn({4, 8}));
  EXPECT_NO_THROW((first - second).sum().backward());
}

}  // namespace
