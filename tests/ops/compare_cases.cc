#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

using Comparison = Tensor (*)(Tensor, Tensor);
using WithNumber = Tensor (*)(Tensor, Scalar);

/// Both overloads.
void add_comparison(OpCases& cases, const std::string& name, Comparison compare, WithNumber compare_number,
                    const std::function<bool(double, double)>& f) {
  std::vector<OpCase> list;
  const std::pair<Shape, Shape> shapes[] = {{{3, 7}, {7}}, {{3, 33}, {3, 33}}, {{5, 1}, {7}}, {{}, {3}}, {{0, 3}, {3}}};
  for (const auto& [a, b] : shapes) {
    OpCase op{.inputs = {{"a", a}, {"b", b}},
              .run = [compare](const Tensors& x) { return compare(x[0], x[1]); },
              .reference = elementwise([f](double x, double y) { return f(x, y) ? 1 : 0; }),
              .result_dtype = kBool,
              .has_gradient = false,
              .broadcasts = true};
    list.push_back(op);
    // Integers from -2 to 1, so that many elements are equal.
    op.inputs[0].dtype = kInt64;
    op.inputs[1].dtype = kInt32;
    op.dtypes = {kInt64};
    list.push_back(op);
  }
  cases.op("Tensor " + name + "(Tensor a, Tensor b)", CastPolicy::kWidest, list);
  OpCase op{.inputs = {{"a", {3, 7}}},
            .run = [compare_number](const Tensors& x) { return compare_number(x[0], -1); },
            .reference = elementwise([f](double x) { return f(x, -1) ? 1 : 0; }),
            .result_dtype = kBool,
            .has_gradient = false};
  OpCase of_integers = op;
  of_integers.inputs[0].dtype = kInt32;
  of_integers.dtypes = {kInt32};
  cases.op("Tensor " + name + "(Tensor a, Scalar b)", CastPolicy::kWidest, {op, of_integers});
  cases.benchmark(name, {{128, 32, 24, 24}, {128, 32, 24, 24}},
                  [compare](const TensorList& in) { return compare(in[0], in[1]); }, {.backward = false});
}

/// A test of one tensor, which is true for some elements.
OpCase test_of(const char* name, std::function<Tensor(const Tensor&)> run, std::function<bool(double)> f) {
  return {.name = name,
          .inputs = {{"input", {3, 7}}},
          .run = [run](const Tensors& x) { return run(x[0]); },
          .reference = elementwise([f](double x) { return f(x) ? 1 : 0; }),
          .result_dtype = kBool,
          .has_gradient = false};
}

/// Logic of two tensors of integers, some of which are 0.
OpCase logic(const char* name, std::function<Tensor(const Tensor&, const Tensor&)> run,
             std::function<bool(double, double)> f) {
  return {.name = name,
          .inputs = {{"input", {3, 7}, -2, 2, kInt64}, {"other", {7}, -2, 2, kInt32}},
          .run = [run](const Tensors& x) { return run(x[0], x[1]); },
          .reference = elementwise([f](double x, double y) { return f(x, y) ? 1 : 0; }),
          .dtypes = {kInt64},
          .result_dtype = kBool,
          .has_gradient = false,
          .broadcasts = true};
}

/// The operators of a comparison: with two tensors, and with a number on either side.
template <class Compare>
void add_operators(OpCases& cases, const std::string& sign, const char* name, const char* reversed, Compare compare) {
  const auto f = [compare](double x, double y) { return static_cast<bool>(compare(x, y)); };
  OpCase op = logic(
      name, [compare](const Tensor& a, const Tensor& b) { return compare(a, b); }, f);
  op.inputs[0].name = "a";
  op.inputs[1].name = "b";
  cases.op("Tensor operator" + sign + "(const Tensor& a, const Tensor& b)", CastPolicy::kWidest, {op});
  OpCase number = test_of(
      name, [compare](const Tensor& x) { return compare(x, Scalar(1)); }, [f](double x) { return f(x, 1); });
  number.inputs[0] = {"a", {3, 7}, -2, 2, kInt64};
  number.dtypes = {kInt64};
  cases.op("Tensor operator" + sign + "(const Tensor& a, Scalar b)", CastPolicy::kWidest, {number});
  number.name = reversed;
  number.run = [compare](const Tensors& x) { return compare(Scalar(1), x[0]); };
  number.reference = elementwise([f](double x) { return f(1, x) ? 1 : 0; });
  cases.op("Tensor operator" + sign + "(Scalar a, const Tensor& b)", CastPolicy::kWidest, {number});
}

}  // namespace

TANDEM_OP_CASES(compare) {
  add_operators(cases, "==", "eq", "eq", [](const auto& a, const auto& b) { return a == b; });
  add_operators(cases, "!=", "ne", "ne", [](const auto& a, const auto& b) { return a != b; });
  add_operators(cases, "<", "lt", "gt", [](const auto& a, const auto& b) { return a < b; });
  add_operators(cases, "<=", "le", "ge", [](const auto& a, const auto& b) { return a <= b; });
  add_operators(cases, ">", "gt", "lt", [](const auto& a, const auto& b) { return a > b; });
  add_operators(cases, ">=", "ge", "le", [](const auto& a, const auto& b) { return a >= b; });

  const auto wide = CastPolicy::kWidest;
  const auto measure = [&](const char* name, Tensor (*run)(const Tensor&)) {
    cases.benchmark(name, {{128, 32, 24, 24}}, [run](const TensorList& in) { return run(in[0]); }, {.backward = false});
  };
  cases.op("Tensor isnan(const Tensor& input)", wide, {test_of("isnan", isnan, [](double) { return false; })});
  cases.op("Tensor isinf(const Tensor& input)", wide, {test_of("isinf", isinf, [](double) { return false; })});
  cases.op("Tensor isfinite(const Tensor& input)", wide, {test_of("isfinite", isfinite, [](double) { return true; })});
  measure("isnan", isnan);
  measure("isinf", isinf);
  measure("isfinite", isfinite);
  OpCase not_case = test_of("logical_not", logical_not, [](double x) { return x == 0; });
  not_case.inputs[0].dtype = kInt64;
  not_case.dtypes = {kInt64};
  cases.op("Tensor logical_not(const Tensor& input)", wide, {not_case});
  cases.op("Tensor operator!(const Tensor& a)", wide, {not_case});
  measure("logical_not", logical_not);
  struct {
    const char* name;
    Tensor (*run)(const Tensor&, const Tensor&);
    bool (*f)(double, double);
  } const logical[] = {
      {"logical_and", logical_and, [](double x, double y) { return x != 0 && y != 0; }},
      {"logical_or", logical_or, [](double x, double y) { return x != 0 || y != 0; }},
      {"logical_xor", logical_xor, [](double x, double y) { return (x != 0) != (y != 0); }},
  };
  for (const auto& [name, run, f] : logical) {
    cases.op("Tensor " + std::string(name) + "(const Tensor& input, const Tensor& other)", wide, {logic(name, run, f)});
    cases.benchmark(
        name,
        [] {
          return TensorList{gt(rand({128, 32, 24, 24}), 0.5), gt(rand({128, 32, 24, 24}), 0.5)};
        },
        [run](const TensorList& in) { return run(in[0], in[1]); }, {.backward = false});
  }
  const std::vector<Shape> two = {{128, 32, 24, 24}, {128, 32, 24, 24}};
  OpCase close_case{
      .inputs = {{"input", {3, 7}}, {"other", {7}}},
      .run = [](const Tensors& x) { return isclose(x[0], x[1], 0.25, 0.5); },
      .reference = elementwise([](double x, double y) { return std::abs(x - y) <= 0.5 + 0.25 * std::abs(y); }),
      .dtypes = {kFloat64, kFloat32},
      .result_dtype = kBool,
      .has_gradient = false,
      .broadcasts = true};
  cases.op("Tensor isclose(Tensor input, Tensor other, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false)",
           wide, {close_case});
  cases.benchmark("isclose", two, [](const TensorList& in) { return isclose(in[0], in[1]); }, {.backward = false});
  const auto on_device = [](const Tensor& x, bool value) { return full({}, value, {kBool, x.device()}); };
  OpCase all_case = close_case;
  all_case.run = [on_device](const Tensors& x) {
    const bool result = allclose(x[0], x[1], 1, 1);
    return on_device(x[0], result);
  };
  all_case.reference = [](const std::vector<Dense>& in) {
    bool result = true;
    dense_map({3, 7}, in, [&](const std::vector<double>& v) {
      result = result && std::abs(v[0] - v[1]) <= 1 + std::abs(v[1]);
      return 0;
    });
    return Dense{{}, {result ? 1.0 : 0.0}};
  };
  cases.op(
      "bool allclose(const Tensor& input, const Tensor& other, double rtol = 1e-5, double atol = 1e-8, "
      "bool equal_nan = false)",
      wide, {all_case});
  cases.benchmark("allclose", two,
                  [on_device](const TensorList& in) { return on_device(in[0], allclose(in[0], in[0])); },
                  {.backward = false});
  OpCase equal_case = close_case;
  equal_case.inputs[1].shape = {3, 7};
  equal_case.run = [on_device](const Tensors& x) {
    const bool result = equal(x[0], x[1]);
    return on_device(x[0], result);
  };
  equal_case.reference = [](const std::vector<Dense>& in) {
    return Dense{{}, {in[0].values == in[1].values ? 1.0 : 0.0}};
  };
  equal_case.broadcasts = false;
  cases.op("bool equal(const Tensor& input, const Tensor& other)", wide, {equal_case});
  cases.benchmark("equal", two, [on_device](const TensorList& in) { return on_device(in[0], equal(in[0], in[0])); },
                  {.backward = false});

  add_comparison(cases, "eq", eq, eq, std::equal_to<double>());
  add_comparison(cases, "ne", ne, ne, std::not_equal_to<double>());
  add_comparison(cases, "lt", lt, lt, std::less<double>());
  add_comparison(cases, "le", le, le, std::less_equal<double>());
  add_comparison(cases, "gt", gt, gt, std::greater<double>());
  add_comparison(cases, "ge", ge, ge, std::greater_equal<double>());

  std::vector<OpCase> list;
  const std::array<Shape, 3> shapes[] = {{Shape{3, 7}, Shape{7}, Shape{3, 1}},
                                         {Shape{3, 33}, Shape{3, 33}, Shape{3, 33}},
                                         {Shape{5, 1}, Shape{7}, Shape{2, 1, 1}},
                                         {Shape{3}, Shape{}, Shape{2, 3}},
                                         {Shape{0, 3}, Shape{3}, Shape{1}}};
  for (const auto& [condition, a, b] : shapes) {
    list.push_back({.inputs = {bools("condition", condition), {"a", a}, {"b", b}},
                    .run = [](const Tensors& x) { return where(x[0], x[1], x[2]); },
                    .reference = elementwise([](double c, double x, double y) { return c != 0 ? x : y; }),
                    .broadcasts = true});
  }
  cases.op("Tensor where(const Tensor& condition, Tensor a, Tensor b)", CastPolicy::kWidest, list);
  std::vector<OpCase> number_last, number_first;
  for (const Shape& shape : {Shape{7}, Shape{3, 7}}) {
    number_last.push_back({.inputs = {bools("condition", {3, 7}), {"a", shape}},
                           .run = [](const Tensors& x) { return where(x[0], x[1], 0.75); },
                           .reference = elementwise([](double c, double x) { return c != 0 ? x : 0.75; }),
                           .broadcasts = true});
    number_first.push_back({.inputs = {bools("condition", {3, 7}), {"b", shape}},
                            .run = [](const Tensors& x) { return where(x[0], -1.5, x[1]); },
                            .reference = elementwise([](double c, double x) { return c != 0 ? -1.5 : x; }),
                            .broadcasts = true});
  }
  cases.op("Tensor where(const Tensor& condition, const Tensor& a, Scalar b)", CastPolicy::kWidest, number_last);
  cases.op("Tensor where(const Tensor& condition, Scalar a, const Tensor& b)", CastPolicy::kWidest, number_first);
}

}  // namespace tandem::testing
