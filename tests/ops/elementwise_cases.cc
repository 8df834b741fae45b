#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

using Unary = std::function<Tensor(const Tensor&)>;
using Binary = std::function<Tensor(const Tensor&, const Tensor&)>;

const std::initializer_list<Shape> kWithNumber = {{3, 7}, {3, 33}, {}, {0}};

/// Cases with one operand of each shape, with values in [low, high).
std::vector<OpCase> unary(std::initializer_list<Shape> shapes, const Unary& run, std::function<double(double)> f,
                          const char* input = "input", double low = -2, double high = 2) {
  std::vector<OpCase> cases;
  for (const Shape& shape : shapes) {
    cases.push_back({.inputs = {{input, shape, low, high}},
                     .run = [run](const Tensors& x) { return run(x[0]); },
                     .reference = elementwise(f)});
  }
  return cases;
}

/// Cases of two operands that broadcast.
std::vector<OpCase> binary(const std::string& name, const Binary& run, const std::function<double(double, double)>& f) {
  const std::pair<Shape, Shape> shapes[] = {
      {{3, 7}, {7}}, {{3, 7}, {3, 7}}, {{2, 31}, {31}}, {{5, 1, 3}, {4, 1}}, {{2, 3, 1, 2}, {1, 4, 1}},
      {{}, {7}},     {{0, 3}, {3}},    {{1}, {}}};
  std::vector<OpCase> cases;
  for (const auto& [a, b] : shapes) {
    cases.push_back({.name = name,
                     .inputs = {{"a", a}, {"b", b, 0.5, 2}},
                     .run = [run](const Tensors& x) { return run(x[0], x[1]); },
                     .reference = elementwise(f),
                     .broadcasts = true});
  }
  return cases;
}

/// `cases`, and one with an integer alpha, which integer operands accept.
std::vector<OpCase> with_integer_alpha(std::vector<OpCase> cases, Tensor (*run)(Tensor, Tensor, Scalar), double sign) {
  OpCase op = cases[0];
  op.run = [run](const Tensors& x) { return run(x[0], x[1], 2); };
  op.reference = elementwise([sign](double a, double b) { return a + 2 * sign * b; });
  cases.push_back(std::move(op));
  return cases;
}

/// The operators, and the functions with a number on either side; `last` is the name of a last operand in errors.
template <class Run, class Operator>
void add_arithmetic(OpCases& cases, const std::string& name, const std::string& sign, const char* last, Run run,
                    Operator op) {
  const auto add = [&](const std::string& declaration, std::vector<OpCase> list) {
    for (OpCase& one : list) one.name = name;
    cases.op("Tensor " + declaration, CastPolicy::kWidest, list);
  };
  const auto with_number = [&](const std::string& function, const std::string& tensor, auto f) {
    add(function + "(" + tensor + " a, Scalar b)",
        unary(
            kWithNumber, [f](const Tensor& x) { return f(x, 1.5); }, [=](double x) { return op(x, 1.5); }, "a"));
    add(function + "(Scalar a, const Tensor& b)",
        unary(
            kWithNumber, [f](const Tensor& x) { return f(3, x); }, [=](double x) { return op(3.0, x); }, last, 0.5));
  };
  with_number(name, "Tensor", run);
  with_number("operator" + sign, "const Tensor&", op);
  add("operator" + sign + "(const Tensor& a, const Tensor& b)",
      binary(
          name, [op](const Tensor& a, const Tensor& b) { return op(a, b); }, op));
}

}  // namespace

TANDEM_OP_CASES(elementwise) {
  const auto wide = CastPolicy::kWidest, float32 = CastPolicy::kFloat32;

  cases.op("Tensor add(Tensor a, Tensor b, Scalar alpha = 1)", wide,
           with_integer_alpha(binary(
                                  "add", [](const Tensor& a, const Tensor& b) { return add(a, b, 0.75); },
                                  [](double a, double b) { return a + 0.75 * b; }),
                              add, 1));
  cases.op("Tensor sub(Tensor a, Tensor b, Scalar alpha = 1)", wide,
           with_integer_alpha(binary(
                                  "sub", [](const Tensor& a, const Tensor& b) { return sub(a, b, 1.25); },
                                  [](double a, double b) { return a - 1.25 * b; }),
                              sub, -1));
  cases.op("Tensor mul(Tensor a, Tensor b)", wide,
           binary(
               "mul", [](const Tensor& a, const Tensor& b) { return mul(a, b); }, std::multiplies<>()));
  cases.op("Tensor div(Tensor a, Tensor b)", wide,
           binary(
               "div", [](const Tensor& a, const Tensor& b) { return div(a, b); }, std::divides<>()));
  add_arithmetic(
      cases, "add", "+", "a", [](const auto& a, const auto& b) { return add(a, b); }, std::plus<>());
  add_arithmetic(
      cases, "sub", "-", "b", [](const auto& a, const auto& b) { return sub(a, b); }, std::minus<>());
  add_arithmetic(
      cases, "mul", "*", "a", [](const auto& a, const auto& b) { return mul(a, b); }, std::multiplies<>());
  add_arithmetic(
      cases, "div", "/", "b", [](const auto& a, const auto& b) { return div(a, b); }, std::divides<>());
  std::vector<OpCase> minus = unary(
      kWithNumber, [](const Tensor& x) { return -x; }, [](double x) { return -x; });
  for (OpCase& op : minus) op.name = "neg";
  cases.op("Tensor operator-(const Tensor& a)", wide, minus);

  const std::initializer_list<Shape> shapes = {{3, 7}, {3, 33}, {2, 3, 7}, {}, {0, 3}};
  cases.op("Tensor neg(Tensor input)", wide,
           unary(
               shapes, [](const Tensor& x) { return neg(x); }, [](double x) { return -x; }));
  cases.op("Tensor exp(Tensor input)", float32,
           unary(
               shapes, [](const Tensor& x) { return exp(x); }, [](double x) { return std::exp(x); }));
  cases.op("Tensor log(Tensor input)", float32,
           unary(
               shapes, [](const Tensor& x) { return log(x); }, [](double x) { return std::log(x); }, "input", 0.25, 4));
  cases.op("Tensor relu(Tensor input)", wide,
           unary(
               shapes, [](const Tensor& x) { return relu(x); }, [](double x) { return x > 0 ? x : 0; }));
  cases.op("Tensor clone(const Tensor& input)", std::nullopt,
           unary(
               {{3, 7}, {2, 3, 4}, {}, {0, 2}}, [](const Tensor& x) { return clone(x); }, [](double x) { return x; }));
  cases.op(
      "Tensor contiguous(const Tensor& input)", std::nullopt,
      unary(
          {{3, 7}, {2, 3, 4}, {}, {0, 2}}, [](const Tensor& x) { return contiguous(x); }, [](double x) { return x; }));

  // Long enough for several threads.
  cases.add({.name = "mul",
             .inputs = {{"a", {3, 32769}}, {"b", {32769}, 0.5, 2}},
             .run = [](const Tensors& x) { return x[0] * x[1]; },
             .reference = elementwise(std::multiplies<double>())},
            kValues | kThreads);
  cases.add({.name = "add",
             .inputs = {{"a", {65537}}, {"b", {65537}, 0.5, 2}},
             .run = [](const Tensors& x) { return x[0] + x[1]; },
             .reference = elementwise(std::plus<double>())},
            kValues | kThreads);
}

}  // namespace tandem::testing
