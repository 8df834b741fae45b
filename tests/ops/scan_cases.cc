#include <tandem/tests/ops/line_reference.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

/// The results so far of a function of two numbers.
Reference scan(int64_t dim, std::function<double(double, double)> f) {
  return [=](const std::vector<Dense>& in) {
    return map_lines(in[0], dim, [&](Line line) {
      for (size_t i = 1; i < line.size(); ++i) line[i] = f(line[i - 1], line[i]);
      return line;
    });
  };
}

double add(double a, double b) { return a + b; }
double multiply(double a, double b) { return a * b; }
double log_add(double a, double b) { return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b))); }
double larger(double a, double b) { return std::max(a, b); }
double smaller(double a, double b) { return std::min(a, b); }

using Run = std::function<Tensor(const Tensor&, int64_t)>;

OpCase scan_case(const char* name, const Shape& shape, int64_t dim, const Run& run,
                 const std::function<double(double, double)>& f) {
  OpCase op;
  op.name = name;
  op.inputs = {{"input", shape}};
  op.run = [=](const Tensors& in) { return run(in[0], dim); };
  op.reference = scan(dim, f);
  op.terms = 2 * static_cast<double>(shape.empty() ? 1 : std::max<int64_t>(shape[static_cast<size_t>(dim)], 1));
  return op;
}

/// Cases of an operation: several shapes, and long lines in both directions of memory.
void add_cases(OpCases& cases, const char* name, const Run& run, const std::function<double(double, double)>& f,
               bool selects) {
  struct Case {
    Shape shape;
    int64_t dim;
  };
  for (const Case& c : {Case{{7}, 0}, Case{{3, 5}, 1}, Case{{5, 3}, 0}, Case{{2, 4, 3}, 1}, Case{{2, 1, 3}, 1},
                        Case{{}, 0}, Case{{0, 3}, 1}, Case{{3, 0}, 1}}) {
    OpCase op = scan_case(name, c.shape, c.dim, run, f);
    if (selects) {  // rounding to a half type makes elements equal that differ in float64
      cases.add(op, kValues);
      op.dtypes = {kFloat64, kFloat32};
    }
    cases.add(op);
  }
  for (const Case& c : {Case{{2, 5003}, 1}, Case{{300, 70}, 0}, Case{{3, 40, 1500}, 1}}) {
    OpCase op = scan_case(name, c.shape, c.dim, run, f);
    op.inputs[0].low = -1;
    op.inputs[0].high = 1;
    cases.add(op, kValues | kThreads);
  }
}

TensorList matrix() { return {randn({2048, 1024})}; }

}  // namespace

TANDEM_OP_CASES(scan) {
  const std::vector<Input> input = {{"input", {3, 7}}};
  const auto both = [](const ValuesIndices& result) { return Tensors{result.values, result.indices}; };
  cases.op("Tensor cumsum(Tensor input, int64_t dim)", CastPolicy::kFloat32,
           {{.inputs = input, .run = [](const Tensors& x) { return x[0].cumsum(-2); }}});
  cases.op("Tensor cumprod(Tensor input, int64_t dim)", CastPolicy::kFloat32,
           {{.inputs = input, .run = [](const Tensors& x) { return x[0].cumprod(1); }, .terms = 7}});
  cases.op("Tensor logcumsumexp(Tensor input, int64_t dim)", CastPolicy::kFloat32,
           {{.inputs = input, .run = [](const Tensors& x) { return x[0].logcumsumexp(1); }, .terms = 7}});
  cases.op("ValuesIndices cummax(const Tensor& input, int64_t dim)", std::nullopt,
           {{.inputs = input, .run = [=](const Tensors& x) { return both(x[0].cummax(1)); }}});
  cases.op("ValuesIndices cummin(const Tensor& input, int64_t dim)", std::nullopt,
           {{.inputs = input, .run = [=](const Tensors& x) { return both(x[0].cummin(0)); }}});

  add_cases(
      cases, "cumsum", [](const Tensor& x, int64_t dim) { return cumsum(x, dim); }, add, false);
  add_cases(
      cases, "cumprod", [](const Tensor& x, int64_t dim) { return cumprod(x, dim); }, multiply, false);
  add_cases(
      cases, "logcumsumexp", [](const Tensor& x, int64_t dim) { return logcumsumexp(x, dim); }, log_add, false);
  add_cases(
      cases, "cummax", [](const Tensor& x, int64_t dim) { return cummax(x, dim).values; }, larger, true);
  add_cases(
      cases, "cummin", [](const Tensor& x, int64_t dim) { return cummin(x, dim).values; }, smaller, true);

  cases.benchmark("cumprod", matrix, [](const TensorList& in) { return cumprod(in[0], 1); });
  cases.benchmark("logcumsumexp", matrix, [](const TensorList& in) { return logcumsumexp(in[0], 1); });
  cases.benchmark("cummax", matrix, [](const TensorList& in) { return cummax(in[0], 1).values; });
  cases.benchmark("cummin", matrix, [](const TensorList& in) { return cummin(in[0], 1).values; });
}

}  // namespace tandem::testing
