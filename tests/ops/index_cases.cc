#include <tandem/tests/ops/op_cases.h>
#include <tandem/tests/ops/view_reference.h>

namespace tandem::testing {

namespace {

using Values = std::vector<double>;

OpCase gather_case(const Shape& input, int64_t dim, const Shape& index) {
  OpCase op;
  op.name = "gather";
  const size_t d = static_cast<size_t>(dim < 0 ? dim + input.dim() : dim);
  const double size = input.empty() ? 1 : static_cast<double>(input[d]);
  op.inputs = {{"input", input}, {"index", index, 0, size, kInt64, false}};
  op.run = [dim](const std::vector<Tensor>& in) { return gather(in[0], dim, in[1]); };
  op.reference = [d](const std::vector<Dense>& in) {
    Dense out = dense_zeros(in[1].shape);
    for (int64_t i = 0; i < out.numel(); ++i) {
      Shape position = unravel(out.shape, i);
      if (!position.empty()) position[d] = static_cast<int64_t>(in[1][i]);
      out[i] = in[0][ravel(in[0].shape, position)];
    }
    return out;
  };
  op.terms = static_cast<double>(std::max<int64_t>(num_elements(index), 1));  // if all indices select the same element
  return op;
}

OpCase index_select_case(const Shape& input, int64_t dim, int64_t n) {
  OpCase op;
  op.name = "index_select";
  const size_t d = static_cast<size_t>(dim < 0 ? dim + input.dim() : dim);
  op.inputs = {{"input", input}, {"index", {n}, 0, static_cast<double>(input[d]), kInt64, false}};
  op.run = [dim](const std::vector<Tensor>& in) { return index_select(in[0], dim, in[1]); };
  op.reference = [d](const std::vector<Dense>& in) {
    Shape shape = in[0].shape;
    shape[d] = in[1].numel();
    Dense out = dense_zeros(shape);
    for (int64_t i = 0; i < out.numel(); ++i) {
      Shape position = unravel(shape, i);
      position[d] = static_cast<int64_t>(in[1][position[d]]);
      out[i] = in[0][ravel(in[0].shape, position)];
    }
    return out;
  };
  op.terms = static_cast<double>(std::max<int64_t>(n, 1));
  return op;
}

OpCase topk_case(const Shape& shape, int64_t k, int64_t dim, bool largest) {
  OpCase op;
  op.name = "topk";
  op.inputs = {{"input", shape}};
  op.run = [=](const std::vector<Tensor>& in) { return topk(in[0], k, dim, largest).values; };
  op.reference = [=](const std::vector<Dense>& in) {
    const size_t d = static_cast<size_t>(dim < 0 ? dim + shape.dim() : dim);
    Shape result = shape;
    if (!result.empty()) result[d] = k;
    Dense out = dense_zeros(result);
    for (int64_t i = 0; i < out.numel(); ++i) {
      Shape position = unravel(result, i);
      const int64_t rank = result.empty() ? 0 : position[d];
      Values line;
      for (int64_t s = 0; s < (shape.empty() ? 1 : shape[d]); ++s) {
        if (!position.empty()) position[d] = s;
        line.push_back(in[0][ravel(shape, position)]);
      }
      std::sort(line.begin(), line.end());
      if (largest) std::reverse(line.begin(), line.end());
      out[i] = line[static_cast<size_t>(rank)];
    }
    return out;
  };
  return op;
}

TensorList scores() { return {randn({512, 1000})}; }

}  // namespace

TANDEM_OP_CASES(index) {
  const std::vector<Input> input = {{"input", {3, 7}}};
  cases.op("Tensor gather(const Tensor& input, int64_t dim, const Tensor& index)", std::nullopt,
           {gather_case({3, 7}, 1, {2, 5}), gather_case({}, 0, {}), gather_case({7}, 0, {33}),
            gather_case({3, 7}, 1, {3, 4}), gather_case({5, 3}, 0, {7, 3}), gather_case({4, 5, 3}, -2, {4, 2, 3}),
            gather_case({4, 5, 3}, 2, {3, 5, 9}),  // index is smaller than input in a dimension
            gather_case({4, 5, 3}, 0, {6, 2, 1}), gather_case({3, 2}, 1, {3, 0})});
  cases.op("Tensor index_select(const Tensor& input, int64_t dim, const Tensor& index)", std::nullopt,
           {index_select_case({3, 7}, 1, 4), index_select_case({7}, 0, 33), index_select_case({7, 3}, 0, 5),
            index_select_case({3, 7}, -1, 9), index_select_case({4, 5, 3}, 1, 2), index_select_case({4, 5, 3}, -3, 7),
            index_select_case({4, 3}, 0, 0), index_select_case({4, 0}, 0, 3)});
  cases.op("Tensor one_hot(const Tensor& labels, int64_t num_classes)", std::nullopt,
           {{.inputs = {integers("labels", {3}, 5)},
             .run = [](const Tensors& x) { return one_hot(x[0], 5); },
             .has_gradient = false}});
  cases.op(
      "ValuesIndices topk(const Tensor& input, int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true)",
      std::nullopt, {{.inputs = input, .run = [](const Tensors& x) {
                        const ValuesIndices both = topk(x[0], 2, 0);
                        return Tensors{both.values, both.indices};
                      }}});
  cases.op("Tensor masked_fill(const Tensor& input, const Tensor& mask, Scalar value)", std::nullopt,
           {{.inputs = {{"input", {3, 7}}, bools("mask", {7})},
             .run = [](const Tensors& x) { return masked_fill(x[0], x[1], 2.5); },
             .broadcasts = true}});
  cases.op("Tensor tril(const Tensor& input, int64_t diagonal = 0)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return tril(x[0], 1); }}});
  cases.op("Tensor triu(const Tensor& input, int64_t diagonal = 0)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return triu(x[0], 1); }}});

  {
    OpCase op = gather_case({7, 9, 300}, 1, {7, 11, 300});
    cases.add(op, kValues);
    cases.add(op, kThreads);
  }

  for (const OpCase& op : {index_select_case({33, 300}, 0, 90), index_select_case({20, 30, 31}, 1, 40)}) {
    cases.add(op, kValues | kThreads);
  }

  for (const Shape& shape : {Shape{7}, Shape{3, 5}, Shape{}, Shape{0, 2}}) {
    OpCase op;
    op.name = "one_hot";
    op.inputs = {{"labels", shape, 0, 4, kInt64, false}};
    op.run = [](const std::vector<Tensor>& in) { return one_hot(in[0], 5); };
    op.result_dtype = kInt64;
    op.has_gradient = false;
    cases.add(recorded_case(op));
  }

  for (bool largest : {true, false}) {
    for (OpCase op :
         {topk_case({33}, 7, 0, largest), topk_case({3, 31}, 31, -1, largest), topk_case({7, 3}, 3, 0, largest),
          topk_case({2, 5, 3}, 2, 1, largest), topk_case({}, 1, 0, largest), topk_case({3, 4}, 0, 1, largest),
          topk_case({0, 4}, 2, 1, largest)}) {
      cases.add(op, kValues);
      op.dtypes = {kFloat64, kFloat32};  // rounding to a half type makes elements equal that differ in float64
      cases.add(op);
    }
  }

  {
    const OpCase op = topk_case({70, 300}, 5, 1, true);
    cases.add(op, kValues);
    cases.add(op, kThreads);
  }

  {
    const std::pair<Shape, Shape> shapes[] = {{{3, 7}, {3, 7}}, {{2, 3, 33}, {3, 33}}, {{3, 1}, {1, 4}}, {{7}, {5, 7}},
                                              {{}, {}},         {{0, 3}, {3}}};
    for (const auto& [shape, mask] : shapes) {
      OpCase op;
      op.name = "masked_fill";
      op.inputs = {{"input", shape}, {"mask", mask, 0, 2, kBool, false}};
      op.run = [](const std::vector<Tensor>& in) { return in[0].masked_fill(in[1], -1.5); };
      cases.add(recorded_case(op));
    }
  }

  for (const Shape& shape :
       {Shape{5, 5}, Shape{3, 7}, Shape{7, 3}, Shape{2, 3, 4, 5}, Shape{1, 1}, Shape{3, 0}, Shape{0, 3}}) {
    for (int64_t diagonal : {-9, -2, 0, 1, 3, 9}) {
      for (const bool upper : {false, true}) {
        OpCase op;
        op.name = upper ? "triu" : "tril";
        op.inputs = {{"input", shape}};
        op.run = [=](const std::vector<Tensor>& in) { return upper ? triu(in[0], diagonal) : tril(in[0], diagonal); };
        cases.add(recorded_case(op));
      }
    }
  }

  cases.benchmark("gather", scores,
                  [index = randint(0, 1000, {512, 1000})](const TensorList& in) { return gather(in[0], 1, index); });
  cases.benchmark("index_select rows", scores,
                  [index = randint(0, 512, {512})](const TensorList& in) { return index_select(in[0], 0, index); });
  cases.benchmark("index_select columns", scores,
                  [index = randint(0, 1000, {1000})](const TensorList& in) { return index_select(in[0], 1, index); });
  cases.benchmark(
      "one_hot", [] { return TensorList{randint(0, 1000, {512})}; },
      [](const TensorList& in) { return one_hot(in[0], 1000); }, {.backward = false});
  cases.benchmark("topk", scores, [](const TensorList& in) { return topk(in[0], 10).values; });
  cases.benchmark("masked_fill", scores, [mask = bernoulli(full({1000}, 0.5)).to(kBool)](const TensorList& in) {
    return masked_fill(in[0], mask, -1e9);
  });
  cases.benchmark("tril", {{64, 128, 128}}, [](const TensorList& in) { return tril(in[0], 1); });
  cases.benchmark("triu", {{64, 128, 128}}, [](const TensorList& in) { return triu(in[0], 1); });
}

}  // namespace tandem::testing
