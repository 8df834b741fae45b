#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

using Unary = std::function<Tensor(const Tensor&)>;
using Binary = std::function<Tensor(const Tensor&, const Tensor&)>;

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

/// Cases of a tensor and a number.
std::vector<OpCase> with_number(const Unary& run, std::function<double(double)> f, const char* input = "a",
                                double low = -2) {
  return unary({{3, 7}, {3, 33}, {}, {0}}, run, std::move(f), input, low);
}

/// Cases of two operands that broadcast.
std::vector<OpCase> binary(const char* name, const Binary& run, const std::function<double(double, double)>& f) {
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
               "mul", [](const Tensor& a, const Tensor& b) { return mul(a, b); }, std::multiplies<double>()));
  cases.op("Tensor div(Tensor a, Tensor b)", wide,
           binary(
               "div", [](const Tensor& a, const Tensor& b) { return div(a, b); }, std::divides<double>()));
  cases.op("Tensor operator+(const Tensor& a, const Tensor& b)", wide,
           binary(
               "add", [](const Tensor& a, const Tensor& b) { return a + b; }, std::plus<double>()));
  cases.op("Tensor operator-(const Tensor& a, const Tensor& b)", wide,
           binary(
               "sub", [](const Tensor& a, const Tensor& b) { return a - b; }, std::minus<double>()));
  cases.op("Tensor operator*(const Tensor& a, const Tensor& b)", wide,
           binary(
               "mul", [](const Tensor& a, const Tensor& b) { return a * b; }, std::multiplies<double>()));
  cases.op("Tensor operator/(const Tensor& a, const Tensor& b)", wide,
           binary(
               "div", [](const Tensor& a, const Tensor& b) { return a / b; }, std::divides<double>()));

  cases.op("Tensor add(Tensor a, Scalar b)", wide,
           with_number([](const Tensor& x) { return add(x, 0.75); }, [](double x) { return x + 0.75; }));
  cases.op("Tensor add(Scalar a, const Tensor& b)", wide,
           with_number([](const Tensor& x) { return add(3, x); }, [](double x) { return 3 + x; }));
  cases.op("Tensor sub(Tensor a, Scalar b)", wide,
           with_number([](const Tensor& x) { return sub(x, 0.75); }, [](double x) { return x - 0.75; }));
  cases.op("Tensor sub(Scalar a, const Tensor& b)", wide,
           with_number([](const Tensor& x) { return sub(0.75, x); }, [](double x) { return 0.75 - x; }, "b", 0.5));
  cases.op("Tensor mul(Tensor a, Scalar b)", wide,
           with_number([](const Tensor& x) { return mul(x, -1.5); }, [](double x) { return x * -1.5; }));
  cases.op("Tensor mul(Scalar a, const Tensor& b)", wide,
           with_number([](const Tensor& x) { return mul(3, x); }, [](double x) { return 3 * x; }));
  cases.op("Tensor div(Tensor a, Scalar b)", wide,
           with_number([](const Tensor& x) { return div(x, 1.5); }, [](double x) { return x / 1.5; }));
  cases.op("Tensor div(Scalar a, const Tensor& b)", wide,
           with_number([](const Tensor& x) { return div(3, x); }, [](double x) { return 3 / x; }, "b", 0.5));
  const auto operator_case = [&](const char* declaration, const char* name, const Unary& run,
                                 std::function<double(double)> f, const char* input, double low = -2) {
    std::vector<OpCase> list = with_number(run, std::move(f), input, low);
    for (OpCase& op : list) op.name = name;
    cases.op(declaration, wide, std::move(list));
  };
  operator_case(
      "Tensor operator+(const Tensor& a, Scalar b)", "add", [](const Tensor& x) { return x + 0.75; },
      [](double x) { return x + 0.75; }, "a");
  operator_case(
      "Tensor operator+(Scalar a, const Tensor& b)", "add", [](const Tensor& x) { return 3 + x; },
      [](double x) { return 3 + x; }, "a");
  operator_case(
      "Tensor operator-(const Tensor& a, Scalar b)", "sub", [](const Tensor& x) { return x - 0.75; },
      [](double x) { return x - 0.75; }, "a");
  operator_case(
      "Tensor operator-(Scalar a, const Tensor& b)", "sub", [](const Tensor& x) { return 0.75 - x; },
      [](double x) { return 0.75 - x; }, "b", 0.5);
  operator_case(
      "Tensor operator*(const Tensor& a, Scalar b)", "mul", [](const Tensor& x) { return x * -1.5; },
      [](double x) { return x * -1.5; }, "a");
  operator_case(
      "Tensor operator*(Scalar a, const Tensor& b)", "mul", [](const Tensor& x) { return 3 * x; },
      [](double x) { return 3 * x; }, "a");
  operator_case(
      "Tensor operator/(const Tensor& a, Scalar b)", "div", [](const Tensor& x) { return x / 1.5; },
      [](double x) { return x / 1.5; }, "a");
  operator_case(
      "Tensor operator/(Scalar a, const Tensor& b)", "div", [](const Tensor& x) { return 3 / x; },
      [](double x) { return 3 / x; }, "b", 0.5);
  operator_case(
      "Tensor operator-(const Tensor& a)", "neg", [](const Tensor& x) { return -x; }, [](double x) { return -x; },
      "input");

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
