// Cases of ops/index/tensor_index.cc, and of nonzero and take_along_dim.
#include <tandem/tests/ops/op_cases.h>
#include <tandem/tests/ops/view_reference.h>

namespace tandem::testing {

namespace {

/// Which element of the input the result's element `i` is.
using Map = std::function<Shape(const Shape& i, const std::vector<Dense>& in)>;

/// A list of indices applied to the input; in[k + 1] is index tensor k.
struct Example {
  Shape input;
  std::vector<Input> tensors;
  std::function<std::vector<TensorIndex>(const Tensors& x)> indices;
  Shape result;
  Map map;
};

/// Element i of an index tensor, wrapped.
int64_t at(const Dense& index, int64_t i, int64_t size) {
  const int64_t value = static_cast<int64_t>(index[i]);
  return value < 0 ? value + size : value;
}

Input wrapped(const char* name, const Shape& shape, double size) {
  return {.name = name, .shape = shape, .low = -size, .high = size, .dtype = kInt64};
}

std::vector<Example> examples() {
  return {
      {{3, 7},
       {wrapped("indices[0]", {5}, 3)},
       [](const Tensors& x) { return std::vector<TensorIndex>{x[1]}; },
       {5, 7},
       [](const Shape& i, const std::vector<Dense>& in) {
         return Shape{at(in[1], i[0], 3), i[1]};
       }},
      {{2, 5, 3},  // one tensor between slices
       {wrapped("indices[2]", {2, 2}, 3)},
       [](const Tensors& x) {
         return std::vector<TensorIndex>{Ellipsis, Slice(1, None, 2), x[1]};
       },
       {2, 2, 2, 2},
       [](const Shape& i, const std::vector<Dense>& in) {
         return Shape{i[0], 1 + 2 * i[1], at(in[1], i[2] * 2 + i[3], 3)};
       }},
      {{4, 5, 3},  // adjacent tensors that broadcast
       {wrapped("indices[1]", {2, 1}, 5), wrapped("indices[2]", {3}, 3)},
       [](const Tensors& x) {
         return std::vector<TensorIndex>{Slice(), x[1], x[2]};
       },
       {4, 2, 3},
       [](const Shape& i, const std::vector<Dense>& in) {
         return Shape{i[0], at(in[1], i[1], 5), at(in[2], i[2], 3)};
       }},
      {{4, 5, 3},  // tensors with a slice between them: their dimensions come first
       {wrapped("indices[0]", {6}, 4), wrapped("indices[2]", {6}, 3)},
       [](const Tensors& x) {
         return std::vector<TensorIndex>{x[1], Slice(None, -1), x[2]};
       },
       {6, 4},
       [](const Shape& i, const std::vector<Dense>& in) {
         return Shape{at(in[1], i[0], 4), i[1], at(in[2], i[0], 3)};
       }},
      {{4, 5, 3},  // an integer is not a tensor
       {wrapped("indices[2]", {2}, 3)},
       [](const Tensors& x) {
         return std::vector<TensorIndex>{-1, Slice(), x[1], None};
       },
       {5, 2, 1},
       [](const Shape& i, const std::vector<Dense>& in) {
         return Shape{3, i[0], at(in[1], i[1], 3)};
       }},
      {{3, 4},  // an index without dimensions
       {wrapped("indices[1]", {}, 4)},
       [](const Tensors& x) {
         return std::vector<TensorIndex>{Slice(), x[1]};
       },
       {3},
       [](const Shape& i, const std::vector<Dense>& in) {
         return Shape{i[0], at(in[1], 0, 4)};
       }},
  };
}

OpCase index_case(const Example& e) {
  std::vector<Input> inputs = {{"input", e.input}};
  inputs.insert(inputs.end(), e.tensors.begin(), e.tensors.end());
  return selection_case(
      "index", inputs, e.result, [indices = e.indices](const Tensors& x) { return index(x[0], indices(x)); }, e.map);
}

/// A case of index_put: input, index tensors, value. Without accumulate the last value is stored where indices repeat,
/// and the gradients are not those of finite differences.
OpCase index_put_case(const Example& e, bool accumulate) {
  OpCase op = index_case(e);
  op.name = "index_put";
  Shape value = e.result;
  value[0] = 1;  // broadcast
  op.inputs.insert(op.inputs.begin() + 1, {"value", value});
  op.run = [indices = e.indices, accumulate](const Tensors& x) {
    Tensors without_value = x;
    without_value.erase(without_value.begin() + 1);
    return index_put(x[0], indices(without_value), x[1], accumulate);
  };
  op.reference = [e, value, accumulate](const std::vector<Dense>& in) {
    std::vector<Dense> without_value = in;
    without_value.erase(without_value.begin() + 1);
    Dense out = in[0];
    for (int64_t i = 0; i < num_elements(e.result); ++i) {
      Shape position = unravel(e.result, i);
      double& element = out[ravel(out.shape, e.map(position, without_value))];
      position[0] = 0;
      element = in[1][ravel(value, position)] + (accumulate ? element : 0);
    }
    return out;
  };
  op.terms += 1;
  return op;
}

/// The true elements of a mask {5} or {2, 5}: their number depends on the values, so references compute it.
std::vector<int64_t> true_elements(const Dense& mask) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < mask.numel(); ++i) {
    if (mask[i] != 0) result.push_back(i);
  }
  return result;
}

/// input[..., mask, ...] for a mask of the first dimensions.
Reference masked_reference() {
  return [](const std::vector<Dense>& in) {
    const std::vector<int64_t> rows = true_elements(in[1]);
    const int64_t width = in[0].numel() / in[1].numel();
    Shape shape = {static_cast<int64_t>(rows.size())};
    for (size_t d = in[1].shape.size(); d < in[0].shape.size(); ++d) shape.push_back(in[0].shape[d]);
    Dense out = dense_zeros(shape);
    for (int64_t i = 0; i < out.numel(); ++i) {
      out[i] = in[0][rows[static_cast<size_t>(i / width)] * width + i % width];
    }
    return out;
  };
}

TensorList rows() { return {randn({4096, 64})}; }

}  // namespace

TANDEM_OP_CASES(tensor_index) {
  std::vector<OpCase> index_cases, put_cases;
  for (const Example& e : examples()) {
    index_cases.push_back(index_case(e));
    put_cases.push_back(index_put_case(e, true));
    cases.add(index_put_case(e, false), kValues | kThreads);
  }
  index_cases.push_back(view_case(
      "index", {3, 7, 2}, {2, 1, 2},
      [](const Tensor& x) {
        return x.index({Slice(1, None), None, 4, Ellipsis});
      },
      [](const Shape& i) {
        return Shape{1 + i[0], 4, i[2]};
      }));
  for (const Shape& mask : {Shape{5}, Shape{5, 3}}) {
    index_cases.push_back({.name = "index",
                           .inputs = {{"input", {5, 3, 2}}, bools("indices[0]", mask)},
                           .run = [](const Tensors& x) { return x[0].index({x[1]}); },
                           .reference = masked_reference()});
  }
  cases.op("Tensor index(const Tensor& input, const std::vector<TensorIndex>& indices)", std::nullopt, index_cases);

  // One value at the true elements of a mask, and slices.
  const std::vector<Input> masked = {{"input", {3, 7}}, {"value", {}}, bools("indices[0]", {3, 7})};
  put_cases.push_back({.name = "index_put",
                       .inputs = masked,
                       .run = [](const Tensors& x) { return index_put(x[0], {x[2]}, x[1]); },
                       .reference =
                           [](const std::vector<Dense>& in) {
                             return dense_map({3, 7}, in, [](const auto& v) { return v[2] != 0 ? v[1] : v[0]; });
                           },
                       .terms = 21});
  for (const bool accumulate : {false, true}) {
    put_cases.push_back({.name = "index_put",
                         .inputs = {{"input", {3, 7}}, {"value", {2, 1}}},
                         .run =
                             [accumulate](const Tensors& x) {
                               return index_put(x[0], {Slice(1, None), Slice(2, None, 3)}, x[1], accumulate);
                             },
                         .reference =
                             [accumulate](const std::vector<Dense>& in) {
                               Dense out = in[0];
                               for (int64_t i : {9, 12, 16, 19}) out[i] = in[1][i / 14] + (accumulate ? out[i] : 0);
                               return out;
                             },
                         .terms = 3});
  }
  cases.op(
      "Tensor index_put(const Tensor& input, const std::vector<TensorIndex>& indices, const Tensor& value, bool "
      "accumulate = false)",
      std::nullopt, put_cases);
  // Distinct indices, so that the gradient without accumulate is exact.
  cases.add({.name = "index_put",
             .inputs = {{"input", {4, 3}}, {"value", {2, 3}}},
             .run =
                 [](const Tensors& x) {
                   return index_put(x[0], {tensor({2, -4}, {kInt32, x[0].device()})}, x[1]);
                 },
             .reference =
                 [](const std::vector<Dense>& in) {
                   Dense out = in[0];
                   for (int64_t i = 0; i < 3; ++i) {
                     out[6 + i] = in[1][i];
                     out[i] = in[1][3 + i];
                   }
                   return out;
                 }},
            kValues | kGradients);
  const Reference filled = [](const std::vector<Dense>& in) {
    return dense_map({3, 7}, in, [](const auto& v) { return v[1] != 0 ? 0.5 : v[0]; });
  };
  cases.op(
      "Tensor index_put(const Tensor& input, const std::vector<TensorIndex>& indices, Scalar value, bool "
      "accumulate = false)",
      std::nullopt,
      {{.name = "index_put",
        .inputs = {{"input", {3, 7}}, bools("indices[0]", {3, 7})},
        .run = [](const Tensors& x) { return index_put(x[0], {x[1]}, 0.5); },
        .reference = filled}});

  cases.op(
      "const Tensor& index_put_(const std::vector<TensorIndex>& indices, const Tensor& value, bool accumulate = "
      "false) const",
      std::nullopt,
      {{.inputs = {{"self", {3, 7}}, {"value", {2, 1}}, integers("indices[0]", {2}, 3)},
        .run =
            [](const Tensors& x) {
              return x[0].index_put_({x[2], Slice(1, 4)}, x[1], true);
            },
        .in_place = true}});
  cases.op(
      "const Tensor& index_put_(const std::vector<TensorIndex>& indices, Scalar value, bool accumulate = false) "
      "const",
      std::nullopt,
      {{.inputs = {{"self", {3, 7}}},
        .run =
            [](const Tensors& x) {
              return x[0].index_put_({1, Slice(1, 4)}, 2.5);
            },
        .in_place = true}});
  cases.add({.name = "index_put_",
             .inputs = {{"self", {3, 7}}, {"value", {2, 1}}, integers("indices[0]", {2}, 3)},
             .run =
                 [](const Tensors& x) {
                   const Tensor self = x[0].defined() ? x[0] * 1.0 : x[0];
                   self.index_put_({x[2], Slice(1, 4)}, x[1], true);
                   return self * 1.0;
                 },
             .reference =
                 [](const std::vector<Dense>& in) {
                   Dense out = in[0];
                   for (int64_t i = 0; i < 6; ++i) {
                     out[static_cast<int64_t>(in[2][i / 3]) * 7 + 1 + i % 3] += in[1][i / 3];
                   }
                   return out;
                 },
             .terms = 3});

  cases.op("Tensor take(const Tensor& input, const Tensor& index)", std::nullopt,
           {recorded_case({.inputs = {{"input", {3, 7}}, wrapped("index", {2, 5}, 21)},
                           .run = [](const Tensors& x) { return take(x[0], x[1]); },
                           .terms = 10})});
  cases.op("Tensor put(const Tensor& input, const Tensor& index, const Tensor& source, bool accumulate = false)",
           std::nullopt,
           {recorded_case({.inputs = {{"input", {3, 2}}, wrapped("index", {2, 2}, 6), {"source", {4}}},
                           .run = [](const Tensors& x) { return put(x[0], x[1], x[2], true); },
                           .terms = 4})});
  cases.op("Tensor take_along_dim(const Tensor& input, const Tensor& indices, std::optional<int64_t> dim = {})",
           std::nullopt,
           {recorded_case({.inputs = {{"input", {3, 7}}, integers("indices", {1, 2}, 7)},
                           .run = [](const Tensors& x) { return take_along_dim(x[0], x[1], -1); },
                           .terms = 6}),
            recorded_case({.inputs = {{"input", {3, 2}}, integers("indices", {2, 2}, 6)},
                           .run = [](const Tensors& x) { return take_along_dim(x[0], x[1]); },
                           .terms = 4})});
  cases.op("Tensor masked_select(const Tensor& input, const Tensor& mask)", std::nullopt,
           {recorded_case({.inputs = {{"input", {3, 1}}, bools("mask", {5})},
                           .run = [](const Tensors& x) { return masked_select(x[0], x[1]); },
                           .terms = 5})});
  cases.op("Tensor masked_scatter(const Tensor& input, const Tensor& mask, const Tensor& source)", std::nullopt,
           {recorded_case({.inputs = {{"input", {7}}, bools("mask", {3, 7}), {"source", {4, 6}}},
                           .run = [](const Tensors& x) { return masked_scatter(x[0], x[1], x[2]); },
                           .terms = 3})});

  for (const Shape& shape : {Shape{3, 7}, Shape{33}, Shape{}, Shape{2, 0}, Shape{2, 3, 4}}) {
    const OpCase op = recorded_case({.name = "nonzero",
                                     .inputs = {bools("input", shape)},
                                     .run = [](const Tensors& x) { return nonzero(x[0]); },
                                     .result_dtype = kInt64,
                                     .has_gradient = false});
    if (shape == Shape{3, 7}) {
      cases.op("Tensor nonzero(const Tensor& input)", std::nullopt, {op});
    } else {
      cases.add(op);
    }
  }
  cases.op("std::vector<Tensor> where(const Tensor& condition)", std::nullopt,
           {{.name = "where",
             .inputs = {bools("condition", {3, 7})},
             .run = [](const Tensors& x) { return where(x[0]); },
             .reference =
                 [](const std::vector<Dense>& in) {
                   Dense out{{}, {}};
                   for (const int64_t i : true_elements(in[0])) out.values.push_back(static_cast<double>(i / 7));
                   out.shape = {out.numel()};
                   return out;
                 },
             .result_dtype = kInt64,
             .has_gradient = false}});

  const Tensor chosen = randint(0, 4096, {4096}), mask = bernoulli(full({4096, 64}, 0.5)).to(kBool);
  cases.benchmark("index rows", rows, [chosen](const TensorList& in) { return in[0].index({chosen}); });
  cases.benchmark("index mask", rows, [mask](const TensorList& in) { return in[0].index({mask}); });
  cases.benchmark("index_put rows", {{4096, 64}, {4096, 64}},
                  [chosen](const TensorList& in) { return index_put(in[0], {chosen}, in[1]); });
  cases.benchmark("index_put mask", rows, [mask](const TensorList& in) { return index_put(in[0], {mask}, 0); });
  cases.benchmark("take", rows, [chosen](const TensorList& in) { return take(in[0], chosen); });
  cases.benchmark("put", {{4096, 64}, {4096}}, [chosen](const TensorList& in) { return put(in[0], chosen, in[1]); });
  cases.benchmark("take_along_dim", rows, [index = randint(0, 64, {4096, 8})](const TensorList& in) {
    return take_along_dim(in[0], index, 1);
  });
  cases.benchmark("masked_scatter", {{4096, 64}, {4096, 64}},
                  [mask](const TensorList& in) { return masked_scatter(in[0], mask, in[1]); });
  cases.benchmark(
      "nonzero", [mask] { return TensorList{mask}; }, [](const TensorList& in) { return nonzero(in[0]); },
      {.backward = false});
}

}  // namespace tandem::testing
