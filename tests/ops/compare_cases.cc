#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/ops/compare.h>
#include <tandem/ops/random.h>
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
  cases.benchmark(
      name,
      [] {
        return TensorList{rand({128, 32, 24, 24}), rand({128, 32, 24, 24})};
      },
      [compare](const TensorList& in) { return compare(in[0], in[1]); }, {.backward = false});
}

}  // namespace

TANDEM_OP_CASES(compare) {
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
