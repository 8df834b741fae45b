// Compares options and trajectories of all optimizers with PyTorch's (tools/fixtures/make_fixtures.py).

#include <tandem/io/safetensors.h>
#include <tandem/tests/optim/gradients.h>
#include <tandem/tests/optim/optimizers.h>

namespace tandem::testing { namespace {

constexpr int64_t kNoGradient = 2;  // the step without gradient

template <class Cases>
struct PyTorchOptimizer : ::testing::Test {
  PyTorchOptimizer() {
    const std::string path = str("tests/fixtures/", Cases::kName, ".safetensors");
    for (auto& [name, tensor] : io::load_safetensors(path).tensors) tensors.emplace(name, tensor);
  }

  std::map<std::string, Tensor> tensors;
};
TYPED_TEST_SUITE(PyTorchOptimizer, AllOptimizers, OptimizerName);

/// Expects that 200 steps with the gradients in the file give the parameters and states in the file.
template <class T, class Cases>
void expect_trajectory(const std::map<std::string, Tensor>& tensors, size_t c, double tolerance) {
  const auto start = tensors.at("start").to_vector<T>();
  const auto gradients = tensors.at("gradients").to_vector<T>();
  const std::string prefix = str(c, ".", dtype_of<T>(), ".");
  const auto expected = tensors.at(prefix + "parameter").to_vector<double>();
  const auto recorded = tensors.at("recorded").to_vector<int64_t>();
  const auto n = static_cast<int64_t>(start.size());
  const Tensor p = parameter<T>(start, {n});
  typename Cases::Optimizer optimizer({p}, Cases::options()[c]);
  size_t row = 0;
  for (int64_t step = 0; step * n < static_cast<int64_t>(gradients.size()); ++step) {
    const auto begin = gradients.begin() + step * n;
    optimizer.zero_grad();
    if (step != kNoGradient) set_gradient(p, from_vector<T>({begin, begin + n}, {n}));
    optimizer.step();
    if (step != recorded[row]) continue;
    const auto values = p.to_vector<double>();
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(values[i], expected[row * values.size() + i], tolerance) << prefix << step << " " << i;
    ++row;
  }
  EXPECT_EQ(row, recorded.size());
  size_t num_state = 0;
  for (const auto& [name, tensor] : tensors) num_state += name.starts_with(prefix + "state.") ? 1 : 0;
  const State state = static_cast<optim::Optimizer&>(optimizer).state_dict().get<State>("state.0");
  for (const auto& [name, value] : state.entries()) {
    const Tensor& theirs = tensors.at(prefix + "state." + name);
    if (name == "step") {
      EXPECT_EQ(static_cast<double>(std::get<int64_t>(value)), theirs.to_vector<double>()[0]);
      continue;
    }
    const auto ours = std::get<Tensor>(value).template to_vector<double>();
    for (size_t i = 0; i < ours.size(); ++i) {
      const double value_of_pytorch = theirs.to_vector<double>()[i];
      EXPECT_NEAR(ours[i], value_of_pytorch, tolerance * std::max(1.0, std::abs(value_of_pytorch))) << prefix << name;
    }
  }
  EXPECT_EQ(state.entries().size(), num_state) << prefix;
}

TYPED_TEST(PyTorchOptimizer, TrajectoriesAreEqual) {
  for (size_t c = 0; c < TypeParam::options().size(); ++c) {
    expect_trajectory<double, TypeParam>(this->tensors, c, 2e-15);
    expect_trajectory<float, TypeParam>(this->tensors, c, 1e-6);
  }
  EXPECT_EQ(this->tensors.count(str(TypeParam::options().size(), ".options.lr")), 0u);
}

TYPED_TEST(PyTorchOptimizer, OptionsHaveTheirNamesAndDefaults) {
  for (size_t c = 0; c < TypeParam::options().size(); ++c) {
    const typename TypeParam::Optimizer optimizer({parameter<float>({1}, {1})}, TypeParam::options()[c]);
    const State options = optimizer.state_dict().template get<State>("groups.0");
    for (const auto& [name, value] : options.entries()) {
      if (name == "num_parameters") continue;
      const double* const number = std::get_if<double>(&value);
      EXPECT_EQ(number != nullptr ? *number : std::get<bool>(value),
                this->tensors.at(str(c, ".options.", name)).template to_vector<double>()[0])
          << c << " " << name;
    }
  }
}

}}  // namespace tandem::testing
