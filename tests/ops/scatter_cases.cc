// Cases of ops/index/scatter.cc.
#include <tandem/tests/ops/op_cases.h>
#include <tandem/tests/ops/view_reference.h>

namespace tandem::testing {

namespace {

using Run = std::function<Tensor(const Tensors&)>;
/// The element after a value was written to it.
using Combine = std::function<double(double, double)>;

const Combine kAssign = [](double, double value) { return value; };
const Combine kAdd = [](double old, double value) { return old + value; };

struct Shapes {
  Shape input;
  int64_t dim;
  Shape index, src;
};

/// Index repeats only if it has several indices in dimension dim.
std::vector<Input> inputs_of(const Shapes& c, const char* name = "input") {
  const double size = c.input.empty() ? 1 : static_cast<double>(c.input[static_cast<size_t>(c.dim)]);
  return {{name, c.input, 0.5, 2}, integers("index", c.index, size), {"src", c.src, 0.5, 2}};
}

double num_terms(const Shapes& c) { return static_cast<double>(num_elements(c.index) + 1); }

/// out[.., index[i], ..] = combine(out[.., index[i], ..], src[i]) in order. Values that the first write to an element
/// meets are replaced by `initial`, unless it is NaN.
Reference scatter_reference(int64_t dim, Combine combine, double initial = NAN) {
  return [=](const std::vector<Dense>& in) {
    Dense out = in[0];
    std::vector<bool> written(out.values.size());
    for (int64_t i = 0; i < in[1].numel(); ++i) {
      Shape position = unravel(in[1].shape, i);
      const double value = in[2][ravel(in[2].shape, position)];
      if (!position.empty()) position[static_cast<size_t>(dim)] = static_cast<int64_t>(in[1][i]);
      const int64_t at = ravel(out.shape, position);
      if (!written[static_cast<size_t>(at)] && !std::isnan(initial)) out[at] = initial;
      written[static_cast<size_t>(at)] = true;
      out[at] = combine(out[at], value);
    }
    return out;
  };
}

OpCase scatter_case(const char* name, const Shapes& c, Run run, Combine combine) {
  return {.name = name,
          .inputs = inputs_of(c),
          .run = [run = std::move(run)](const Tensors& x) { return run(x); },
          .reference = scatter_reference(c.dim, std::move(combine)),
          .terms = num_terms(c)};
}

/// The in-place form of a case, on a product of the first input, so that it is not saved by accident.
OpCase in_place_form(OpCase op, const char* name, std::function<void(const Tensors&)> run) {
  op.name = name;
  op.inputs[0].name = "self";
  op.run = [run = std::move(run)](Tensors x) {
    if (x[0].defined()) x[0] = x[0] * 1.0;
    run(x);
    return x[0] * 1.0;
  };
  return op;
}

/// A case of an in-place form for the registry, and one with a reference.
void add_in_place(OpCases& cases, std::string declaration, const OpCase& op, const char* name,
                  std::function<const Tensor&(const Tensors&)> run) {
  OpCase registered = {
      .inputs = op.inputs, .run = [run](const Tensors& x) { return run(x); }, .terms = op.terms, .in_place = true};
  registered.inputs[0].name = "self";
  cases.op(std::move(declaration), std::nullopt, {registered});
  cases.add(in_place_form(op, name, [run](const Tensors& x) { run(x); }));
}

struct Reduction {
  ScatterReduce reduce;
  Combine combine;
  double identity;
};

OpCase reduce_case(const Shapes& c, const Reduction& r, bool include_self) {
  OpCase op = {.name = "scatter_reduce",
               .inputs = inputs_of(c),
               .run = [dim = c.dim, reduce = r.reduce, include_self](
                          const Tensors& x) { return scatter_reduce(x[0], dim, x[1], x[2], reduce, include_self); },
               .reference = scatter_reference(c.dim, r.combine, include_self ? NAN : r.identity),
               .tolerance = 16,
               .terms = num_terms(c)};
  if (r.reduce == ScatterReduce::kMean) {
    op.reference = [dim = c.dim, include_self](const std::vector<Dense>& in) {
      Dense sums = scatter_reference(dim, kAdd, include_self ? NAN : 0)(in);
      Dense ones = in[2], counts = in[0];
      std::fill(ones.values.begin(), ones.values.end(), 1);
      std::fill(counts.values.begin(), counts.values.end(), include_self ? 1 : 0);
      counts = scatter_reference(dim, kAdd)({counts, in[1], ones});
      for (int64_t i = 0; i < sums.numel(); ++i) sums[i] /= std::max(counts[i], 1.0);
      return sums;
    };
  }
  return op;
}

/// index_add and index_copy: index [n], source with n slices.
OpCase slices_case(const char* name, const Shape& input, int64_t dim, int64_t n, Run run, Combine combine) {
  const size_t d = static_cast<size_t>(dim);
  Shape source = input;
  source[d] = n;
  return {.name = name,
          .inputs = {{"input", input}, integers("index", {n}, static_cast<double>(input[d])), {"source", source}},
          .run = [run = std::move(run)](const Tensors& x) { return run(x); },
          .reference =
              [=](const std::vector<Dense>& in) {
                Dense index = in[2];
                for (int64_t i = 0; i < index.numel(); ++i) index[i] = in[1][unravel(index.shape, i)[d]];
                return scatter_reference(dim, combine)({in[0], index, in[2]});
              },
          .terms = static_cast<double>(n + 1)};
}

/// A tensor input and an index; all selected elements, or slices, become 2.
OpCase fill_case(const char* name, const Shape& input, int64_t dim, const Shape& index, Run run) {
  const double size = input.empty() ? 1 : static_cast<double>(input[static_cast<size_t>(dim)]);
  return recorded_case({.name = name,
                        .inputs = {{"input", input}, integers("index", index, size)},
                        .run = [run = std::move(run)](const Tensors& x) { return run(x); }});
}

TensorList nodes() { return {randn({4096, 64}), randn({16384, 64})}; }

}  // namespace

TANDEM_OP_CASES(scatter) {
  const Run fill = [](const Tensors& x) { return scatter(x[0], -1, x[1], 2); };
  const Run assign = [](const Tensors& x) { return scatter(x[0], 1, x[1], x[2]); };
  const Run add_to = [](const Tensors& x) { return scatter_add(x[0], 1, x[1], x[2]); };
  const Shapes once = {{3, 7}, 1, {3, 1}, {3, 2}}, repeated = {{4, 5, 3}, 1, {3, 9, 2}, {4, 9, 3}};
  const Run assign_first = [](const Tensors& x) { return scatter(x[0], 0, x[1], x[2]); };

  cases.op(
      "Tensor scatter(Tensor input, int64_t dim, const Tensor& index, Tensor src)", CastPolicy::kWidest,
      {scatter_case("scatter", once, assign, kAssign), scatter_case("scatter", {{}, 0, {}, {}}, assign_first, kAssign),
       scatter_case("scatter", {{5, 3}, 0, {1, 3}, {1, 3}}, assign_first, kAssign),
       scatter_case("scatter", {{3}, 0, {0}, {3}}, assign_first, kAssign)});
  cases.add(scatter_case("scatter", repeated, assign, kAssign), kValues | kThreads);
  cases.op("Tensor scatter(const Tensor& input, int64_t dim, const Tensor& index, Scalar value)", std::nullopt,
           {fill_case("scatter", {3, 7}, 1, {2, 5}, fill)});
  cases.op(
      "Tensor scatter_add(Tensor input, int64_t dim, const Tensor& index, Tensor src)", CastPolicy::kWidest,
      {scatter_case("scatter_add", once, add_to, kAdd), scatter_case("scatter_add", repeated, add_to, kAdd),
       scatter_case(
           "scatter_add", {{}, 0, {}, {}}, [](const Tensors& x) { return scatter_add(x[0], -1, x[1], x[2]); }, kAdd)});
  cases.add(scatter_case("scatter_add", {{7, 9, 300}, 1, {7, 11, 300}, {7, 11, 300}}, add_to, kAdd),
            kValues | kThreads);

  const Reduction reductions[] = {
      {ScatterReduce::kSum, kAdd, 0},
      {ScatterReduce::kProd, [](double old, double value) { return old * value; }, 1},
      {ScatterReduce::kMean, kAdd, 0},
      {ScatterReduce::kAmax, [](double old, double value) { return std::max(old, value); }, -INFINITY},
      {ScatterReduce::kAmin, [](double old, double value) { return std::min(old, value); }, INFINITY}};
  const Shapes small = {{3, 5}, 1, {2, 4}, {3, 4}};
  std::vector<OpCase> reduce_cases;
  for (const Reduction& r : reductions) {
    for (const bool include_self : {true, false}) {
      reduce_cases.push_back(reduce_case(small, r, include_self));
      cases.add(reduce_case({{6, 200}, 0, {9, 200}, {9, 200}}, r, include_self), kValues | kThreads);
    }
  }
  cases.op(
      "Tensor scatter_reduce(Tensor input, int64_t dim, const Tensor& index, Tensor src, ScatterReduce reduce, "
      "bool include_self = true)",
      CastPolicy::kWidest, reduce_cases);

  add_in_place(
      cases, "const Tensor& scatter_(int64_t dim, const Tensor& index, const Tensor& src) const",
      scatter_case("scatter", once, assign, kAssign), "scatter_",
      [](const Tensors& x) -> auto& { return x[0].scatter_(1, x[1], x[2]); });
  add_in_place(
      cases, "const Tensor& scatter_(int64_t dim, const Tensor& index, Scalar value) const",
      fill_case("scatter_", {3, 7}, 1, {2, 5}, fill), "scatter_",
      [](const Tensors& x) -> auto& { return x[0].scatter_(1, x[1], 2); });
  add_in_place(
      cases, "const Tensor& scatter_add_(int64_t dim, const Tensor& index, const Tensor& src) const",
      scatter_case("scatter_add", repeated, add_to, kAdd), "scatter_add_",
      [](const Tensors& x) -> auto& { return x[0].scatter_add_(1, x[1], x[2]); });
  add_in_place(
      cases,
      "const Tensor& scatter_reduce_(int64_t dim, const Tensor& index, const Tensor& src, ScatterReduce "
      "reduce, bool include_self = true) const",
      reduce_case(small, reductions[3], false), "scatter_reduce_",
      [](const Tensors& x) -> auto& { return x[0].scatter_reduce_(1, x[1], x[2], ScatterReduce::kAmax, false); });

  const auto add_slices = [](int64_t dim) {
    return [dim](const Tensors& x) { return index_add(x[0], dim, x[1], x[2], 2); };
  };
  const Combine add_double = [](double old, double value) { return old + 2 * value; };
  cases.op("Tensor index_add(Tensor input, int64_t dim, const Tensor& index, Tensor source, Scalar alpha = 1)",
           CastPolicy::kWidest,
           {slices_case("index_add", {3, 7}, 1, 4, add_slices(1), add_double),
            slices_case("index_add", {5}, 0, 33, add_slices(-1), add_double),
            slices_case("index_add", {4, 5, 3}, 1, 7, add_slices(1), add_double),
            slices_case("index_add", {4, 3}, 0, 0, add_slices(0), add_double)});
  cases.add(slices_case("index_add", {33, 300}, 0, 90, add_slices(0), add_double), kValues | kThreads);
  const Run copy_slices = [](const Tensors& x) { return index_copy(x[0], 1, x[1], x[2]); };
  cases.op("Tensor index_copy(Tensor input, int64_t dim, const Tensor& index, Tensor source)", CastPolicy::kWidest,
           {slices_case("index_copy", {3, 7, 2}, 1, 1, copy_slices, kAssign)});
  cases.add(slices_case("index_copy", {3, 7, 2}, 1, 20, copy_slices, kAssign), kValues | kThreads);
  const Run fill_slices = [](const Tensors& x) { return index_fill(x[0], 1, x[1], 2); };
  cases.op(
      "Tensor index_fill(const Tensor& input, int64_t dim, const Tensor& index, Scalar value)", std::nullopt,
      {fill_case("index_fill", {3, 7}, 1, {4}, fill_slices), fill_case("index_fill", {2, 5, 3}, 1, {0}, fill_slices)});

  add_in_place(
      cases,
      "const Tensor& index_add_(int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha = 1) "
      "const",
      slices_case("index_add", {3, 7}, 1, 4, {}, add_double), "index_add_",
      [](const Tensors& x) -> auto& { return x[0].index_add_(1, x[1], x[2], 2); });
  add_in_place(
      cases, "const Tensor& index_copy_(int64_t dim, const Tensor& index, const Tensor& source) const",
      slices_case("index_copy", {3, 7, 2}, 1, 1, {}, kAssign), "index_copy_",
      [](const Tensors& x) -> auto& { return x[0].index_copy_(1, x[1], x[2]); });
  add_in_place(
      cases, "const Tensor& index_fill_(int64_t dim, const Tensor& index, Scalar value) const",
      fill_case("index_fill", {3, 7}, 1, {4}, fill_slices), "index_fill_",
      [](const Tensors& x) -> auto& { return x[0].index_fill_(1, x[1], 2); });

  const Tensor columns = randint(0, 4096, {16384, 1}).expand({16384, 64}).clone(), rows = randint(0, 4096, {16384});
  cases.benchmark("scatter", nodes, [columns](const TensorList& in) { return scatter(in[0], 0, columns, in[1]); });
  cases.benchmark("scatter_add", nodes,
                  [columns](const TensorList& in) { return scatter_add(in[0], 0, columns, in[1]); });
  cases.benchmark("scatter_reduce amax", nodes, [columns](const TensorList& in) {
    return scatter_reduce(in[0], 0, columns, in[1], ScatterReduce::kAmax);
  });
  cases.benchmark("index_add", nodes, [rows](const TensorList& in) { return index_add(in[0], 0, rows, in[1]); });
  cases.benchmark("index_copy", nodes, [rows](const TensorList& in) { return index_copy(in[0], 0, rows, in[1]); });
  cases.benchmark("index_fill", {{4096, 64}}, [rows](const TensorList& in) { return index_fill(in[0], 0, rows, 0); });
}

}  // namespace tandem::testing
