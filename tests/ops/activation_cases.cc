#include <tandem/tests/ops/activation_reference.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

using namespace activation;

OpCase case_of(const Activation& activation, const Shape& shape) {
  OpCase op;
  op.name = activation.name;
  op.inputs = {{"input", shape, -4, 4}};
  op.run = [run = activation.run](const std::vector<Tensor>& in) { return run(in[0]); };
  op.reference = elementwise([exact = activation.exact](double x) { return static_cast<double>(exact(x)); });
  return op;
}

OpCase one_tensor(const Shape& shape, std::function<Tensor(const Tensor&)> run, std::function<double(double)> f) {
  return {.inputs = {{"input", shape, -4, 4}},
          .run = [run](const Tensors& x) { return run(x[0]); },
          .reference = elementwise(std::move(f)),
          .tolerance = 8};
}

double log1p_exp(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

// The hidden layer of a transformer: 16 sequences of 128 positions.
TensorList hidden() { return {randn({16, 128, 512})}; }

}  // namespace

TANDEM_OP_CASES(activation) {
  const std::pair<const char*, const char*> declarations[] = {
      {"gelu", "Tensor gelu(Tensor input, GeluApproximation approximation = GeluApproximation::kNone)"},
      {"silu", "Tensor silu(Tensor input)"},
      {"tanh", "Tensor tanh(Tensor input)"},
      {"sigmoid", "Tensor sigmoid(Tensor input)"}};
  for (const auto& [name, declaration] : declarations) {
    std::vector<OpCase> list;
    for (const Activation& activation : activations()) {
      if (activation.name != std::string(name)) continue;
      for (const Shape& shape : {Shape{3, 7}, Shape{3, 33}, Shape{2, 3, 7}, Shape{}, Shape{0, 3}, Shape{1}}) {
        list.push_back(case_of(activation, shape));
      }
    }
    cases.op(declaration, CastPolicy::kWidest, list);
  }

  for (const Activation& activation : activations()) {
    const OpCase op = case_of(activation, {3, 32769});
    cases.add(op, kValues | kThreads);
  }

  struct {
    const char* name;
    const char* declaration;
    Tensor (*run)(const Tensor&);
    double (*f)(double);
    CastPolicy policy = CastPolicy::kWidest;
  } const functions[] = {
      {"leaky_relu", "Tensor leaky_relu(Tensor input, double negative_slope = 0.01)",
       [](const Tensor& x) { return leaky_relu(x, 0.2); }, [](double x) { return x > 0 ? x : 0.2 * x; }},
      {"elu", "Tensor elu(Tensor input, double alpha = 1)", [](const Tensor& x) { return elu(x, 0.75); },
       [](double x) { return x > 0 ? x : 0.75 * std::expm1(x); }},
      {"celu", "Tensor celu(Tensor input, double alpha = 1)", [](const Tensor& x) { return celu(x, 0.75); },
       [](double x) { return x > 0 ? x : 0.75 * std::expm1(x / 0.75); }},
      {"selu", "Tensor selu(Tensor input)", [](const Tensor& x) { return selu(x); },
       [](double x) { return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x)); }},
      {"softplus", "Tensor softplus(Tensor input, double beta = 1, double threshold = 20)",
       [](const Tensor& x) { return softplus(x, 2, 4); }, [](double x) { return 2 * x > 4 ? x : log1p_exp(2 * x) / 2; },
       CastPolicy::kFloat32},
      {"logsigmoid", "Tensor logsigmoid(Tensor input)", [](const Tensor& x) { return logsigmoid(x); },
       [](double x) { return -log1p_exp(-x); }},
      {"mish", "Tensor mish(Tensor input)", [](const Tensor& x) { return mish(x); },
       [](double x) { return x * std::tanh(log1p_exp(x)); }},
      {"hardswish", "Tensor hardswish(Tensor input)", [](const Tensor& x) { return hardswish(x); },
       [](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; }},
      {"hardsigmoid", "Tensor hardsigmoid(Tensor input)", [](const Tensor& x) { return hardsigmoid(x); },
       [](double x) { return std::clamp(x + 3, 0.0, 6.0) / 6; }},
      {"hardtanh", "Tensor hardtanh(Tensor input, double min_val = -1, double max_val = 1)",
       [](const Tensor& x) { return hardtanh(x, -2, 0.5); }, [](double x) { return std::clamp(x, -2.0, 0.5); }},
      {"relu6", "Tensor relu6(Tensor input)", [](const Tensor& x) { return relu6(x); },
       [](double x) { return std::clamp(x, 0.0, 6.0); }},
      {"softsign", "Tensor softsign(Tensor input)", [](const Tensor& x) { return softsign(x); },
       [](double x) { return x / (1 + std::abs(x)); }},
  };
  for (const auto& [name, declaration, run, f, policy] : functions) {
    std::vector<OpCase> list;
    for (const Shape& shape : {Shape{3, 7}, Shape{33}, Shape{}, Shape{0, 3}}) {
      list.push_back(one_tensor(shape, run, f));
      list.back().name = name;
      list.back().terms = 2;
    }
    cases.op(declaration, policy, list);
    cases.benchmark(name, hidden, [run](const TensorList& in) { return run(in[0]); });
  }

  OpCase prelu_case{
      .inputs = {{"input", {2, 3, 5}, -4, 4}, {"weight", {3}}},
      .run = [](const Tensors& x) { return prelu(x[0], x[1]); },
      .reference =
          [](const std::vector<Dense>& in) {
            const Dense weight{{in[1].numel(), 1}, in[1].values};
            return dense_map(in[0].shape, {in[0], weight}, [](const auto& v) { return v[0] > 0 ? v[0] : v[0] * v[1]; });
          },
      .tolerance = 8,
      .terms = 10};
  OpCase one_slope = prelu_case;
  one_slope.inputs = {{"input", {3, 7}, -4, 4}, {"weight", {1}}};
  cases.op("Tensor prelu(Tensor input, Tensor weight)", CastPolicy::kLowPrecision, {prelu_case, one_slope});
  cases.benchmark(
      "prelu",
      [] {
        return TensorList{randn({32, 64, 28, 28}), rand({64})};
      },
      [](const TensorList& in) { return prelu(in[0], in[1]); });

  const auto glu_case = [](int64_t dim) {
    OpCase op = one_tensor(
        {4, 6}, [dim](const Tensor& x) { return glu(x, dim); }, nullptr);
    op.reference = [dim](const std::vector<Dense>& in) {
      Dense result = dense_zeros(dim == 0 ? Shape{2, 6} : Shape{4, 3});
      const int64_t columns = result.shape[1], step = dim == 0 ? 12 : 3;
      for (int64_t i = 0; i < result.numel(); ++i) {
        const int64_t at = i / columns * 6 + i % columns;
        result[i] = in[0][at] / (1 + std::exp(-in[0][at + step]));
      }
      return result;
    };
    return op;
  };
  cases.op("Tensor glu(Tensor input, int64_t dim = -1)", CastPolicy::kWidest, {glu_case(-1), glu_case(0)});
  cases.benchmark("glu", hidden, [](const TensorList& in) { return glu(in[0]); });

  OpCase gumbel{.name = "gumbel_softmax", .inputs = {{"logits", {3, 7}}}, .run = [](const Tensors& x) {
                  Generator generator(5);
                  return gumbel_softmax(x[0], 0.75, false, 1, &generator);
                }};
  cases.op(
      "Tensor gumbel_softmax(Tensor logits, double tau = 1, bool hard = false, int64_t dim = -1, "
      "Generator* generator = nullptr)",
      CastPolicy::kFloat32, {gumbel});
  cases.benchmark("gumbel_softmax", hidden, [](const TensorList& in) { return gumbel_softmax(in[0]); });
}

}  // namespace tandem::testing
