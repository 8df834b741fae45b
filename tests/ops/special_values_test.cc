// Elementwise operations at zeros, infinities, NaN, subnormal and the largest numbers, compared with PyTorch 2.15:
// values, gradients and second gradients. tools/fixtures/make_fixtures.py writes the fixture.
#include <tandem/io/safetensors.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

constexpr double kCotangent = -1.5;

using In = std::vector<Tensor>;

struct Operation {
  std::string name;       ///< in the fixture
  std::string arguments;  ///< one letter each
  std::function<Tensor(const In&)> run;
};

std::vector<Operation> operations() {
  std::vector<Operation> list = {
      {"neg", "x", [](const In& in) { return neg(in[0]); }},
      {"exp", "x", [](const In& in) { return exp(in[0]); }},
      {"log", "x", [](const In& in) { return log(in[0]); }},
      {"relu", "x", [](const In& in) { return relu(in[0]); }},
      {"sqrt", "x", [](const In& in) { return sqrt(in[0]); }},
      {"rsqrt", "x", [](const In& in) { return rsqrt(in[0]); }},
      {"tanh", "x", [](const In& in) { return tanh(in[0]); }},
      {"sigmoid", "x", [](const In& in) { return sigmoid(in[0]); }},
      {"silu", "x", [](const In& in) { return silu(in[0]); }},
      {"gelu", "x", [](const In& in) { return gelu(in[0]); }},
      {"gelu_tanh", "x", [](const In& in) { return gelu(in[0], GeluApproximation::kTanh); }},
      {"clamp", "x", [](const In& in) { return clamp(in[0], -1, 0.5); }},
      {"clamp_min", "x", [](const In& in) { return clamp(in[0], 0); }},
      {"clamp_max", "x", [](const In& in) { return clamp(in[0], {}, 0); }},
      {"clamp_crossed", "x", [](const In& in) { return clamp(in[0], 1, -1); }},
      {"add", "ab", [](const In& in) { return add(in[0], in[1]); }},
      {"sub", "ab", [](const In& in) { return sub(in[0], in[1]); }},
      {"mul", "ab", [](const In& in) { return mul(in[0], in[1]); }},
      {"div", "ab", [](const In& in) { return div(in[0], in[1]); }},
      {"pow", "ab", [](const In& in) { return pow(in[0], in[1]); }},
  };
  for (const auto& [text, exponent] : std::map<std::string, double>{{"0", 0},
                                                                    {"0.5", 0.5},
                                                                    {"-0.5", -0.5},
                                                                    {"1", 1},
                                                                    {"2", 2},
                                                                    {"3", 3},
                                                                    {"-1", -1},
                                                                    {"-2", -2},
                                                                    {"2.5", 2.5}}) {
    list.push_back({"pow(" + text + ")", "x", [exponent](const In& in) { return pow(in[0], exponent); }});
  }
  return list;
}

/// The value of an operation and its derivatives, named as in the fixture. Gradients come from kernels, or recorded.
std::map<std::string, Tensor> derivatives(const Operation& op, const In& arguments, bool recorded) {
  const size_t count = arguments.size();
  std::map<std::string, Tensor> result;
  In leaves;
  for (const Tensor& argument : arguments) leaves.push_back(argument.detach().requires_grad_());
  const Tensor value[] = {op.run(leaves)};
  result[""] = value[0].detach();
  const Tensor cotangents[] = {full(value[0].shape(), kCotangent, value[0].options())};
  const In plain = grad(value, leaves, cotangents, {.retain_graph = true});
  const In first = grad(value, leaves, cotangents, {.create_graph = true});
  for (size_t i = 0; i < count; ++i) {
    const std::string part = std::string(".") + op.arguments[i];
    result[part] = recorded ? first[i].detach() : plain[i];
    In second(count);
    if (first[i].requires_grad()) {
      const Tensor gradient[] = {first[i]}, ones[] = {ones_like(first[i])};
      second = grad(gradient, leaves, ones, {.retain_graph = true});
    }
    for (size_t k = i; k < count; ++k) {
      result[part + op.arguments[k]] = second[k].defined() ? second[k] : zeros_like(leaves[k]);
    }
  }
  return result;
}

/// The expected number: PyTorch's, or that of tandem if they differ (see "Differences" in docs/from_pytorch.md).
double expected_number(const Operation& op, const std::string& part, const std::vector<double>& at, double pytorch) {
  const bool is_limit = op.name == "silu" || op.name.starts_with("gelu");
  if (is_limit && std::abs(at[0]) >= 10000 && !std::isfinite(pytorch)) {
    if (part == "") return at[0] > 0 ? at[0] : -0.0;
    return part == ".x" && at[0] > 0 ? kCotangent : 0;
  }
  if (op.name == "pow" && part == ".bb" && at[0] == 0 && at[1] >= 0) return 0;
  const bool is_root = op.name == "pow(0.5)" || op.name == "pow(-0.5)" || op.name == "pow(2.5)";
  if (is_root && (at[0] == 0 || at[0] == -INFINITY)) {
    const double e = std::stod(op.name.substr(4));
    if (part == "") return std::pow(at[0], e);
    return kCotangent * (part == ".x" ? e * std::pow(at[0], e - 1) : e * (e - 1) * std::pow(at[0], e - 2));
  }
  return pytorch;
}

/// Whether both are NaN, the same infinity, or zeros of the same sign; other numbers must agree roughly, because
/// precision is tested elsewhere.
bool agrees(double actual, double expected, double rounding) {
  if (std::isnan(expected) || std::isnan(actual)) return std::isnan(expected) && std::isnan(actual);
  if (std::isinf(expected) || std::isinf(actual)) return actual == expected;
  return std::abs(actual - expected) <= 8 * rounding * (1 + std::abs(expected));
}

TEST(SpecialValues, ValuesAndDerivativesMatchPyTorch) {
  std::map<std::string, Tensor> fixture;
  for (auto& [name, tensor] : io::load_safetensors("tests/fixtures/special_values.safetensors").tensors) {
    fixture.emplace(name, std::move(tensor));
  }
  size_t num_used = 3 * floating_dtypes().size();  // the arguments
  for (const Operation& op : operations()) {
    for (const DType dtype : floating_dtypes()) {
      In arguments;
      std::vector<std::vector<double>> numbers;
      for (const char letter : op.arguments) {
        numbers.push_back(fixture.at(str(letter, ".", dtype)).to_vector<double>());
        arguments.push_back(fixture.at(str(letter, ".", dtype)).to(test_device()));
      }
      for (const bool recorded : {false, true}) {
        for (const auto& [part, tensor] : derivatives(op, arguments, recorded)) {
          num_used += recorded ? 0 : 1;
          const std::vector<double> actual = tensor.to_vector<double>();
          const std::vector<double> pytorch = fixture.at(str(op.name, ".", dtype, part)).to_vector<double>();
          ASSERT_EQ(actual.size(), pytorch.size());
          for (size_t i = 0; i < actual.size(); ++i) {
            std::vector<double> at;
            for (const std::vector<double>& values : numbers) at.push_back(values[i]);
            const double expected = expected_number(op, part, at, pytorch[i]);
            const bool same_sign =
                part != "" || expected != 0 || actual[i] != 0 || std::signbit(actual[i]) == std::signbit(expected);
            EXPECT_TRUE(agrees(actual[i], expected, epsilon(dtype)) && same_sign)
                << op.name << part << (recorded ? " recorded " : " ") << dtype << " at " << at[0] << " " << at.back()
                << " is " << actual[i] << ", expected " << expected;
          }
        }
      }
    }
  }
  EXPECT_EQ(num_used, fixture.size());
}

}}  // namespace tandem::testing
