#include <tandem/tests/ops/line_reference.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

Line sorted(Line line, bool descending) {
  std::stable_sort(line.begin(), line.end(), [&](double a, double b) { return descending ? a > b : a < b; });
  return line;
}

Line sorted_positions(const Line& line, bool descending) {
  Line positions(line.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::stable_sort(positions.begin(), positions.end(), [&](double a, double b) {
    const double x = line[static_cast<size_t>(a)], y = line[static_cast<size_t>(b)];
    return descending ? x > y : x < y;
  });
  return positions;
}

OpCase line_case(const char* name, const Shape& shape, int64_t dim, std::function<Tensor(const Tensor&)> run,
                 std::function<Line(const Line&)> f, bool removed = false) {
  OpCase op;
  op.name = name;
  op.inputs = {{"input", shape}};
  op.run = [=](const Tensors& in) { return run(in[0]); };
  op.reference = [=](const std::vector<Dense>& in) { return map_lines(in[0], dim, f, removed); };
  return op;
}

/// A case that selects elements. Rounding to a half type makes elements equal that differ in float64, so gradients are
/// compared from float32 on.
void add_selection(OpCases& cases, OpCase op) {
  cases.add(op, kValues);
  op.dtypes = {kFloat64, kFloat32};
  cases.add(op);
}

/// A case whose result is int64.
void add_positions(OpCases& cases, OpCase op, unsigned checks = kAllChecks) {
  op.result_dtype = kInt64;
  op.has_gradient = false;
  cases.add(op, checks);
}

struct Case {
  Shape shape;
  int64_t dim;
};
const Case kShapes[] = {{{33}, 0}, {{3, 7}, -1}, {{7, 3}, 0}, {{2, 5, 3}, 1}, {{3, 1}, 1}, {{}, 0}, {{0, 4}, 1}};
const Case kLong[] = {{{3, 1500}, 1}, {{200, 100}, 1}, {{130, 40}, 0}};

Line median_of(const Line& line) { return {sorted(line, false)[(line.size() - 1) / 2]}; }

TensorList matrix() { return {randn({2048, 1024})}; }
TensorList sequence() { return {randn({1 << 20})}; }

}  // namespace

TANDEM_OP_CASES(sort) {
  const std::vector<Input> input = {{"input", {3, 7}}};
  const auto both = [](const ValuesIndices& result) { return Tensors{result.values, result.indices}; };
  cases.op("ValuesIndices sort(const Tensor& input, int64_t dim = -1, bool descending = false)", std::nullopt,
           {{.inputs = input, .run = [=](const Tensors& x) { return both(x[0].sort(0, true)); }}});
  cases.op("Tensor argsort(const Tensor& input, int64_t dim = -1, bool descending = false)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return x[0].argsort(0, true); }, .has_gradient = false}});
  cases.op("ValuesIndices kthvalue(const Tensor& input, int64_t k, int64_t dim = -1, bool keepdim = false)",
           std::nullopt, {{.inputs = input, .run = [=](const Tensors& x) { return both(x[0].kthvalue(3, 0, true)); }}});
  cases.op("Tensor median(const Tensor& input)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return x[0].median(); }}});
  cases.op("ValuesIndices median(const Tensor& input, int64_t dim, bool keepdim = false)", std::nullopt,
           {{.inputs = input, .run = [=](const Tensors& x) { return both(x[0].median(1, true)); }}});
  cases.op("Tensor nanmedian(const Tensor& input)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return x[0].nanmedian(); }}});
  cases.op("ValuesIndices nanmedian(const Tensor& input, int64_t dim, bool keepdim = false)", std::nullopt,
           {{.inputs = input, .run = [=](const Tensors& x) { return both(x[0].nanmedian(1, true)); }}});

  for (const Case& c : kShapes) {
    for (const bool descending : {false, true}) {
      const auto order = [=](const Line& line) { return sorted(line, descending); };
      const auto positions = [=](const Line& line) { return sorted_positions(line, descending); };
      add_selection(cases, line_case(
                               "sort", c.shape, c.dim,
                               [=](const Tensor& x) { return sort(x, c.dim, descending).values; }, order));
      add_positions(cases, line_case(
                               "argsort", c.shape, c.dim,
                               [=](const Tensor& x) { return argsort(x, c.dim, descending); }, positions));
    }
    const int64_t k = c.shape.empty() ? 1 : (c.shape[static_cast<size_t>(c.dim < 0 ? 1 : c.dim)] + 2) / 3;
    add_selection(cases,
                  line_case(
                      "kthvalue", c.shape, c.dim, [=](const Tensor& x) { return kthvalue(x, k, c.dim).values; },
                      [=](const Line& line) { return Line{sorted(line, false)[static_cast<size_t>(k - 1)]}; }, true));
    add_selection(cases, line_case(
                             "median", c.shape, c.dim, [=](const Tensor& x) { return median(x, c.dim).values; },
                             median_of, true));
    add_selection(cases, line_case(
                             "nanmedian", c.shape, c.dim, [=](const Tensor& x) { return nanmedian(x, c.dim).values; },
                             median_of, true));
  }
  for (const Case& c : kLong) {
    for (const bool descending : {false, true}) {
      cases.add(line_case(
                    "sort", c.shape, c.dim, [=](const Tensor& x) { return sort(x, c.dim, descending).values; },
                    [=](const Line& line) { return sorted(line, descending); }),
                kValues | kThreads);
    }
    add_positions(cases,
                  line_case(
                      "argsort", c.shape, c.dim, [=](const Tensor& x) { return argsort(x, c.dim); },
                      [=](const Line& line) { return sorted_positions(line, false); }),
                  kValues | kThreads);
  }
  add_selection(cases, line_case(
                           "median", {33}, 0, [](const Tensor& x) { return median(x); }, median_of, true));

  {
    const auto distinct = [](const std::vector<Dense>& in) {
      Line values = sorted(in[0].values, false);
      values.erase(std::unique(values.begin(), values.end()), values.end());
      return Dense{{static_cast<int64_t>(values.size())}, values};
    };
    cases.op(
        "Unique unique(const Tensor& input, bool sorted = true, bool return_inverse = false, "
        "bool return_counts = false)",
        std::nullopt,
        {{.inputs = {integers("input", {5, 7}, 9)},
          .run =
              [](const Tensors& x) {
                const Unique result = unique(x[0], true, true, true);
                return Tensors{result.output, result.inverse_indices, result.counts};
              },
          .reference = distinct,
          .result_dtype = kInt64,
          .has_gradient = false},
         {.inputs = {{"input", {2, 33}}},
          .run = [](const Tensors& x) { return unique(x[0]).output; },
          .reference = distinct,
          .has_gradient = false}});
  }

  for (const bool right : {false, true}) {
    // The positions that bisection finds, also in a sequence that is not sorted.
    const auto search = [=](const Line& sequence, double value) {
      int64_t begin = 0, end = static_cast<int64_t>(sequence.size());
      while (begin < end) {
        const int64_t middle = (begin + end) / 2;
        const double other = sequence[static_cast<size_t>(middle)];
        if (other < value || (right && other == value)) {
          begin = middle + 1;
        } else {
          end = middle;
        }
      }
      return static_cast<double>(begin);
    };
    const auto reference = [=](const std::vector<Dense>& in, size_t sequence, size_t values) {
      Dense out = dense_zeros(in[values].shape);
      const bool is_shared = in[sequence].shape.size() == 1;
      const int64_t n = in[sequence].shape.back(), m = out.shape.empty() ? 1 : out.shape.back();
      for (int64_t i = 0; i < out.numel(); ++i) {
        const auto row = in[sequence].values.begin() + (is_shared ? 0 : i / m * n);
        out[i] = search(Line(row, row + n), in[values][i]);
      }
      return out;
    };
    OpCase op;
    op.name = "searchsorted";
    op.run = [=](const Tensors& x) { return searchsorted(x[0], x[1], right); };
    op.reference = [=](const std::vector<Dense>& in) { return reference(in, 0, 1); };
    op.result_dtype = kInt64;
    op.has_gradient = false;
    op.inputs = {{"sorted_sequence", {3, 33}}, {"values", {3, 7}}};
    if (right) {
      cases.op("Tensor searchsorted(const Tensor& sorted_sequence, const Tensor& values, bool right = false)",
               std::nullopt, {op});
    }
    for (const auto& [sequence, values] :
         {std::pair<Shape, Shape>{{33}, {5, 7}}, {{7}, {}}, {{2, 3, 5}, {2, 3, 31}}, {{0}, {3}}, {{3}, {0}}}) {
      op.inputs = {{"sorted_sequence", sequence}, {"values", values}};
      cases.add(op);
    }
    op.inputs = {{"sorted_sequence", {100}}, {"values", {70, 300}}};
    cases.add(op, kValues | kThreads);
    if (right) {
      op.name = "bucketize";
      op.run = [](const Tensors& x) { return bucketize(x[0], x[1], true); };
      op.reference = [=](const std::vector<Dense>& in) { return reference(in, 1, 0); };
      op.inputs = {{"input", {3, 7}}, {"boundaries", {5}}};
      cases.op("Tensor bucketize(const Tensor& input, const Tensor& boundaries, bool right = false)", std::nullopt,
               {op});
    }
  }

  cases.benchmark("sort sequence", sequence, [](const TensorList& in) { return sort(in[0]).values; });
  cases.benchmark("argsort", matrix, [](const TensorList& in) { return argsort(in[0]); }, {.backward = false});
  cases.benchmark("kthvalue", matrix, [](const TensorList& in) { return kthvalue(in[0], 100).values; });
  cases.benchmark("nanmedian", matrix, [](const TensorList& in) { return nanmedian(in[0], 1).values; });
  cases.benchmark("median", matrix, [](const TensorList& in) { return median(in[0], 1).values; });
  cases.benchmark("unique", sequence, [](const TensorList& in) { return unique(in[0]).output; }, {.backward = false});
  cases.benchmark(
      "searchsorted",
      [] {
        return TensorList{arange(1000).to(kFloat32), rand({1 << 20}) * 1000};
      },
      [](const TensorList& in) { return searchsorted(in[0], in[1]); }, {.backward = false});
  cases.benchmark(
      "bucketize",
      [] {
        return TensorList{rand({1 << 20}) * 1000, arange(1000).to(kFloat32)};
      },
      [](const TensorList& in) { return bucketize(in[0], in[1]); }, {.backward = false});
}

}  // namespace tandem::testing
