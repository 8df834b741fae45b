// Cases of ops/view/rearrange.cc.
#include <tandem/tests/ops/op_cases.h>
#include <tandem/tests/ops/view_reference.h>

namespace tandem::testing {

namespace {

using Index = const Shape&;

/// A case whose result has several parts, of which it checks number `part`.
OpCase part_case(const char* name, const Shape& shape, std::function<std::vector<Tensor>(const Tensor&)> run,
                 size_t part) {
  return recorded_case(name, shape, [=](const Tensor& x) {
    const std::vector<Tensor> parts = run(x);
    return part < parts.size() ? parts[part] : Tensor();  // the tests also replace sizes by 0
  });
}

}  // namespace

TANDEM_OP_CASES(shape) {
  cases.op("Tensor narrow(const Tensor& input, int64_t dim, int64_t start, int64_t length)", std::nullopt,
           {recorded_case("narrow", {3, 7}, [](const Tensor& x) { return narrow(x, 1, 2, 4); }),
            recorded_case("narrow", {3, 7}, [](const Tensor& x) { return x.narrow(0, -2, 2); })});
  cases.op("std::vector<Tensor> unbind(const Tensor& input, int64_t dim = 0)", std::nullopt,
           {part_case(
                "unbind", {3, 7}, [](const Tensor& x) { return unbind(x); }, 2),
            part_case(
                "unbind", {2, 5, 3}, [](const Tensor& x) { return x.unbind(-2); }, 4)});
  cases.op("std::vector<Tensor> tensor_split(const Tensor& input, int64_t sections, int64_t dim = 0)", std::nullopt,
           {part_case(
                "tensor_split", {3, 7}, [](const Tensor& x) { return tensor_split(x, 3, 1); }, 1),
            part_case(
                "tensor_split", {3}, [](const Tensor& x) { return tensor_split(x, 5); }, 4)});
  cases.op("std::vector<Tensor> tensor_split(const Tensor& input, const Shape& indices, int64_t dim = 0)", std::nullopt,
           {part_case(
               "tensor_split", {3, 7},
               [](const Tensor& x) {
                 return tensor_split(x, Shape{2, 5}, -1);
               },
               1)});
  cases.op(
      "std::vector<Tensor> tensor_split(const Tensor& input, std::initializer_list<int64_t> indices, int64_t dim = 0)",
      std::nullopt,
      {part_case(
          "tensor_split", {7, 3}, [](const Tensor& x) { return tensor_split(x, {2}); }, 1)});
  cases.op("Tensor unflatten(const Tensor& input, int64_t dim, const Shape& sizes)", std::nullopt,
           {recorded_case("unflatten", {6, 4},
                          [](const Tensor& x) {
                            return unflatten(x, 0, {2, -1});
                          }),
            recorded_case("unflatten", {3, 4}, [](const Tensor& x) {
              return x.unflatten(-1, {2, 1, 2});
            })});
  cases.op("Tensor movedim(const Tensor& input, const Shape& source, const Shape& destination)", std::nullopt,
           {recorded_case("movedim", {2, 3, 4}, [](const Tensor& x) { return movedim(x, -1, 0); }),
            recorded_case("movedim", {}, [](const Tensor& x) { return x.movedim(0, -1); }),
            recorded_case("movedim", {2, 3, 4}, [](const Tensor& x) {
              return movedim(x, Shape{0, 1}, Shape{-1, -2});
            })});
  cases.op("Tensor broadcast_to(const Tensor& input, const Shape& shape)", std::nullopt,
           {recorded_case("broadcast_to", {3, 1}, [](const Tensor& x) {
             return broadcast_to(x, {2, 3, 4});
           })});
  {
    const std::vector<Input> axes = {{"tensors[0]", {3}}, {"tensors[1]", {5}}, {"tensors[2]", {}}};
    const OpCase ij = recorded_case({.inputs = axes, .run = [](const Tensors& x) { return meshgrid(x); }});
    const OpCase xy =
        recorded_case({.inputs = axes, .run = [](const Tensors& x) { return meshgrid(x, MeshIndexing::kXY); }});
    cases.op(
        "std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, MeshIndexing indexing = "
        "MeshIndexing::kIJ)",
        std::nullopt, {ij, xy});
  }

  // Diagonals of other dimensions than the first two, above and below.
  cases.op("Tensor diagonal(const Tensor& input, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1)", std::nullopt,
           {recorded_case("diagonal", {3, 7}, [](const Tensor& x) { return diagonal(x, 2); }),
            recorded_case("diagonal", {5, 2, 4}, [](const Tensor& x) { return x.diagonal(-1, -1, 0); }),
            recorded_case("diagonal", {3, 4}, [](const Tensor& x) { return x.diagonal(9); })});
  cases.op("Tensor diag_embed(const Tensor& input, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1)",
           std::nullopt,
           {recorded_case("diag_embed", {3}, [](const Tensor& x) { return diag_embed(x, -2); }),
            recorded_case("diag_embed", {2, 3}, [](const Tensor& x) { return diag_embed(x, 1, 0, -1); })});
  cases.op("Tensor diag(const Tensor& input, int64_t diagonal = 0)", std::nullopt,
           {recorded_case("diag", {3}, [](const Tensor& x) { return diag(x, 1); }),
            recorded_case("diag", {3, 7}, [](const Tensor& x) { return diag(x, -1); })});
  cases.op("Tensor trace(Tensor input)", CastPolicy::kFloat32,
           {recorded_case(
               {.inputs = {{"input", {3, 7}}}, .run = [](const Tensors& x) { return trace(x[0]); }, .terms = 3})});
  {
    OpCase overlapping = recorded_case("unfold", {2, 8, 3}, [](const Tensor& x) { return unfold(x, 1, 4, 2); });
    overlapping.terms = 2;
    cases.op("Tensor unfold(const Tensor& input, int64_t dimension, int64_t size, int64_t step)", std::nullopt,
             {overlapping, recorded_case("unfold", {7}, [](const Tensor& x) { return x.unfold(-1, 3, 9); })});
  }

  cases.op("Tensor repeat(const Tensor& input, const Shape& repeats)", std::nullopt,
           {recorded_case("repeat", {3, 2},
                          [](const Tensor& x) {
                            return repeat(x, {2, 1, 3});
                          }),
            recorded_case("repeat", {3}, [](const Tensor& x) { return x.repeat({0}); }),
            recorded_case("repeat", {}, [](const Tensor& x) { return x.repeat({3}); })});
  cases.op("Tensor tile(const Tensor& input, const Shape& dims)", std::nullopt,
           {recorded_case("tile", {2, 3, 2}, [](const Tensor& x) {
             return tile(x, {2, 3});
           })});
  cases.op("Tensor repeat_interleave(const Tensor& input, int64_t repeats, std::optional<int64_t> dim = {})",
           std::nullopt,
           {recorded_case("repeat_interleave", {3, 2}, [](const Tensor& x) { return repeat_interleave(x, 3, 0); }),
            recorded_case("repeat_interleave", {3, 2}, [](const Tensor& x) { return x.repeat_interleave(2); })});
  {
    const OpCase op = recorded_case({.inputs = {{"input", {2, 4}}, integers("repeats", {4}, 4)},
                                     .run = [](const Tensors& x) { return repeat_interleave(x[0], x[1], 1); },
                                     .terms = 4});
    cases.op("Tensor repeat_interleave(const Tensor& input, const Tensor& repeats, std::optional<int64_t> dim = {})",
             std::nullopt, {op});
  }
  cases.op("Tensor flip(const Tensor& input, const Shape& dims)", std::nullopt,
           {recorded_case("flip", {3, 7, 2},
                          [](const Tensor& x) {
                            return flip(x, {0, -1});
                          }),
            recorded_case("flip", {3}, [](const Tensor& x) { return x.flip({}); }),
            recorded_case("flip", {}, [](const Tensor& x) { return x.flip({0}); })});
  cases.op("Tensor roll(const Tensor& input, const Shape& shifts, const Shape& dims = {})", std::nullopt,
           {recorded_case("roll", {3, 7},
                          [](const Tensor& x) {
                            return roll(x, {-1, 9}, {0, 1});
                          }),
            recorded_case("roll", {3, 2}, [](const Tensor& x) { return x.roll({1}); }),
            recorded_case("roll", {0, 3}, [](const Tensor& x) { return x.roll({1}, {0}); })});

  for (OpCase op : {view_case(
                        "flip", {70, 300}, {70, 300}, [](const Tensor& x) { return x.flip({1}); },
                        [](Index i) {
                          return Shape{i[0], 299 - i[1]};
                        }),
                    view_case(
                        "roll", {70, 300}, {70, 300}, [](const Tensor& x) { return x.roll({40}, {1}); },
                        [](Index i) {
                          return Shape{i[0], (i[1] + 260) % 300};
                        })}) {
    cases.add(op, kValues | kThreads);
  }

  cases.benchmark("diag_embed", {{256, 128}}, [](const TensorList& in) { return diag_embed(in[0]); });
  cases.benchmark("diag", {{1024}}, [](const TensorList& in) { return diag(in[0]); });
  cases.benchmark("trace", {{1024, 1024}}, [](const TensorList& in) { return trace(in[0]); });
  cases.benchmark("repeat", {{64, 256}}, [](const TensorList& in) { return repeat(in[0], {8, 4}); });
  cases.benchmark("tile", {{64, 256}}, [](const TensorList& in) { return tile(in[0], {4}); });
  cases.benchmark("repeat_interleave", {{512, 256}},
                  [](const TensorList& in) { return repeat_interleave(in[0], 4, 0); });
}

}  // namespace tandem::testing
