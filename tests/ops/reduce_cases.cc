#include <algorithm>
#include <functional>
#include <vector>

#include <tandem/ops/elementwise.h>
#include <tandem/ops/random.h>
#include <tandem/ops/reduce.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

using Values = std::vector<double>;

double sum_of(const Values& values) {
  long double total = 0;  // more precise than the float64 sum under test
  for (double value : values) total += value;
  return static_cast<double>(total);
}

double mean_of(const Values& values) { return sum_of(values) / static_cast<double>(values.size()); }

/// The sum of squared differences from the mean, divided.
double var_of(const Values& values, int64_t correction) {
  const long double mean = mean_of(values);
  long double total = 0;
  for (double value : values) total += (value - mean) * (value - mean);
  return static_cast<double>(total / static_cast<long double>(static_cast<int64_t>(values.size()) - correction));
}

/// The naive reduction: the removed elements of each result in row-major order.
Dense reduce(const Dense& in, const std::vector<bool>& removed, bool keepdim,
             const std::function<double(const Values&)>& f) {
  Shape kept;
  Shape shape;
  for (size_t d = 0; d < in.shape.size(); ++d) {
    kept.push_back(removed[d] ? 1 : in.shape[d]);
    if (!removed[d] || keepdim) shape.push_back(kept.back());
  }
  const Shape strides = row_major_strides(kept);
  std::vector<Values> groups(static_cast<size_t>(num_elements(kept)));
  for (int64_t i = 0; i < in.num_elements(); ++i) {
    int64_t rest = i;
    int64_t group = 0;
    for (size_t d = in.shape.size(); d-- > 0;) {
      if (!removed[d]) group += rest % in.shape[d] * strides[d];
      rest /= in.shape[d];
    }
    groups[static_cast<size_t>(group)].push_back(in[i]);
  }
  Dense out = dense_zeros(shape);
  for (size_t g = 0; g < groups.size(); ++g) out.values[g] = f(groups[g]);
  return out;
}

struct Case {
  Shape shape;
  Shape dims;
  bool keepdim;
  std::vector<bool> removed;
};

const Case kCases[] = {
    {{33}, {0}, true, {true}},
    {{3, 7}, {1}, false, {false, true}},
    {{7, 65}, {0}, false, {true, false}},
    {{7, 31}, {-2}, true, {true, false}},
    {{3, 5, 4}, {1}, false, {false, true, false}},
    {{3, 5, 4}, {0, 2}, true, {true, false, true}},
    {{2, 3, 4, 3}, {3, 1}, false, {false, true, false, true}},
    {{2, 3, 1, 4}, {2}, false, {false, false, true, false}},
    {{3, 2, 5}, {0, 1, -1}, true, {true, true, true}},
    {{3, 2, 5}, {}, false, {true, true, true}},
    {{}, {}, false, {}},
    {{}, {-1}, false, {}},
};

OpCase reduce_case(const char* name, const Case& c, std::function<Tensor(const Tensor&)> run,
                   std::function<double(const Values&)> f) {
  OpCase op;
  op.name = name;
  op.inputs = {{"input", c.shape}};
  op.run = [run](const std::vector<Tensor>& in) { return run(in[0]); };
  op.reference = [c, f](const std::vector<Dense>& in) { return reduce(in[0], c.removed, c.keepdim, f); };
  op.terms = static_cast<double>(std::max<int64_t>(num_elements(c.shape), 1));
  return op;
}

TensorList matrix() { return {randn({2048, 1024})}; }

}  // namespace

TANDEM_OP_CASES(reduce) {
  const std::vector<Input> input = {{"input", {3, 7}}};
  cases.op("Tensor sum(Tensor input)", CastPolicy::kFloat32,
           {{.inputs = {{"input", {3, 7}, 0.5, 2}}, .run = [](const Tensors& x) { return sum(x[0]); }},
            {.inputs = {{"input", {70001}}}, .run = [](const Tensors& x) { return sum(x[0]); }}});
  cases.op(
      "Tensor sum(Tensor input, const Shape& dims, bool keepdim = false)", CastPolicy::kFloat32,
      {{.inputs = {{"input", {3, 7}, 0.5, 2}}, .run = [](const Tensors& x) { return sum(x[0], {0}, true); }},
       {.inputs = {{"input", {3, 7}, 0.5, 2}}, .run = [](const Tensors& x) { return x[0].sum({1}); }, .terms = 7}});
  cases.op("Tensor mean(Tensor input)", CastPolicy::kFloat32,
           {{.inputs = {{"input", {3, 7}, 0.5, 2}}, .run = [](const Tensors& x) { return mean(x[0]); }}});
  cases.op(
      "Tensor mean(Tensor input, const Shape& dims, bool keepdim = false)", CastPolicy::kFloat32,
      {{.inputs = {{"input", {3, 7}, 0.5, 2}}, .run = [](const Tensors& x) { return mean(x[0], {0}); }},
       {.inputs = {{"input", {3, 7}, 0.5, 2}}, .run = [](const Tensors& x) { return x[0].mean({1}); }, .terms = 7}});
  cases.op(
      "Tensor var(Tensor input, const Shape& dims = {}, int64_t correction = 1, bool keepdim = false)",
      CastPolicy::kFloat32,
      {{.inputs = {{"input", {3, 7}, 0.5, 2}}, .run = [](const Tensors& x) { return var(x[0], {1}); }},
       {.inputs = {{"input", {3, 7}, 0.5, 2}}, .run = [](const Tensors& x) { return x[0].var({1}); }, .terms = 7}});
  cases.op("Tensor max(const Tensor& input)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return max(x[0]); }}});
  cases.op("Tensor argmax(const Tensor& input, int64_t dim, bool keepdim = false)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return argmax(x[0], 1); }, .has_gradient = false}});

  {
    for (const Case& c : kCases) {
      cases.add(reduce_case(
          "sum", c, [c](const Tensor& x) { return x.sum(c.dims, c.keepdim); }, sum_of));
    }
    const Case all{{5, 7}, {}, false, {true, true}};
    cases.add(reduce_case(
        "sum", all, [](const Tensor& x) { return x.sum(); }, sum_of));
  }

  {
    for (const Case& c : kCases) {
      cases.add(reduce_case(
          "mean", c, [c](const Tensor& x) { return x.mean(c.dims, c.keepdim); }, mean_of));
    }
    const Case all{{5, 7}, {}, false, {true, true}};
    cases.add(reduce_case(
        "mean", all, [](const Tensor& x) { return x.mean(); }, mean_of));
  }

  {
    int64_t correction = -1;
    for (const Case& c : kCases) {
      int64_t count = 1;
      for (size_t d = 0; d < c.shape.size(); ++d) count *= c.removed[d] ? c.shape[d] : 1;
      correction = correction == 2 ? -1 : correction + 1;
      const int64_t fitting = std::min(correction, count - 1);
      cases.add(reduce_case(
          "var", c, [=](const Tensor& x) { return x.var(c.dims, fitting, c.keepdim); },
          [=](const Values& values) { return var_of(values, fitting); }));
    }
    const Case all{{5, 7}, {}, false, {true, true}};
    cases.add(reduce_case(
        "var", all, [](const Tensor& x) { return x.var(); }, [](const Values& values) { return var_of(values, 1); }));
  }

  // Sizes around the blocks of long sums, for rows, columns and both, including those that need a workspace.
  {
    const Case list[] = {
        {{4095}, {0}, false, {true}},
        {{4097}, {0}, false, {true}},
        {{65537}, {0}, false, {true}},
        {{3 * 65536 + 5}, {0}, false, {true}},
        {{2, 70001}, {1}, false, {false, true}},
        {{65, 130}, {0}, false, {true, false}},
        {{1030, 129}, {0}, false, {true, false}},
        {{20011, 10}, {0}, false, {true, false}},
        {{2, 3001, 33}, {1}, false, {false, true, false}},
        {{1500, 40}, {1}, false, {false, true}},
    };
    for (const Case& c : list) {
      OpCase op = reduce_case(
          "sum", c, [c](const Tensor& x) { return x.sum(c.dims); }, sum_of);
      op.dtypes = {kFloat64, kFloat32, kBFloat16};
      cases.add(op, kValues | kThreads);
      op.run = [c](const std::vector<Tensor>& in) { return in[0].mean(c.dims); };
      op.reference = [c](const std::vector<Dense>& in) { return reduce(in[0], c.removed, c.keepdim, mean_of); };
      op.terms = 64;  // a lane of a leaf adds 128 elements sequentially
      cases.add(op, kValues);
    }
  }

  {
    const auto largest = [](const Values& values) { return *std::max_element(values.begin(), values.end()); };
    for (const Shape& shape : {Shape{33}, Shape{7, 31}, Shape{2, 3, 4}, Shape{}, Shape{1}}) {
      const Case all{shape, {}, false, std::vector<bool>(shape.size(), true)};
      OpCase op = reduce_case(
          "max", all, [](const Tensor& x) { return x.max(); }, largest);
      // Rounding to a half type makes elements equal that differ in float64, so gradients are compared from float32 on.
      cases.add(op, kValues);
      op.dtypes = {kFloat64, kFloat32};
      cases.add(op);
    }
  }

  {
    const auto first_largest = [](const Values& values) {
      return static_cast<double>(std::max_element(values.begin(), values.end()) - values.begin());
    };
    const Case list[] = {
        {{33}, {0}, true, {true}},
        {{3, 7}, {1}, false, {false, true}},
        {{7, 65}, {0}, false, {true, false}},
        {{3, 5, 4}, {-2}, true, {false, true, false}},
        {{5, 1}, {1}, false, {false, true}},
        {{}, {0}, false, {}},
    };
    for (const Case& c : list) {
      OpCase op = reduce_case(
          "argmax", c, [c](const Tensor& x) { return x.argmax(c.dims[0], c.keepdim); }, first_largest);
      op.result_dtype = kInt64;
      op.has_gradient = false;
      cases.add(op);
    }
    OpCase large = reduce_case(
        "argmax", {{600, 129}, {1}, false, {false, true}}, [](const Tensor& x) { return x.argmax(1); }, first_largest);
    large.result_dtype = kInt64;
    large.has_gradient = false;
    cases.add(large, kValues);
    cases.add(large, kThreads);
  }

  cases.benchmark("sum", matrix, [](const TensorList& in) { return sum(in[0]); });
  cases.benchmark("sum rows", matrix, [](const TensorList& in) { return sum(in[0], {1}); });
  cases.benchmark("sum columns", matrix, [](const TensorList& in) { return sum(in[0], {0}); });
  cases.benchmark("mean", matrix, [](const TensorList& in) { return mean(in[0]); });
  cases.benchmark("var", matrix, [](const TensorList& in) { return var(in[0]); });
  cases.benchmark("var columns", matrix, [](const TensorList& in) { return var(in[0], {0}); });
  cases.benchmark("max", matrix, [](const TensorList& in) { return max(in[0]); }, {.backward = false});
  cases.benchmark("argmax", matrix, [](const TensorList& in) { return argmax(in[0], 1); }, {.backward = false});
}

}  // namespace tandem::testing
