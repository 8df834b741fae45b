#include <tandem/tests/ops/op_cases.h>
#include <tandem/tests/ops/view_reference.h>

namespace tandem::testing {

namespace {

/// A case that keeps the row-major order of the elements.
OpCase reshape_case(const char* name, const Shape& shape, const Shape& result,
                    std::function<Tensor(const Tensor&)> run) {
  OpCase op = view_case(name, shape, result, std::move(run), nullptr);
  op.reference = [result](const std::vector<Dense>& in) { return Dense{result, in[0].values}; };
  return op;
}

/// Part `number` of a split as a case.
OpCase part_case(const char* name, std::function<std::vector<Tensor>(const Tensor&)> run, size_t number) {
  return recorded_case(name, {3, 7, 2}, [=](const Tensor& x) { return run(x)[number]; });
}

}  // namespace

TANDEM_OP_CASES(view) {
  const std::vector<Input> input = {{"input", {3, 7}}};
  const std::vector<Input> tensors = {{"tensors[0]", {3, 7}}, {"tensors[1]", {3, 7}}, {"tensors[2]", {3, 7}}};
  const std::vector<Input> scalars = {{"tensors[0]", {}}, {"tensors[1]", {}}};
  cases.op("Tensor view(const Tensor& input, const Shape& shape)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) {
               return view(x[0], {3, 7, 1});
             }}});
  cases.op("Tensor reshape(const Tensor& input, const Shape& shape)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) {
               return reshape(x[0], {7, 3});
             }}});
  cases.op("Tensor flatten(const Tensor& input, int64_t start_dim = 0, int64_t end_dim = -1)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return flatten(x[0]); }}});
  cases.op("Tensor transpose(const Tensor& input, int64_t dim0, int64_t dim1)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return transpose(x[0], 0, 1); }}});
  cases.op("Tensor t(const Tensor& input)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return t(x[0]); }}});
  cases.op("Tensor permute(const Tensor& input, const Shape& dims)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) {
               return permute(x[0], {1, 0});
             }}});
  cases.op("Tensor slice(const Tensor& input, int64_t dim, int64_t begin, int64_t end, int64_t step = 1)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return slice(x[0], 1, 1, 6, 2); }}});
  cases.op("Tensor select(const Tensor& input, int64_t dim, int64_t index)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return select(x[0], 1, 4); }}});
  cases.op("Tensor expand(const Tensor& input, const Shape& shape)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) {
               return expand(x[0], {2, 3, 7});
             }}});
  cases.op("Tensor squeeze(const Tensor& input)", std::nullopt,
           {{.inputs = {{"input", {3, 1}}}, .run = [](const Tensors& x) { return squeeze(x[0]); }}});
  cases.op("Tensor squeeze(const Tensor& input, int64_t dim)", std::nullopt,
           {{.inputs = {{"input", {3, 1}}}, .run = [](const Tensors& x) { return squeeze(x[0], 1); }}});
  cases.op("Tensor unsqueeze(const Tensor& input, int64_t dim)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return unsqueeze(x[0], 1); }}});
  cases.op("std::vector<Tensor> split(const Tensor& input, int64_t split_size, int64_t dim = 0)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return split(x[0], 2, 1); }}});
  cases.op("std::vector<Tensor> split(const Tensor& input, const Shape& split_sizes, int64_t dim = 0)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) {
               return split(x[0], Shape{1, 6}, 1);
             }}});
  cases.op(
      "std::vector<Tensor> split(const Tensor& input, std::initializer_list<int64_t> split_sizes, int64_t dim = 0)",
      std::nullopt, {{.inputs = input, .run = [](const Tensors& x) {
                        return split(x[0], {3, 4}, 1);
                      }}});
  cases.op("std::vector<Tensor> chunk(const Tensor& input, int64_t chunks, int64_t dim = 0)", std::nullopt,
           {{.inputs = input, .run = [](const Tensors& x) { return chunk(x[0], 2, 1); }}});
  cases.op("Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0)", std::nullopt,
           {{.inputs = tensors, .run = [](const Tensors& x) { return cat(x, 1); }}});
  cases.op("Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0)", std::nullopt,
           {{.inputs = tensors, .run = [](const Tensors& x) { return stack(x, 1); }},
            {.inputs = scalars, .run = [](const Tensors& x) { return stack(x); }}});

  cases.add(reshape_case("reshape", {6, 4}, {3, 8}, [](const Tensor& x) { return x.reshape({3, 8}); }));
  cases.add(reshape_case("reshape", {6, 4}, {2, 3, 4}, [](const Tensor& x) { return x.reshape({2, -1, 4}); }));
  cases.add(reshape_case("reshape", {2, 3, 4}, {24}, [](const Tensor& x) { return x.reshape({-1}); }));
  cases.add(reshape_case("reshape", {1}, {}, [](const Tensor& x) { return x.reshape({}); }));
  cases.add(reshape_case("reshape", {0, 3}, {3, 0, 2}, [](const Tensor& x) { return x.reshape({3, 0, 2}); }));

  // These only split or add dimensions, which is possible for any strides.
  cases.add(reshape_case("view", {6, 4}, {2, 3, 4}, [](const Tensor& x) { return x.view({2, 3, -1}); }));
  cases.add(reshape_case("view", {6, 4}, {1, 6, 1, 2, 2}, [](const Tensor& x) { return x.view({1, 6, 1, 2, 2}); }));
  cases.add(reshape_case("view", {}, {1, 1}, [](const Tensor& x) { return x.view({1, 1}); }));

  cases.add(reshape_case("flatten", {2, 3, 4}, {24}, [](const Tensor& x) { return x.flatten(); }));
  cases.add(reshape_case("flatten", {2, 3, 4}, {2, 12}, [](const Tensor& x) { return x.flatten(1); }));
  cases.add(reshape_case("flatten", {2, 3, 4, 2}, {2, 12, 2}, [](const Tensor& x) { return x.flatten(-3, -2); }));
  cases.add(reshape_case("flatten", {}, {1}, [](const Tensor& x) { return x.flatten(); }));
  cases.add(reshape_case("flatten", {0, 3}, {0}, [](const Tensor& x) { return x.flatten(); }));

  cases.add(reshape_case("squeeze", {3, 1, 2}, {3, 2}, [](const Tensor& x) { return x.squeeze(-2); }));
  cases.add(reshape_case("squeeze", {3, 1, 2}, {3, 1, 2}, [](const Tensor& x) { return x.squeeze(0); }));
  cases.add(reshape_case("squeeze", {}, {}, [](const Tensor& x) { return x.squeeze(0); }));
  cases.add(reshape_case("squeeze", {1, 3, 1, 2, 1}, {3, 2}, [](const Tensor& x) { return x.squeeze(); }));
  cases.add(reshape_case("squeeze", {3, 2}, {3, 2}, [](const Tensor& x) { return squeeze(x); }));
  cases.add(reshape_case("squeeze", {1, 1}, {}, [](const Tensor& x) { return x.squeeze(); }));
  cases.add(reshape_case("squeeze", {0, 1}, {0}, [](const Tensor& x) { return x.squeeze(); }));
  cases.add(reshape_case("unsqueeze", {3, 2}, {3, 1, 2}, [](const Tensor& x) { return x.unsqueeze(1); }));
  cases.add(reshape_case("unsqueeze", {3, 2}, {3, 2, 1}, [](const Tensor& x) { return x.unsqueeze(-1); }));
  cases.add(reshape_case("unsqueeze", {}, {1}, [](const Tensor& x) { return x.unsqueeze(0); }));

  cases.add(recorded_case("transpose", {3, 7}, [](const Tensor& x) { return x.transpose(0, 1); }));
  cases.add(recorded_case("transpose", {2, 3, 4}, [](const Tensor& x) { return x.transpose(-1, 0); }));
  cases.add(recorded_case("transpose", {}, [](const Tensor& x) { return x.transpose(0, -1); }));
  cases.add(recorded_case("t", {3, 7}, [](const Tensor& x) { return x.t(); }));
  // A permutation that is not its own inverse.
  cases.add(recorded_case("permute", {2, 3, 4}, [](const Tensor& x) { return x.permute({-1, 0, 1}); }));

  cases.add(recorded_case("slice", {7, 3}, [](const Tensor& x) { return x.slice(0, 1, 7, 2); }));
  cases.add(recorded_case("slice", {3, 8}, [](const Tensor& x) { return x.slice(-1, -6, -1, 2); }));
  cases.add(recorded_case("slice", {2, 5, 3}, [](const Tensor& x) { return x.slice(1, 3, 100); }));
  cases.add(recorded_case("slice", {4, 3}, [](const Tensor& x) { return x.slice(0, 3, 1); }));
  cases.add(recorded_case("slice", {4, 3}, [](const Tensor& x) { return x.slice(0, 2, INT64_MAX, INT64_MAX / 2); }));

  cases.add(recorded_case("select", {3, 7}, [](const Tensor& x) { return x[1]; }));
  cases.add(recorded_case("select", {3, 4, 2}, [](const Tensor& x) { return x.select(1, -1); }));
  cases.add(recorded_case("select", {5}, [](const Tensor& x) { return x.select(-1, 3); }));

  cases.add(recorded_case("expand", {3, 1}, [](const Tensor& x) { return x.expand({2, -1, 4}); }));
  cases.add(recorded_case("expand", {1, 7}, [](const Tensor& x) { return x.expand({5, 7}); }));
  cases.add(recorded_case("expand", {}, [](const Tensor& x) { return x.expand({3}); }));
  cases.add(recorded_case("expand", {1, 3}, [](const Tensor& x) { return x.expand({0, 3}); }));

  {
    OpCase op;
    op.name = "cat";
    op.inputs = {
        {"tensors[0]", {2, 3, 2}}, {"tensors[1]", {2, 1, 2}}, {"tensors[2]", {2, 0, 2}}, {"tensors[3]", {2, 4, 2}}};
    op.run = [](const std::vector<Tensor>& in) { return cat(in, -2); };
    cases.add(recorded_case(op));
    OpCase one = op;
    one.inputs = {{"tensors[0]", {3}}};
    one.run = [](const std::vector<Tensor>& in) { return cat(in); };
    one.reference = [](const std::vector<Dense>& in) { return in[0]; };
    cases.add(one);
  }

  {
    const auto by_size = [](const Tensor& x) { return x.split(3, -2); };
    cases.add(part_case("split", by_size, 0));
    cases.add(part_case("split", by_size, 1));
    cases.add(part_case("split", by_size, 2));
    const auto by_sizes = [](const Tensor& x) { return split(x, {2, 0, 5}, 1); };
    cases.add(part_case("split", by_sizes, 0));
    cases.add(part_case("split", by_sizes, 1));
    cases.add(part_case("split", by_sizes, 2));
    const auto by_count = [](const Tensor& x) { return x.chunk(3, 1); };
    cases.add(part_case("chunk", by_count, 0));
    cases.add(part_case("chunk", by_count, 2));
  }

  for (const Shape& shape : {Shape{2, 3}, Shape{}, Shape{0, 2}, Shape{3, 1, 2}}) {
    for (int64_t dim = -shape.dim() - 1; dim <= shape.dim(); ++dim) {
      OpCase op;
      op.name = "stack";
      op.inputs = {{"tensors[0]", shape}, {"tensors[1]", shape}, {"tensors[2]", shape}};
      op.run = [dim](const std::vector<Tensor>& in) { return stack(in, dim); };
      cases.add(recorded_case(op));
    }
  }

  cases.benchmark("contiguous transposed", {{2048, 1024}},
                  [](const TensorList& in) { return contiguous(transpose(in[0], 0, 1)); });
  cases.benchmark("contiguous permuted", {{16, 128, 4, 32}}, [](const TensorList& in) {
    return contiguous(permute(in[0], {0, 2, 1, 3}));
  });
  cases.benchmark("cat", {{64, 256, 64}, {64, 128, 64}}, [](const TensorList& in) { return cat({in[0], in[1]}, 1); });
  cases.benchmark("stack", {{256, 784}, {256, 784}, {256, 784}}, [](const TensorList& in) {
    return stack({in[0], in[1], in[2]});
  });
}

}  // namespace tandem::testing
