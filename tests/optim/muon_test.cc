#include <tandem/optim/muon.h>

#include <tandem/io/safetensors.h>
#include <tandem/tests/optim/gradients.h>

namespace tandem::testing { namespace {

using optim::Muon;
using optim::MuonOptions;

/// The cases of tests/fixtures/Muon.safetensors.
struct Case {
  Shape shape;
  MuonOptions options;
};
const std::vector<Case> kCases = {
    {{3, 4}, {}},
    {{4, 3}, {.lr = 0.01, .weight_decay = 0, .nesterov = false}},
    {{2, 6}, {.momentum = 0.5, .adjust_lr_fn = "match_rms_adamw"}},
    {{6, 2}, {.ns_coefficients = {2, -1.5, 0.5}, .ns_steps = 12, .adjust_lr_fn = "spectral_unclamped"}}};

/// Steps are orthogonal matrices whose values have an error of up to 2^-7, because bfloat16 products round in another
/// order than PyTorch's, times the learning rate; 200 such errors add up.
template <class T>
void expect_trajectory(const std::map<std::string, Tensor>& tensors, size_t c) {
  const auto& [shape, options] = kCases[c];
  const auto start = tensors.at("start").to_vector<T>(), gradients = tensors.at("gradients").to_vector<T>();
  const auto recorded = tensors.at("recorded").to_vector<int64_t>();
  const std::string prefix = str(c, ".", dtype_of<T>(), ".");
  const auto expected = tensors.at(prefix + "parameter").to_vector<double>();
  const Tensor p = parameter<T>(start, shape);
  Muon optimizer({p}, options);
  size_t row = 0;
  for (int64_t step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    const auto begin = gradients.begin() + step * 12;
    if (step != 2) set_gradient(p, from_vector<T>({begin, begin + 12}, shape));  // one step has no gradient
    optimizer.step();
    if (step != recorded[row]) continue;
    const auto values = p.to_vector<double>();
    const double tolerance = options.lr * static_cast<double>(step + 1) / 64;
    for (size_t i = 0; i < 12; ++i) EXPECT_NEAR(values[i], expected[row * 12 + i], tolerance) << c << " " << step;
    ++row;
  }
  EXPECT_EQ(row, recorded.size());
  const auto buffer =
      static_cast<optim::Optimizer&>(optimizer).state_dict().get<Tensor>("state.0.momentum_buffer").to_vector<double>();
  const auto theirs = tensors.at(prefix + "state.momentum_buffer").to_vector<double>();
  const double exact = sizeof(T) == 8 ? 1e-14 : 1e-6;
  for (size_t i = 0; i < 12; ++i) EXPECT_NEAR(buffer[i], theirs[i], exact) << c;
}

TEST(Muon, TrajectoriesAreCloseToPyTorchs) {
  std::map<std::string, Tensor> tensors;
  for (auto& [name, tensor] : io::load_safetensors("tests/fixtures/Muon.safetensors").tensors)
    tensors.emplace(name, tensor);
  for (size_t c = 0; c < kCases.size(); ++c) {
    expect_trajectory<double>(tensors, c);
    expect_trajectory<float>(tensors, c);
  }
}

Tensor waves(const Shape& shape, double phase) {
  std::vector<float> values;
  for (int64_t i = 0; i < num_elements(shape); ++i)
    values.push_back(static_cast<float>(std::sin(phase + static_cast<double>(i * i))));
  return from_vector<float>(values, shape, {kFloat32, test_device()});
}

TEST(Muon, StepsAreAlmostOrthogonal) {
  for (const Shape& shape : {Shape{20, 50}, Shape{50, 20}}) {
    const Tensor p = zeros(shape, {kFloat32, test_device()}).requires_grad_();
    Muon optimizer({p}, {.lr = 1,
                         .weight_decay = 0,
                         .ns_coefficients = {1.875, -1.25, 0.375},
                         .ns_steps = 20,
                         .adjust_lr_fn = "spectral_unclamped"});
    set_gradient(p, waves(shape, 1));
    optimizer.step();
    const Tensor x = shape[0] < shape[1] ? p.detach() : p.detach().t();
    const auto gram = matmul(x, x.t()).to_vector<float>();
    const double scale = static_cast<double>(shape[0]) / static_cast<double>(shape[1]);
    for (size_t i = 0; i < gram.size(); ++i) EXPECT_NEAR(gram[i] / scale, i % 21 == 0 ? 1 : 0, 0.03) << i;
  }
}

TEST(Muon, HalvesHaveMasters) {
  const Tensor wide = parameter<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor half = zeros({2, 3}, {kBFloat16, test_device()}).requires_grad_();
  primitives::copy(wide.detach(), half.detach());
  Muon reference({wide}, {.maximize = true}), optimizer({half}, {.maximize = true});
  for (int step = 0; step < 4; ++step) {
    const Tensor gradient = waves({2, 3}, step).to(kBFloat16);
    set_gradient(wide, gradient);
    set_gradient(half, gradient);
    reference.step();
    optimizer.step();
  }
  EXPECT_EQ(static_cast<optim::Optimizer&>(optimizer).state_dict().get<Tensor>("state.0.master").to_vector<float>(),
            wide.to_vector<float>());
  EXPECT_EQ(half.to_vector<float>(), wide.detach().to(kBFloat16).to_vector<float>());
}

TEST(Muon, LoadedStateContinuesWithTheSameBits) {
  const Tensor p = parameter<float>({1, 2, 3, 4, 5, 6}, {2, 3}), q = parameter<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  Muon optimizer({p}, {.lr = 0.1, .ns_coefficients = {2, -1.5, 0.5}, .adjust_lr_fn = "match_rms_adamw"}), restored({q});
  set_gradient(p, waves({2, 3}, 1));
  optimizer.step();
  restored.load_state_dict(static_cast<optim::Optimizer&>(optimizer).state_dict());
  primitives::copy(p.detach(), q.detach());
  for (const Tensor& x : {p, q}) set_gradient(x, waves({2, 3}, 2));
  optimizer.step();
  restored.step();
  EXPECT_EQ(p.to_vector<float>(), q.to_vector<float>());
}

TEST(Muon, WrongArgumentsAreRejected) {
  const Tensor p = parameter<float>({1, 2}, {2}), matrix = parameter<float>({1}, {1, 1});
  EXPECT_ERROR(ValueError, Muon({p}), "Muon: parameter 0 is [2], expected 2 dimensions");
  const auto text = [&](MuonOptions options) { return error_text<ValueError>([&] { Muon({matrix}, options); }); };
  EXPECT_EQ(text({.momentum = 1}), "Muon: momentum is 1, expected 0 <= momentum < 1");
  EXPECT_EQ(text({.ns_coefficients = {1, NAN, 1}}), "Muon: ns_coefficients.1 is nan, expected a finite number");
  EXPECT_EQ(text({.ns_steps = 100}), "Muon: ns_steps is 100, expected 0 <= ns_steps < 100");
  EXPECT_EQ(text({.adjust_lr_fn = "none"}),
            "Muon: adjust_lr_fn is 'none', expected 'original' or 'match_rms_adamw' or 'spectral_unclamped'");
}

TEST(Muon, IntegerOptionsAreSetToIntegersOnly) {
  Muon muon({parameter<float>({1}, {1, 1})});
  muon.set_option(0, "ns_steps", 3);
  for (const double value : {2.7, static_cast<double>(NAN), static_cast<double>(INFINITY), 0x1p63, -0x1p70}) {
    EXPECT_ERROR(ValueError, muon.set_option(0, "ns_steps", value),
                 str("Muon: ns_steps is ", value, ", expected an integer"));
  }
  EXPECT_ERROR(ValueError, muon.set_option(0, "ns_steps", -0x1p63),
               "Muon: ns_steps is -9.22337e+18, expected 0 <= ns_steps < 100");
  EXPECT_ERROR(ValueError, muon.set_option(0, "nesterov", 0.5), "Muon: nesterov is 0.5, expected 0 or 1");
  EXPECT_EQ(muon.groups()[0].options.ns_steps, 3);
  EXPECT_TRUE(muon.groups()[0].options.nesterov);
}

}}  // namespace tandem::testing
