#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

using Binary = std::function<Tensor(const Tensor&, const Tensor&)>;

/// A function of two tensors; the second has values in [low, 2).
std::vector<OpCase> binary(const char* name, const Binary& run, const std::function<double(double, double)>& f,
                           double low = -2, const char* first = "input", const char* second = "other") {
  const std::pair<Shape, Shape> shapes[] = {{{3, 7}, {7}},       {{3, 7}, {3, 7}}, {{2, 31}, {31}},
                                            {{5, 1, 3}, {4, 1}}, {{}, {7}},        {{0, 3}, {3}}};
  std::vector<OpCase> cases;
  for (const auto& [a, b] : shapes) {
    cases.push_back({.name = name,
                     .inputs = {{first, a, -4, 4}, {second, b, low, 2}},
                     .run = [run](const Tensors& x) { return run(x[0], x[1]); },
                     .reference = elementwise(f),
                     .tolerance = 8,
                     .broadcasts = true});
  }
  return cases;
}

OpCase with_number(const char* name, std::function<Tensor(const Tensor&)> run, std::function<double(double)> f,
                   const char* input = "input") {
  return {.name = name,
          .inputs = {{input, {3, 7}, -4, 4}},
          .run = [run](const Tensors& x) { return run(x[0]); },
          .reference = elementwise(std::move(f)),
          .tolerance = 8};
}

/// Integers that fill all bits but the highest ones: f(input, other), or f(input, 13).
OpCase bits(const std::string& name, bool has_other, std::function<Tensor(const Tensors&)> run,
            std::function<int64_t(int64_t, int64_t)> f) {
  OpCase op{.name = name,
            .inputs = {{"input", {3, 7}, -100, 100, kInt64}},
            .run = [run](const Tensors& x) { return run(x); },
            .reference = elementwise([f](double a) { return static_cast<double>(f(static_cast<int64_t>(a), 13)); }),
            .dtypes = {kInt64},
            .result_dtype = kInt64,
            .has_gradient = false,
            .broadcasts = true};
  if (has_other) {
    op.inputs.push_back({"other", {7}, -100, 100, kInt32});
    op.reference = elementwise(
        [f](double a, double b) { return static_cast<double>(f(static_cast<int64_t>(a), static_cast<int64_t>(b))); });
  }
  return op;
}

/// The overloads of a bitwise function, and of its operator.
template <class Run, class Operator>
void add_bitwise(OpCases& cases, const std::string& name, const std::string& sign, Run run, Operator op) {
  const auto add = [&](const std::string& declaration, bool has_other, auto f) {
    cases.op("Tensor " + declaration, CastPolicy::kWidest, {bits(name, has_other, f, op)});
  };
  add(name + "(Tensor input, Tensor other)", true, [run](const Tensors& x) { return run(x[0], x[1]); });
  add(name + "(Tensor input, Scalar other)", false, [run](const Tensors& x) { return run(x[0], 13); });
  if constexpr (requires(Tensor x) { op(x, x); }) {
    const std::string word = "operator" + sign;
    add(word + "(const Tensor& a, const Tensor& b)", true, [=](const Tensors& x) { return op(x[0], x[1]); });
    add(word + "(const Tensor& a, Scalar b)", false, [=](const Tensors& x) { return op(x[0], 13); });
    add(word + "(Scalar a, const Tensor& b)", false, [=](const Tensors& x) { return op(13, x[0]); });
  }
}

double floored(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace

TANDEM_OP_CASES(pair) {
  const auto wide = CastPolicy::kWidest;
  struct Function {
    const char* name;
    Tensor (*run)(Tensor, Tensor);
    double (*f)(double, double);
    double low = -2;
  };
  const Function functions[] = {
      {"maximum", maximum, [](double a, double b) { return std::max(a, b); }},
      {"minimum", minimum, [](double a, double b) { return std::min(a, b); }},
      {"fmod", fmod, std::fmod, 0.5},
      {"remainder", remainder, floored, 0.5},
      {"floor_divide", floor_divide, [](double a, double b) { return std::floor(a / b); }, 0.5},
      {"logaddexp", logaddexp, [](double a, double b) { return std::log(std::exp(a) + std::exp(b)); }},
      {"xlogy", xlogy, [](double a, double b) { return a * std::log(b); }, 0.5},
      {"atan2", atan2, std::atan2, 0.5},
  };
  const auto two = [] { return TensorList{randn({128, 32, 24, 24}), rand({128, 32, 24, 24}) + 0.5}; };
  for (const Function& function : functions) {
    cases.op(str("Tensor ", function.name, "(Tensor input, Tensor other)"), wide,
             binary(function.name, function.run, function.f, function.low));
    cases.benchmark(function.name, two, [run = function.run](const TensorList& in) { return run(in[0], in[1]); });
  }
  cases.op("Tensor max(const Tensor& input, const Tensor& other)", wide,
           binary(
               "maximum", [](const Tensor& a, const Tensor& b) { return max(a, b); }, functions[0].f));
  cases.op("Tensor min(const Tensor& input, const Tensor& other)", wide,
           binary(
               "minimum", [](const Tensor& a, const Tensor& b) { return min(a, b); }, functions[1].f));
  cases.op("Tensor fmod(Tensor input, Scalar other)", wide,
           {with_number(
               "fmod", [](const Tensor& x) { return fmod(x, -1.5); }, [](double x) { return std::fmod(x, -1.5); })});
  cases.op(
      "Tensor remainder(Tensor input, Scalar other)", wide,
      {with_number(
          "remainder", [](const Tensor& x) { return remainder(x, -1.5); }, [](double x) { return floored(x, -1.5); })});
  cases.op("Tensor floor_divide(Tensor input, Scalar other)", wide,
           {with_number(
               "floor_divide", [](const Tensor& x) { return floor_divide(x, -1.5); },
               [](double x) { return std::floor(x / -1.5); })});
  cases.op("Tensor div(Tensor a, Tensor b, RoundingMode rounding_mode)", wide,
           binary(
               "div", [](const Tensor& a, const Tensor& b) { return div(a, b, RoundingMode::kTrunc); },
               [](double a, double b) { return std::trunc(a / b); }, 0.5, "a", "b"));
  cases.op("Tensor div(Tensor a, Scalar b, RoundingMode rounding_mode)", wide,
           {with_number(
               "div", [](const Tensor& x) { return div(x, 1.5, RoundingMode::kFloor); },
               [](double x) { return std::floor(x / 1.5); }, "a")});

  add_bitwise(
      cases, "bitwise_and", "&", [](const auto& a, const auto& b) { return bitwise_and(a, b); }, std::bit_and<>());
  add_bitwise(
      cases, "bitwise_or", "|", [](const auto& a, const auto& b) { return bitwise_or(a, b); }, std::bit_or<>());
  add_bitwise(
      cases, "bitwise_xor", "", [](const auto& a, const auto& b) { return bitwise_xor(a, b); },
      std::bit_xor<int64_t>());
  const auto complement = [](int64_t a, int64_t) { return ~a; };
  cases.op("Tensor bitwise_not(const Tensor& input)", wide,
           {bits(
               "bitwise_not", false, [](const Tensors& x) { return bitwise_not(x[0]); }, complement)});
  cases.op("Tensor operator~(const Tensor& a)", wide,
           {bits(
               "bitwise_not", false, [](const Tensors& x) { return ~x[0]; }, complement)});
  const auto of_integers = [] { return TensorList{randint(0, 1000, {128, 32, 24, 24}), randint(0, 9, {32, 24, 24})}; };
  cases.benchmark("bitwise_and", of_integers, [](const TensorList& in) { return in[0] & in[1]; });
  cases.benchmark("bitwise_or", of_integers, [](const TensorList& in) { return in[0] | in[1]; });
  cases.benchmark("bitwise_xor", of_integers, [](const TensorList& in) { return bitwise_xor(in[0], in[1]); });
  cases.benchmark("bitwise_not", of_integers, [](const TensorList& in) { return ~in[0]; });

  // Three tensors.
  std::vector<OpCase> lerp_cases, product_cases, quotient_cases;
  const std::vector<Shape> shapes[] = {
      {{3, 7}, {7}, {3, 1}}, {{3, 33}, {3, 33}, {3, 33}}, {{}, {7}, {2, 1}}, {{0, 3}, {3}, {1}}};
  for (const std::vector<Shape>& shape : shapes) {
    lerp_cases.push_back({.inputs = {{"input", shape[0]}, {"end", shape[1]}, {"weight", shape[2], -0.5, 1.5}},
                          .run = [](const Tensors& x) { return lerp(x[0], x[1], x[2]); },
                          .reference = elementwise([](double a, double b, double w) { return a + w * (b - a); }),
                          .tolerance = 8,
                          .broadcasts = true});
    product_cases.push_back({.inputs = {{"input", shape[0]}, {"tensor1", shape[1]}, {"tensor2", shape[2]}},
                             .run = [](const Tensors& x) { return addcmul(x[0], x[1], x[2], 2); },
                             .reference = elementwise([](double a, double b, double c) { return a + 2 * b * c; }),
                             .tolerance = 8,
                             .broadcasts = true});
    quotient_cases.push_back({.inputs = {{"input", shape[0]}, {"tensor1", shape[1]}, {"tensor2", shape[2], 0.5, 2}},
                              .run = [](const Tensors& x) { return addcdiv(x[0], x[1], x[2], 0.75); },
                              .reference = elementwise([](double a, double b, double c) { return a + 0.75 * b / c; }),
                              .tolerance = 16,
                              .broadcasts = true});
  }
  cases.op("Tensor lerp(Tensor input, Tensor end, Tensor weight)", wide, lerp_cases);
  cases.op("Tensor lerp(Tensor input, Tensor end, Scalar weight)", wide,
           binary(
               "lerp", [](const Tensor& a, const Tensor& b) { return lerp(a, b, 0.75); },
               [](double a, double b) { return a + 0.75 * (b - a); }, -2, "input", "end"));
  cases.op("Tensor addcmul(Tensor input, Tensor tensor1, Tensor tensor2, Scalar value = 1)", wide, product_cases);
  cases.op("Tensor addcdiv(Tensor input, Tensor tensor1, Tensor tensor2, Scalar value = 1)", wide, quotient_cases);
  const auto three = [] {
    return TensorList{randn({64, 32, 24, 24}), randn({64, 32, 24, 24}), rand({64, 32, 24, 24}) + 0.5};
  };
  cases.benchmark("lerp", three, [](const TensorList& in) { return lerp(in[0], in[1], in[2]); });
  cases.benchmark("addcmul", three, [](const TensorList& in) { return addcmul(in[0], in[1], in[2]); });
  cases.benchmark("addcdiv", three, [](const TensorList& in) { return addcdiv(in[0], in[1], in[2]); });

  OpCase clamp_case{.inputs = {{"input", {3, 7}, -4, 4}, {"min", {7}, -1.5, -0.5}},
                    .run = [](const Tensors& x) { return clamp(x[0], x[1]); },
                    .reference = elementwise([](double x, double low) { return std::max(x, low); }),
                    .broadcasts = true};
  cases.op("Tensor clamp(Tensor input, Tensor min, Tensor max = {})", wide, {clamp_case});
  clamp_case.name = "clamp";
  clamp_case.inputs.push_back({"max", {3, 1}, 0.5, 1.5});
  clamp_case.run = [](const Tensors& x) { return clamp(x[0], x[1], x[2]); };
  clamp_case.reference =
      elementwise([](double x, double low, double high) { return std::min(std::max(x, low), high); });
  cases.add(clamp_case, kValues | kGradients | kThreads);
}

}  // namespace tandem::testing
