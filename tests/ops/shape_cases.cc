// Cases of ops/view/rearrange.cc.
#include <tandem/tests/ops/op_cases.h>
#include <tandem/tests/ops/view_reference.h>

namespace tandem::testing {

namespace {

using Index = const Shape&;

/// A case whose result has several parts, of which it checks number `part`.
OpCase part_case(const char* name, const Shape& shape, const Shape& result,
                 std::function<std::vector<Tensor>(const Tensor&)> run, size_t part, std::function<Shape(Index)> f) {
  return view_case(
      name, shape, result,
      [=](const Tensor& x) {
        const std::vector<Tensor> parts = run(x);
        return part < parts.size() ? parts[part] : Tensor();  // the tests also replace sizes by 0
      },
      std::move(f));
}

/// Sums and other results that are not selections.
OpCase sum_case(const char* name, const Shape& shape, std::function<Tensor(const Tensor&)> run, Reference reference,
                double terms) {
  return {.name = name,
          .inputs = {{"input", shape}},
          .run = [run = std::move(run)](const Tensors& x) { return run(x[0]); },
          .reference = std::move(reference),
          .terms = terms};
}

/// Reference of diag_embed for vectors.
Reference on_diagonal(int64_t offset) {
  return [offset](const std::vector<Dense>& in) {
    const int64_t n = in[0].numel(), size = n + std::abs(offset);
    Dense out = dense_zeros({size, size});
    for (int64_t i = 0; i < n; ++i) {
      out[(i + std::max<int64_t>(-offset, 0)) * size + i + std::max<int64_t>(offset, 0)] = in[0][i];
    }
    return out;
  };
}

}  // namespace

TANDEM_OP_CASES(shape) {
  cases.op("Tensor narrow(const Tensor& input, int64_t dim, int64_t start, int64_t length)", std::nullopt,
           {view_case(
                "narrow", {3, 7}, {3, 4}, [](const Tensor& x) { return narrow(x, 1, 2, 4); },
                [](Index i) {
                  return Shape{i[0], 2 + i[1]};
                }),
            view_case(
                "narrow", {3, 7}, {2, 7}, [](const Tensor& x) { return x.narrow(0, -2, 2); },
                [](Index i) {
                  return Shape{1 + i[0], i[1]};
                })});
  cases.op("std::vector<Tensor> unbind(const Tensor& input, int64_t dim = 0)", std::nullopt,
           {part_case(
                "unbind", {3, 7}, {7}, [](const Tensor& x) { return unbind(x); }, 2,
                [](Index i) {
                  return Shape{2, i[0]};
                }),
            part_case(
                "unbind", {2, 5, 3}, {2, 3}, [](const Tensor& x) { return x.unbind(-2); }, 4,
                [](Index i) {
                  return Shape{i[0], 4, i[1]};
                })});
  cases.op("std::vector<Tensor> tensor_split(const Tensor& input, int64_t sections, int64_t dim = 0)", std::nullopt,
           {part_case(
                "tensor_split", {3, 7}, {3, 2}, [](const Tensor& x) { return tensor_split(x, 3, 1); }, 1,
                [](Index i) {
                  return Shape{i[0], 3 + i[1]};
                }),
            part_case(
                "tensor_split", {3}, {0}, [](const Tensor& x) { return tensor_split(x, 5); }, 4,
                [](Index i) { return i; })});
  cases.op("std::vector<Tensor> tensor_split(const Tensor& input, const Shape& indices, int64_t dim = 0)", std::nullopt,
           {part_case(
               "tensor_split", {3, 7}, {3, 3},
               [](const Tensor& x) {
                 return tensor_split(x, Shape{2, 5}, -1);
               },
               1,
               [](Index i) {
                 return Shape{i[0], 2 + i[1]};
               })});
  cases.op(
      "std::vector<Tensor> tensor_split(const Tensor& input, std::initializer_list<int64_t> indices, int64_t dim = 0)",
      std::nullopt,
      {part_case(
          "tensor_split", {7, 3}, {5, 3}, [](const Tensor& x) { return tensor_split(x, {2}); }, 1,
          [](Index i) {
            return Shape{2 + i[0], i[1]};
          })});
  cases.op("Tensor unflatten(const Tensor& input, int64_t dim, const Shape& sizes)", std::nullopt,
           {view_case(
                "unflatten", {6, 4}, {2, 3, 4},
                [](const Tensor& x) {
                  return unflatten(x, 0, {2, -1});
                },
                [](Index i) {
                  return Shape{i[0] * 3 + i[1], i[2]};
                }),
            view_case(
                "unflatten", {3, 4}, {3, 2, 1, 2},
                [](const Tensor& x) {
                  return x.unflatten(-1, {2, 1, 2});
                },
                [](Index i) {
                  return Shape{i[0], i[1] * 2 + i[3]};
                })});
  cases.op("Tensor movedim(const Tensor& input, const Shape& source, const Shape& destination)", std::nullopt,
           {view_case(
                "movedim", {2, 3, 4}, {4, 2, 3}, [](const Tensor& x) { return movedim(x, -1, 0); },
                [](Index i) {
                  return Shape{i[1], i[2], i[0]};
                }),
            view_case(
                "movedim", {}, {}, [](const Tensor& x) { return x.movedim(0, -1); }, [](Index i) { return i; }),
            view_case(
                "movedim", {2, 3, 4}, {4, 3, 2},
                [](const Tensor& x) {
                  return movedim(x, Shape{0, 1}, Shape{-1, -2});
                },
                [](Index i) {
                  return Shape{i[2], i[1], i[0]};
                })});
  cases.op("Tensor broadcast_to(const Tensor& input, const Shape& shape)", std::nullopt,
           {view_case(
               "broadcast_to", {3, 1}, {2, 3, 4},
               [](const Tensor& x) {
                 return broadcast_to(x, {2, 3, 4});
               },
               [](Index i) {
                 return Shape{i[1], 0};
               })});
  {
    const std::vector<Input> axes = {{"tensors[0]", {3}}, {"tensors[1]", {5}}, {"tensors[2]", {}}};
    OpCase ij = {.name = "meshgrid",
                 .inputs = axes,
                 .run = [](const Tensors& x) { return meshgrid(x); },
                 .reference =
                     [](const std::vector<Dense>& in) {
                       return dense_map({3, 5, 1}, {{{3, 1, 1}, in[0].values}}, [](const auto& v) { return v[0]; });
                     }};
    OpCase xy = ij;
    xy.run = [](const Tensors& x) { return meshgrid(x, MeshIndexing::kXY); };
    xy.reference = [](const std::vector<Dense>& in) {
      return dense_map({5, 3, 1}, {{{1, 3, 1}, in[0].values}}, [](const auto& v) { return v[0]; });
    };
    cases.op(
        "std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, MeshIndexing indexing = "
        "MeshIndexing::kIJ)",
        std::nullopt, {ij, xy});
  }

  // Diagonals of other dimensions than the first two, above and below.
  cases.op("Tensor diagonal(const Tensor& input, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1)", std::nullopt,
           {view_case(
                "diagonal", {3, 7}, {3}, [](const Tensor& x) { return diagonal(x, 2); },
                [](Index i) {
                  return Shape{i[0], i[0] + 2};
                }),
            view_case(
                "diagonal", {5, 2, 4}, {2, 3}, [](const Tensor& x) { return x.diagonal(-1, -1, 0); },
                [](Index i) {
                  return Shape{i[1], i[0], i[1] + 1};
                }),
            view_case(
                "diagonal", {3, 4}, {0}, [](const Tensor& x) { return x.diagonal(9); }, [](Index i) { return i; })});
  cases.op("Tensor diag_embed(const Tensor& input, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1)",
           std::nullopt,
           {sum_case(
                "diag_embed", {3}, [](const Tensor& x) { return diag_embed(x, -2); }, on_diagonal(-2), 1),
            sum_case(
                "diag_embed", {2, 3}, [](const Tensor& x) { return diag_embed(x, 1, 0, -1); },
                [](const std::vector<Dense>& in) {
                  Dense out = dense_zeros({4, 2, 4});
                  for (int64_t b = 0; b < 2; ++b) {
                    for (int64_t i = 0; i < 3; ++i) out[i * 8 + b * 4 + i + 1] = in[0][b * 3 + i];
                  }
                  return out;
                },
                1)});
  cases.op("Tensor diag(const Tensor& input, int64_t diagonal = 0)", std::nullopt,
           {sum_case(
                "diag", {3}, [](const Tensor& x) { return diag(x, 1); }, on_diagonal(1), 1),
            view_case(
                "diag", {3, 7}, {2}, [](const Tensor& x) { return diag(x, -1); },
                [](Index i) {
                  return Shape{i[0] + 1, i[0]};
                })});
  cases.op("Tensor trace(Tensor input)", CastPolicy::kFloat32,
           {sum_case(
               "trace", {3, 7}, [](const Tensor& x) { return trace(x); },
               [](const std::vector<Dense>& in) {
                 return Dense{{}, {in[0][0] + in[0][8] + in[0][16]}};
               },
               3)});
  {
    OpCase overlapping = view_case(
        "unfold", {2, 8, 3}, {2, 3, 3, 4}, [](const Tensor& x) { return unfold(x, 1, 4, 2); },
        [](Index i) {
          return Shape{i[0], i[1] * 2 + i[3], i[2]};
        });
    overlapping.terms = 2;
    cases.op("Tensor unfold(const Tensor& input, int64_t dimension, int64_t size, int64_t step)", std::nullopt,
             {overlapping, view_case(
                               "unfold", {7}, {1, 3}, [](const Tensor& x) { return x.unfold(-1, 3, 9); },
                               [](Index i) { return Shape{i[1]}; })});
  }

  cases.op("Tensor repeat(const Tensor& input, const Shape& repeats)", std::nullopt,
           {view_case(
                "repeat", {3, 2}, {2, 3, 6},
                [](const Tensor& x) {
                  return repeat(x, {2, 1, 3});
                },
                [](Index i) {
                  return Shape{i[1], i[2] % 2};
                }),
            view_case(
                "repeat", {3}, {0}, [](const Tensor& x) { return x.repeat({0}); }, [](Index i) { return i; }),
            view_case(
                "repeat", {}, {3}, [](const Tensor& x) { return x.repeat({3}); }, [](Index) { return Shape{}; })});
  cases.op("Tensor tile(const Tensor& input, const Shape& dims)", std::nullopt,
           {view_case(
               "tile", {2, 3, 2}, {2, 6, 6},
               [](const Tensor& x) {
                 return tile(x, {2, 3});
               },
               [](Index i) {
                 return Shape{i[0], i[1] % 3, i[2] % 2};
               })});
  cases.op("Tensor repeat_interleave(const Tensor& input, int64_t repeats, std::optional<int64_t> dim = {})",
           std::nullopt,
           {view_case(
                "repeat_interleave", {3, 2}, {9, 2}, [](const Tensor& x) { return repeat_interleave(x, 3, 0); },
                [](Index i) {
                  return Shape{i[0] / 3, i[1]};
                }),
            view_case(
                "repeat_interleave", {3, 2}, {12}, [](const Tensor& x) { return x.repeat_interleave(2); },
                [](Index i) {
                  return Shape{i[0] / 4, i[0] / 2 % 2};
                })});
  {
    OpCase op = {.name = "repeat_interleave",
                 .inputs = {{"input", {2, 4}}, integers("repeats", {4}, 4)},
                 .run = [](const Tensors& x) { return repeat_interleave(x[0], x[1], 1); },
                 .reference =
                     [](const std::vector<Dense>& in) {
                       std::vector<int64_t> columns;
                       for (int64_t i = 0; i < 4; ++i) columns.insert(columns.end(), static_cast<size_t>(in[1][i]), i);
                       const int64_t n = static_cast<int64_t>(columns.size());
                       Dense out = dense_zeros({2, n});
                       for (int64_t i = 0; i < 2 * n; ++i) {
                         out[i] = in[0][i / n * 4 + columns[static_cast<size_t>(i % n)]];
                       }
                       return out;
                     },
                 .terms = 4};
    cases.op("Tensor repeat_interleave(const Tensor& input, const Tensor& repeats, std::optional<int64_t> dim = {})",
             std::nullopt, {op});
  }
  cases.op("Tensor flip(const Tensor& input, const Shape& dims)", std::nullopt,
           {view_case(
                "flip", {3, 7, 2}, {3, 7, 2},
                [](const Tensor& x) {
                  return flip(x, {0, -1});
                },
                [](Index i) {
                  return Shape{2 - i[0], i[1], 1 - i[2]};
                }),
            view_case(
                "flip", {3}, {3}, [](const Tensor& x) { return x.flip({}); }, [](Index i) { return i; }),
            view_case(
                "flip", {}, {}, [](const Tensor& x) { return x.flip({0}); }, [](Index i) { return i; })});
  cases.op("Tensor roll(const Tensor& input, const Shape& shifts, const Shape& dims = {})", std::nullopt,
           {view_case(
                "roll", {3, 7}, {3, 7},
                [](const Tensor& x) {
                  return roll(x, {-1, 9}, {0, 1});
                },
                [](Index i) {
                  return Shape{(i[0] + 1) % 3, (i[1] + 5) % 7};
                }),
            view_case(
                "roll", {3, 2}, {3, 2}, [](const Tensor& x) { return x.roll({1}); },
                [](Index i) {
                  const int64_t from = (i[0] * 2 + i[1] + 5) % 6;
                  return Shape{from / 2, from % 2};
                }),
            view_case(
                "roll", {0, 3}, {0, 3}, [](const Tensor& x) { return x.roll({1}, {0}); }, [](Index i) { return i; })});

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
