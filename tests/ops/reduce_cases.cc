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
double var_of(const Values& values, double correction) {
  const long double mean = mean_of(values);
  long double total = 0;
  for (double value : values) total += (value - mean) * (value - mean);
  return static_cast<double>(total / (static_cast<long double>(values.size()) - correction));
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
  for (int64_t i = 0; i < in.numel(); ++i) {
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

OpCase reduce_case(const char* name, const Case& c, std::function<double(const Values&)> f,
                   std::function<Tensor(const Tensor&)> run) {
  OpCase op;
  op.name = name;
  op.inputs = {{"input", c.shape}};
  op.run = [run](const std::vector<Tensor>& in) { return run(in[0]); };
  op.reference = [c, f](const std::vector<Dense>& in) { return reduce(in[0], c.removed, c.keepdim, f); };
  op.terms = static_cast<double>(std::max<int64_t>(num_elements(c.shape), 1));
  return op;
}

double prod_of(const Values& values) {
  double product = 1;
  for (double value : values) product *= value;
  return product;
}

double norm_of(const Values& values, double p) {
  Values magnitudes;
  for (double value : values) magnitudes.push_back(std::abs(value));
  if (std::isinf(p)) {
    return p > 0 ? *std::max_element(magnitudes.begin(), magnitudes.end())
                 : *std::min_element(magnitudes.begin(), magnitudes.end());
  }
  long double total = 0;
  for (double value : magnitudes) total += p == 0 ? value != 0 : std::pow(value, p);
  return static_cast<double>(p == 0 ? total : std::pow(total, 1 / static_cast<long double>(p)));
}

double logsumexp_of(const Values& values) {
  double total = 0;
  for (double value : values) total += std::exp(value);
  return std::log(total);
}

double largest_of(const Values& values) { return *std::max_element(values.begin(), values.end()); }
double smallest_of(const Values& values) { return *std::min_element(values.begin(), values.end()); }
double position_of_largest(const Values& values) {
  return static_cast<double>(std::max_element(values.begin(), values.end()) - values.begin());
}
double position_of_smallest(const Values& values) {
  return static_cast<double>(std::min_element(values.begin(), values.end()) - values.begin());
}

bool is_true(double value) { return value != 0; }
double count_of(const Values& values) {
  return static_cast<double>(std::count_if(values.begin(), values.end(), is_true));
}

/// Checks of a case of the loops below: gradients, which cost two runs per element, of small inputs only.
unsigned checks_of(const OpCase& op) {
  return num_elements(op.inputs[0].shape) <= 64 ? kAllChecks : kAllChecks & ~kGradients;
}

void add_case(OpCases& cases, const OpCase& op) { cases.add(op, checks_of(op)); }

/// A case that selects elements. Rounding to a half type makes elements equal that differ in float64, so gradients are
/// compared from float32 on.
void add_selection(OpCases& cases, OpCase op) {
  cases.add(op, kValues);
  op.dtypes = {kFloat64, kFloat32};
  add_case(cases, op);
}

/// A case without gradient whose result has a dtype of its own.
void add_integral(OpCases& cases, OpCase op, DType dtype, unsigned checks = kAllChecks) {
  op.result_dtype = dtype;
  op.has_gradient = false;
  cases.add(op, checks);
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
      "Tensor var(Tensor input, const Shape& dims = {}, double correction = 1, bool keepdim = false)",
      CastPolicy::kFloat32,
      {{.inputs = {{"input", {3, 7}, 0.5, 2}}, .run = [](const Tensors& x) { return var(x[0], {1}); }},
       {.inputs = {{"input", {3, 7}, 0.5, 2}}, .run = [](const Tensors& x) { return x[0].var({1}); }, .terms = 7}});
  cases.op("Tensor max(const Tensor& input)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return max(x[0]); }}});
  cases.op("Tensor min(const Tensor& input)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return min(x[0]); }}});
  cases.op("Tensor amax(const Tensor& input, const Shape& dims = {}, bool keepdim = false)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return amax(x[0], {1}, true); }}});
  cases.op("Tensor amin(const Tensor& input, const Shape& dims = {}, bool keepdim = false)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return amin(x[0], {0}); }}});
  const auto both = [](const ValuesIndices& result) { return Tensors{result.values, result.indices}; };
  cases.op("ValuesIndices max(const Tensor& input, int64_t dim, bool keepdim = false)", std::nullopt,
           {{.inputs = input, .run = [=](const Tensors& x) { return both(max(x[0], 1, true)); }}});
  cases.op("ValuesIndices min(const Tensor& input, int64_t dim, bool keepdim = false)", std::nullopt,
           {{.inputs = input, .run = [=](const Tensors& x) { return both(min(x[0], 0)); }}});
  cases.op("Tensor argmax(const Tensor& input)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return argmax(x[0]); }, .has_gradient = false}});
  cases.op("Tensor argmin(const Tensor& input)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return argmin(x[0]); }, .has_gradient = false}});
  cases.op("Tensor argmax(const Tensor& input, int64_t dim, bool keepdim = false)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return argmax(x[0], 1); }, .has_gradient = false}});
  cases.op("Tensor argmin(const Tensor& input, int64_t dim, bool keepdim = false)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return argmin(x[0], 1); }, .has_gradient = false}});
  cases.op("Tensor any(const Tensor& input, const Shape& dims = {}, bool keepdim = false)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return any(x[0], {1}); }, .has_gradient = false}});
  cases.op("Tensor all(const Tensor& input, const Shape& dims = {}, bool keepdim = false)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return all(x[0], {0}); }, .has_gradient = false}});
  cases.op("Tensor std(Tensor input, const Shape& dims = {}, double correction = 1, bool keepdim = false)",
           CastPolicy::kFloat32,
           {{.inputs = {{"input", {3, 7}, 0.5, 2}}, .run = [](const Tensors& x) { return std(x[0], {1}, 0.5); }}});
  cases.op("Tensor norm(Tensor input, double p = 2, const Shape& dims = {}, bool keepdim = false)",
           CastPolicy::kFloat32,
           {{.inputs = input, .run = [](const Tensors& x) { return norm(x[0], 3, {1}, true); }, .terms = 7}});
  cases.op("Tensor prod(Tensor input)", CastPolicy::kFloat32,
           {{.inputs = {{"input", {2, 3}}}, .run = [](const Tensors& x) { return prod(x[0]); }, .terms = 6}});
  cases.op("Tensor prod(Tensor input, int64_t dim, bool keepdim = false)", CastPolicy::kFloat32,
           {{.inputs = input, .run = [](const Tensors& x) { return prod(x[0], 1, true); }, .terms = 7}});
  cases.op("Tensor logsumexp(Tensor input, const Shape& dims, bool keepdim = false)", CastPolicy::kFloat32,
           {{.inputs = input, .run = [](const Tensors& x) { return logsumexp(x[0], {0}, true); }, .terms = 3}});
  cases.op("Tensor nansum(Tensor input, const Shape& dims = {}, bool keepdim = false)", CastPolicy::kFloat32,
           {{.inputs = input, .run = [](const Tensors& x) { return nansum(x[0], {0}, true); }, .terms = 3}});
  cases.op("Tensor nanmean(Tensor input, const Shape& dims = {}, bool keepdim = false)", CastPolicy::kFloat32,
           {{.inputs = input, .run = [](const Tensors& x) { return nanmean(x[0], {0}, true); }, .terms = 3}});
  cases.op(
      "Tensor count_nonzero(const Tensor& input, const Shape& dims = {})", std::nullopt,
      {{.inputs = input, .run = [](const Tensors& x) { return count_nonzero(x[0], {0}); }, .has_gradient = false}});
  {
    // {the result, an unused one}: only the first is compared.
    OpCase op = reduce_case(
        "var_mean", {{7, 31}, {1}, false, {false, true}}, [](const Values& values) { return var_of(values, 1); },
        [](const Tensor& x) { return var_mean(x, {1}).first; });
    cases.op(
        "std::pair<Tensor, Tensor> var_mean(Tensor input, const Shape& dims = {}, double correction = 1, "
        "bool keepdim = false)",
        CastPolicy::kFloat32, {op});
    op.run = [](const Tensors& x) { return var_mean(x[0], {1}).second; };
    op.reference = [](const std::vector<Dense>& in) { return reduce(in[0], {false, true}, false, mean_of); };
    cases.add(op);
    op.name = "std_mean";
    cases.op(
        "std::pair<Tensor, Tensor> std_mean(Tensor input, const Shape& dims = {}, double correction = 1, "
        "bool keepdim = false)",
        CastPolicy::kFloat32,
        {{.inputs = input,
          .run =
              [](const Tensors& x) {
                const auto [deviation, average] = std_mean(x[0], {1});
                return Tensors{deviation, average};
              },
          .terms = 7}});
    op.run = [](const Tensors& x) { return std_mean(x[0], {1}).second; };
    cases.add(op);
  }
  {
    OpCase op;
    op.inputs = {integers("input", {33}, 5), optional(constant({"weights", {33}}))};
    op.run = [](const Tensors& x) { return bincount(x[0], x[1], 3); };
    op.reference = [](const std::vector<Dense>& in) {
      Dense out = dense_zeros({static_cast<int64_t>(std::max(largest_of(in[0].values) + 1, 3.0))});
      for (int64_t i = 0; i < in[0].numel(); ++i) out[static_cast<int64_t>(in[0][i])] += in[1][i];
      return out;
    };
    op.terms = 33;
    op.dtypes = {kFloat64, kFloat32};
    op.has_gradient = false;
    cases.op("Tensor bincount(const Tensor& input, const Tensor& weights = {}, int64_t minlength = 0)", std::nullopt,
             {op});
  }

  {
    for (const Case& c : kCases) {
      cases.add(reduce_case("sum", c, sum_of, [c](const Tensor& x) { return x.sum(c.dims, c.keepdim); }));
    }
    const Case all{{5, 7}, {}, false, {true, true}};
    cases.add(reduce_case("sum", all, sum_of, [](const Tensor& x) { return x.sum(); }));
  }

  {
    for (const Case& c : kCases) {
      cases.add(reduce_case("mean", c, mean_of, [c](const Tensor& x) { return x.mean(c.dims, c.keepdim); }));
    }
    const Case all{{5, 7}, {}, false, {true, true}};
    cases.add(reduce_case("mean", all, mean_of, [](const Tensor& x) { return x.mean(); }));
  }

  {
    int64_t correction = -1;
    for (const Case& c : kCases) {
      int64_t count = 1;
      for (size_t d = 0; d < c.shape.size(); ++d) count *= c.removed[d] ? c.shape[d] : 1;
      correction = correction == 2 ? -1 : correction + 1;
      const int64_t fitting = std::min(correction, count - 1);
      cases.add(reduce_case(
          "var", c, [=](const Values& values) { return var_of(values, fitting); },
          [=](const Tensor& x) { return x.var(c.dims, fitting, c.keepdim); }));
    }
    for (const Case& c : kCases) {
      int64_t count = 1;
      for (size_t d = 0; d < c.shape.size(); ++d) count *= c.removed[d] ? c.shape[d] : 1;
      const double less = count > 1 ? 0.75 : 0;
      add_case(cases, reduce_case(
                          "std", c, [=](const Values& values) { return std::sqrt(var_of(values, less)); },
                          [=](const Tensor& x) { return x.std(c.dims, less, c.keepdim); }));
    }
    const Case all{{5, 7}, {}, false, {true, true}};
    cases.add(reduce_case(
        "var", all, [](const Values& values) { return var_of(values, 1); }, [](const Tensor& x) { return x.var(); }));
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
      OpCase op = reduce_case("sum", c, sum_of, [c](const Tensor& x) { return x.sum(c.dims); });
      op.dtypes = {kFloat64, kFloat32, kBFloat16};
      cases.add(op, kValues | kThreads);
      op.run = [c](const std::vector<Tensor>& in) { return in[0].mean(c.dims); };
      op.reference = [c](const std::vector<Dense>& in) { return reduce(in[0], c.removed, c.keepdim, mean_of); };
      op.terms = 64;  // a lane of a leaf adds 128 elements sequentially
      cases.add(op, kValues);
    }
  }

  for (const Case& c : kCases) {
    for (const double p : {2.0, 1.0, 3.0, 1.5, double{INFINITY}, -double{INFINITY}, 0.5, -2.0}) {
      OpCase op = reduce_case(
          "norm", c, [=](const Values& values) { return norm_of(values, p); },
          [=](const Tensor& x) { return x.norm(p, c.dims, c.keepdim); });
      if (p < 2) op.inputs[0].low = 0.5;  // derivatives are large near 0
      if (std::isinf(p)) {
        add_selection(cases, op);
      } else {
        cases.add(op, checks_of(op) & (p == 2 || p == 1.5 ? kAllChecks : kValues | kGradients));
      }
    }
    const auto is_present = [](const Values& values) { return count_of(values) > 0 ? 1.0 : 0.0; };
    const auto is_complete = [](const Values& values) {
      return count_of(values) == static_cast<double>(values.size()) ? 1.0 : 0.0;
    };
    OpCase any_case = reduce_case("any", c, is_present, [=](const Tensor& x) { return x.any(c.dims, c.keepdim); });
    any_case.inputs = {bools("input", c.shape)};
    add_integral(cases, any_case, kBool);
    OpCase all_case = reduce_case("all", c, is_complete, [=](const Tensor& x) { return x.all(c.dims, c.keepdim); });
    all_case.inputs = {integers("input", c.shape, 4)};
    add_integral(cases, all_case, kBool);
    OpCase count = reduce_case("count_nonzero", c, count_of, [=](const Tensor& x) { return x.count_nonzero(c.dims); });
    count.inputs = {integers("input", c.shape, 3)};
    if (!c.keepdim) add_integral(cases, count, kInt64);

    add_case(cases, reduce_case("logsumexp", c, logsumexp_of,
                                [=](const Tensor& x) { return x.logsumexp(c.dims, c.keepdim); }));
    add_case(cases, reduce_case("nansum", c, sum_of, [=](const Tensor& x) { return x.nansum(c.dims, c.keepdim); }));
    add_case(cases, reduce_case("nanmean", c, mean_of, [=](const Tensor& x) { return x.nanmean(c.dims, c.keepdim); }));
    add_selection(cases,
                  reduce_case("amax", c, largest_of, [=](const Tensor& x) { return x.amax(c.dims, c.keepdim); }));
    add_selection(cases,
                  reduce_case("amin", c, smallest_of, [=](const Tensor& x) { return x.amin(c.dims, c.keepdim); }));
    if (c.dims.size() != 1) continue;
    const int64_t dim = c.dims[0];
    OpCase product = reduce_case("prod", c, prod_of, [=](const Tensor& x) { return x.prod(dim, c.keepdim); });
    product.inputs[0].low = -1.2;
    product.inputs[0].high = 1.2;
    product.terms *= 2;
    add_case(cases, product);
    add_selection(cases,
                  reduce_case("max", c, largest_of, [=](const Tensor& x) { return x.max(dim, c.keepdim).values; }));
    add_selection(cases,
                  reduce_case("min", c, smallest_of, [=](const Tensor& x) { return x.min(dim, c.keepdim).values; }));
    add_integral(
        cases, reduce_case("argmax", c, position_of_largest, [=](const Tensor& x) { return x.argmax(dim, c.keepdim); }),
        kInt64);
    add_integral(
        cases,
        reduce_case("argmin", c, position_of_smallest, [=](const Tensor& x) { return x.argmin(dim, c.keepdim); }),
        kInt64);
    add_integral(
        cases,
        reduce_case("max", c, position_of_largest, [=](const Tensor& x) { return x.max(dim, c.keepdim).indices; }),
        kInt64);
  }

  for (const Shape& shape : {Shape{33}, Shape{7, 31}, Shape{2, 3, 4}, Shape{}, Shape{1}}) {
    const Case all{shape, {}, false, std::vector<bool>(shape.size(), true)};
    add_selection(cases, reduce_case("max", all, largest_of, [](const Tensor& x) { return x.max(); }));
    add_selection(cases, reduce_case("min", all, smallest_of, [](const Tensor& x) { return x.min(); }));
    add_integral(cases, reduce_case("argmax", all, position_of_largest, [](const Tensor& x) { return x.argmax(); }),
                 kInt64);
    add_integral(cases, reduce_case("argmin", all, position_of_smallest, [](const Tensor& x) { return x.argmin(); }),
                 kInt64);
    OpCase product = reduce_case("prod", all, prod_of, [](const Tensor& x) { return x.prod(); });
    product.inputs[0].low = -1.2;
    product.inputs[0].high = 1.2;
    cases.add(product);
  }

  // Long rows, many columns, and long sequences, which are reduced in chunks.
  for (const Case& c : {Case{{600, 129}, {1}, false, {false, true}}, Case{{129, 600}, {0}, false, {true, false}},
                        Case{{5, 20, 1000}, {1}, false, {false, true, false}}, Case{{200003}, {0}, false, {true}}}) {
    OpCase op = reduce_case("amax", c, largest_of, [=](const Tensor& x) { return amax(x, c.dims); });
    op.dtypes = {kFloat64, kFloat32, kBFloat16};
    cases.add(op, kValues);
    op.has_gradient = false;
    cases.add(op, kThreads);
    OpCase positions =
        reduce_case("argmin", c, position_of_smallest, [=](const Tensor& x) { return argmin(x, c.dims[0]); });
    add_integral(cases, positions, kInt64, kValues | kThreads);
    op = reduce_case(
        "norm", c, [](const Values& values) { return norm_of(values, 2); },
        [=](const Tensor& x) { return norm(x, 2, c.dims); });
    op.terms = 64;
    cases.add(op, kValues | kThreads);
  }

  cases.benchmark("var columns", matrix, [](const TensorList& in) { return var(in[0], {0}); });
  cases.benchmark("max columns", matrix, [](const TensorList& in) { return max(in[0], 0).values; });
  cases.benchmark("amax columns", matrix, [](const TensorList& in) { return amax(in[0], {0}); });
  cases.benchmark("amin", matrix, [](const TensorList& in) { return amin(in[0], {1}); });
  cases.benchmark("argmin", matrix, [](const TensorList& in) { return argmin(in[0], 0); }, {.backward = false});
  cases.benchmark("var_mean", matrix, [](const TensorList& in) { return var_mean(in[0], {1}).first; });
  cases.benchmark("std_mean", matrix, [](const TensorList& in) { return std_mean(in[0], {1}).first; });
  cases.benchmark("norm p=1", matrix, [](const TensorList& in) { return norm(in[0], 1, {1}); });
  cases.benchmark("nansum", matrix, [](const TensorList& in) { return nansum(in[0], {1}); });
  cases.benchmark("nanmean", matrix, [](const TensorList& in) { return nanmean(in[0], {1}); });
  const auto flags = [] { return TensorList{gt(randn({2048, 1024}), 0)}; };
  cases.benchmark("any", flags, [](const TensorList& in) { return any(in[0]); }, {.backward = false});
  cases.benchmark("all", flags, [](const TensorList& in) { return all(in[0], {1}); }, {.backward = false});
  cases.benchmark("count_nonzero", flags, [](const TensorList& in) { return count_nonzero(in[0]); },
                  {.backward = false});
  cases.benchmark(
      "bincount", [] { return TensorList{randint(0, 1000, {1 << 20})}; },
      [](const TensorList& in) { return bincount(in[0]); }, {.backward = false});
}

}  // namespace tandem::testing
