#include <tandem/ops/view.h>

#include <numeric>

#include <tandem/autograd/engine.h>
#include <tandem/ops/elementwise.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/op_case.h>

namespace tandem::testing { namespace {

using Values = std::vector<double>;

/// f maps an index of the result to the index of the input that it shows.
OpCase view_case(const char* name, const Shape& shape, const Shape& result, std::function<Tensor(const Tensor&)> run,
                 std::function<Shape(const Shape&)> f) {
  OpCase op;
  op.name = name;
  op.inputs = {{"input", shape}};
  op.run = [run](const std::vector<Tensor>& in) { return run(in[0]); };
  op.reference = [result, f](const std::vector<Dense>& in) {
    Dense out = dense_zeros(result);
    const Shape strides = row_major_strides(in[0].shape);
    for (int64_t i = 0; i < out.num_elements(); ++i) {
      Shape index = result;
      int64_t rest = i;
      for (size_t d = result.size(); d-- > 0;) {
        index[d] = rest % result[d];
        rest /= result[d];
      }
      const Shape from = f(index);
      out[i] = in[0][std::inner_product(from.begin(), from.end(), strides.begin(), int64_t{0})];
    }
    return out;
  };
  return op;
}

/// Row-major order stays as it is.
OpCase reshape_case(const char* name, const Shape& shape, const Shape& result,
                    std::function<Tensor(const Tensor&)> run) {
  OpCase op = view_case(name, shape, result, std::move(run), nullptr);
  op.reference = [result](const std::vector<Dense>& in) { return Dense{result, in[0].values}; };
  return op;
}

TEST(View, ReshapeMatchesItsFormula) {
  check(reshape_case("reshape", {6, 4}, {3, 8}, [](const Tensor& x) { return x.reshape({3, 8}); }));
  check(reshape_case("reshape", {6, 4}, {2, 3, 4}, [](const Tensor& x) { return x.reshape({2, -1, 4}); }));
  check(reshape_case("reshape", {2, 3, 4}, {24}, [](const Tensor& x) { return x.reshape({-1}); }));
  check(reshape_case("reshape", {1}, {}, [](const Tensor& x) { return x.reshape({}); }));
  check(reshape_case("reshape", {0, 3}, {3, 0, 2}, [](const Tensor& x) { return x.reshape({3, 0, 2}); }));
}

TEST(View, ViewMatchesItsFormula) {
  // Each of these splits or adds dimensions only, which all strides permit.
  check(reshape_case("view", {6, 4}, {2, 3, 4}, [](const Tensor& x) { return x.view({2, 3, -1}); }));
  check(reshape_case("view", {6, 4}, {1, 6, 1, 2, 2}, [](const Tensor& x) { return x.view({1, 6, 1, 2, 2}); }));
  check(reshape_case("view", {}, {1, 1}, [](const Tensor& x) { return x.view({1, 1}); }));
}

TEST(View, ViewsShareMemoryAndVersion) {
  const Tensor x = random_tensor({2, 3, 4}, 1);
  const Tensor views[] = {x.view({6, 4}),       x.reshape({24}),  x.flatten(1),      x.transpose(0, 2),
                          x.permute({1, 2, 0}), x.slice(1, 0, 2), x.select(0, 0),    x.expand({5, 2, 3, 4}),
                          x.unsqueeze(0),       x.squeeze(0),     x.view({6, 4}).t()};
  for (const Tensor& view : views) {
    EXPECT_EQ(view.data_ptr(), x.data_ptr());
    EXPECT_TRUE(view.impl().is_view);
  }
  views[0].fill_(3);
  EXPECT_EQ(x.version(), 1u);
  EXPECT_EQ(x.to_vector<double>(), Values(24, 3));
  // Not without a copy:
  EXPECT_NE(x.transpose(0, 2).reshape({24}).data_ptr(), x.data_ptr());
}

TEST(View, ViewOfStridedTensorComputesStrides) {
  const Tensor x = random_tensor({4, 6}, 1);
  EXPECT_EQ(x.slice(0, 0, 4, 2).view({2, 2, 3}).strides(), (Shape{12, 3, 1}));
  EXPECT_EQ(x.t().view({2, 3, 4}).strides(), (Shape{3, 1, 6}));
  EXPECT_EQ(x.slice(1, 0, 6, 2).view({12}).strides(), (Shape{2}));
  EXPECT_EQ(x.view({4, 1, 6}).expand({4, 3, 6}).view({4, 3, 2, 3}).strides(), (Shape{6, 0, 3, 1}));
}

TEST(View, FlattenMatchesItsFormula) {
  check(reshape_case("flatten", {2, 3, 4}, {24}, [](const Tensor& x) { return x.flatten(); }));
  check(reshape_case("flatten", {2, 3, 4}, {2, 12}, [](const Tensor& x) { return x.flatten(1); }));
  check(reshape_case("flatten", {2, 3, 4, 2}, {2, 12, 2}, [](const Tensor& x) { return x.flatten(-3, -2); }));
  check(reshape_case("flatten", {}, {1}, [](const Tensor& x) { return x.flatten(); }));
  check(reshape_case("flatten", {0, 3}, {0}, [](const Tensor& x) { return x.flatten(); }));
}

TEST(View, SqueezeAndUnsqueezeMatchTheirFormulas) {
  check(reshape_case("squeeze", {3, 1, 2}, {3, 2}, [](const Tensor& x) { return x.squeeze(-2); }));
  check(reshape_case("squeeze", {3, 1, 2}, {3, 1, 2}, [](const Tensor& x) { return x.squeeze(0); }));
  check(reshape_case("squeeze", {}, {}, [](const Tensor& x) { return x.squeeze(0); }));
  check(reshape_case("squeeze", {1, 3, 1, 2, 1}, {3, 2}, [](const Tensor& x) { return x.squeeze(); }));
  check(reshape_case("squeeze", {3, 2}, {3, 2}, [](const Tensor& x) { return squeeze(x); }));
  check(reshape_case("squeeze", {1, 1}, {}, [](const Tensor& x) { return x.squeeze(); }));
  check(reshape_case("squeeze", {0, 1}, {0}, [](const Tensor& x) { return x.squeeze(); }));
  check(reshape_case("unsqueeze", {3, 2}, {3, 1, 2}, [](const Tensor& x) { return x.unsqueeze(1); }));
  check(reshape_case("unsqueeze", {3, 2}, {3, 2, 1}, [](const Tensor& x) { return x.unsqueeze(-1); }));
  check(reshape_case("unsqueeze", {}, {1}, [](const Tensor& x) { return x.unsqueeze(0); }));
}

TEST(View, TransposeAndPermuteMatchTheirFormulas) {
  check(view_case(
      "transpose", {3, 7}, {7, 3}, [](const Tensor& x) { return x.transpose(0, 1); },
      [](const Shape& i) {
        return Shape{i[1], i[0]};
      }));
  check(view_case(
      "transpose", {2, 3, 4}, {4, 3, 2}, [](const Tensor& x) { return x.transpose(-1, 0); },
      [](const Shape& i) {
        return Shape{i[2], i[1], i[0]};
      }));
  check(view_case(
      "transpose", {}, {}, [](const Tensor& x) { return x.transpose(0, -1); }, [](const Shape&) { return Shape{}; }));
  check(view_case(
      "t", {3, 7}, {7, 3}, [](const Tensor& x) { return x.t(); },
      [](const Shape& i) {
        return Shape{i[1], i[0]};
      }));
  // Not its own inverse.
  check(view_case(
      "permute", {2, 3, 4}, {4, 2, 3},
      [](const Tensor& x) {
        return x.permute({-1, 0, 1});
      },
      [](const Shape& i) {
        return Shape{i[1], i[2], i[0]};
      }));
}

TEST(View, SliceMatchesItsFormula) {
  check(view_case(
      "slice", {7, 3}, {3, 3}, [](const Tensor& x) { return x.slice(0, 1, 7, 2); },
      [](const Shape& i) {
        return Shape{1 + 2 * i[0], i[1]};
      }));
  check(view_case(
      "slice", {3, 8}, {3, 3}, [](const Tensor& x) { return x.slice(-1, -6, -1, 2); },
      [](const Shape& i) {
        return Shape{i[0], 2 + 2 * i[1]};
      }));
  check(view_case(
      "slice", {2, 5, 3}, {2, 2, 3}, [](const Tensor& x) { return x.slice(1, 3, 100); },
      [](const Shape& i) {
        return Shape{i[0], 3 + i[1], i[2]};
      }));
  check(view_case(
      "slice", {4, 3}, {0, 3}, [](const Tensor& x) { return x.slice(0, 3, 1); }, [](const Shape& i) { return i; }));
  check(view_case(
      "slice", {4, 3}, {1, 3}, [](const Tensor& x) { return x.slice(0, 2, INT64_MAX, INT64_MAX / 2); },
      [](const Shape& i) {
        return Shape{2, i[1]};
      }));
}

TEST(View, SelectMatchesItsFormula) {
  check(view_case(
      "select", {3, 7}, {7}, [](const Tensor& x) { return x[1]; },
      [](const Shape& i) {
        return Shape{1, i[0]};
      }));
  check(view_case(
      "select", {3, 4, 2}, {3, 2}, [](const Tensor& x) { return x.select(1, -1); },
      [](const Shape& i) {
        return Shape{i[0], 3, i[1]};
      }));
  check(view_case(
      "select", {5}, {}, [](const Tensor& x) { return x.select(-1, 3); }, [](const Shape&) { return Shape{3}; }));
}

TEST(View, SelectAndSliceAcceptEmptyTensors) {
  EXPECT_EQ(zeros({3, 0, 2}).select(0, 2).shape(), (Shape{0, 2}));
  EXPECT_EQ(zeros({3, 0, 2}).slice(0, 1, 3).shape(), (Shape{2, 0, 2}));
}

TEST(View, ExpandMatchesItsFormula) {
  check(view_case(
      "expand", {3, 1}, {2, 3, 4},
      [](const Tensor& x) {
        return x.expand({2, -1, 4});
      },
      [](const Shape& i) {
        return Shape{i[1], 0};
      }));
  check(view_case(
      "expand", {1, 7}, {5, 7},
      [](const Tensor& x) {
        return x.expand({5, 7});
      },
      [](const Shape& i) {
        return Shape{0, i[1]};
      }));
  check(view_case(
      "expand", {}, {3}, [](const Tensor& x) { return x.expand({3}); }, [](const Shape&) { return Shape{}; }));
  check(view_case(
      "expand", {1, 3}, {0, 3},
      [](const Tensor& x) {
        return x.expand({0, 3});
      },
      [](const Shape& i) { return i; }));
}

TEST(View, CatMatchesItsFormula) {
  OpCase op;
  op.name = "cat";
  op.inputs = {
      {"tensors[0]", {2, 3, 2}}, {"tensors[1]", {2, 1, 2}}, {"tensors[2]", {2, 0, 2}}, {"tensors[3]", {2, 4, 2}}};
  op.run = [](const std::vector<Tensor>& in) { return cat(in, -2); };
  op.reference = [](const std::vector<Dense>& in) {
    Dense out = dense_zeros({2, 8, 2});
    int64_t row = 0;
    for (const Dense& part : in) {
      for (int64_t i = 0; i < part.num_elements(); ++i) {
        const int64_t outer = i / (part.shape[1] * 2);
        out[outer * 16 + row * 2 + i % (part.shape[1] * 2)] = part[i];
      }
      row += part.shape[1];
    }
    return out;
  };
  check(op);
  OpCase one = op;
  one.inputs = {{"tensors[0]", {3}}};
  one.run = [](const std::vector<Tensor>& in) { return cat(in); };
  one.reference = [](const std::vector<Dense>& in) { return in[0]; };
  check(one);
  EXPECT_EQ(cat({tensor({1, 2}), tensor({0.5})}).to_vector<double>(), (Values{1, 2, 0.5}));
}

/// Part `number` of a split, as a case: its dimension 1 begins at `begin`.
OpCase part_case(const char* name, std::function<std::vector<Tensor>(const Tensor&)> run, size_t number, int64_t begin,
                 int64_t size) {
  return view_case(
      name, {3, 7, 2}, {3, size, 2}, [=](const Tensor& x) { return run(x)[number]; },
      [begin](const Shape& i) {
        return Shape{i[0], begin + i[1], i[2]};
      });
}

TEST(View, SplitAndChunkMatchTheirFormulas) {
  const auto by_size = [](const Tensor& x) { return x.split(3, -2); };
  check(part_case("split", by_size, 0, 0, 3));
  check(part_case("split", by_size, 1, 3, 3));
  check(part_case("split", by_size, 2, 6, 1));
  const auto by_sizes = [](const Tensor& x) { return split(x, {2, 0, 5}, 1); };
  check(part_case("split", by_sizes, 0, 0, 2));
  check(part_case("split", by_sizes, 1, 2, 0));
  check(part_case("split", by_sizes, 2, 2, 5));
  const auto by_count = [](const Tensor& x) { return x.chunk(3, 1); };
  check(part_case("chunk", by_count, 0, 0, 3));
  check(part_case("chunk", by_count, 2, 6, 1));

  const auto sizes = [](const std::vector<Tensor>& parts) {
    std::vector<int64_t> result;
    for (const Tensor& part : parts) result.push_back(part.size(0));
    return result;
  };
  using Sizes = std::vector<int64_t>;
  const Tensor x = random_tensor({5}, 1);
  EXPECT_EQ(sizes(x.split(2)), (Sizes{2, 2, 1}));
  EXPECT_EQ(sizes(x.split(9)), (Sizes{5}));
  EXPECT_EQ(sizes(x.split(INT64_MAX)), (Sizes{5}));
  EXPECT_EQ(sizes(x.chunk(4)), (Sizes{2, 2, 1}));  // one fewer than asked for
  EXPECT_EQ(sizes(x.chunk(9)), (Sizes{1, 1, 1, 1, 1}));
  EXPECT_EQ(sizes(zeros({0, 3}).split(2)), (Sizes{0}));
  EXPECT_EQ(sizes(zeros({0, 3}).chunk(3)), (Sizes{0}));
  EXPECT_EQ(sizes(split(x, {5})), (Sizes{5}));
  EXPECT_EQ(split(zeros({0}), Shape{}).size(), 0u);
  for (const Tensor& part : x.split(2)) EXPECT_EQ(part.storage(), x.storage());
}

TEST(View, GradientsOfSplitPartsAreSummed) {
  Tensor x = random_tensor({4}, 1).set_requires_grad();
  const std::vector<Tensor> parts = x.split(3);
  const Tensor outputs[] = {parts[0], parts[1], parts[0]};
  const Tensor inputs[] = {x};
  const Tensor cotangents[] = {tensor({1.0, 2.0, 3.0}), tensor({4.0}), tensor({10.0, 20.0, 30.0})};
  EXPECT_EQ(grad(outputs, inputs, cotangents)[0].to_vector<double>(), (Values{11, 22, 33, 4}));
}

TEST(View, StackMatchesItsFormula) {
  for (const Shape& shape : {Shape{2, 3}, Shape{}, Shape{0, 2}, Shape{3, 1, 2}}) {
    for (int64_t dim = -shape.dim() - 1; dim <= shape.dim(); ++dim) {
      OpCase op;
      op.name = "stack";
      op.inputs = {{"tensors[0]", shape}, {"tensors[1]", shape}, {"tensors[2]", shape}};
      op.run = [dim](const std::vector<Tensor>& in) { return stack(in, dim); };
      op.reference = [dim, shape](const std::vector<Dense>& in) {
        const size_t d = static_cast<size_t>(dim < 0 ? dim + shape.dim() + 1 : dim);
        Shape result = shape;
        result.insert(d, 3);
        Dense out = dense_zeros(result);
        int64_t inner = 1;
        for (size_t i = d; i < shape.size(); ++i) inner *= shape[i];
        for (int64_t i = 0; i < out.num_elements(); ++i) {
          out[i] = in[static_cast<size_t>(i / inner % 3)][i / inner / 3 * inner + i % inner];
        }
        return out;
      };
      check(op);
    }
  }
  EXPECT_EQ(stack({tensor({1, 2}), tensor({0.5, 1.5})}, 1).to_vector<double>(), (Values{1, 0.5, 2, 1.5}));
}

TEST(View, GradientFlowsThroughChainedViews) {
  Tensor x = random_tensor({4, 6}, 3, kFloat64);
  x.set_requires_grad();
  const Tensor y = x.t().slice(0, 1, 5, 2).select(1, 2).unsqueeze(0).expand({3, 2});
  (y * y).backward(ones({3, 2}, {kFloat64}));
  const Values values = x.to_vector<double>();
  Values want(24, 0);
  for (size_t column : {1, 3}) want[2 * 6 + column] = 3 * 2 * values[2 * 6 + column];
  EXPECT_TRUE(close(x.grad(), {{4, 6}, want}, 1e-15));
}

TEST(View, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(error_text<ShapeError>([&] {
              static_cast<void>(x.view({4, -1}));
            }),
            "view: 6 elements do not fit shape [4, -1]\n"
            "  input  cpu  float32 [2, 3]");
  EXPECT_EQ(error_text<ShapeError>([&] {
              static_cast<void>(zeros({0}).reshape({0, -1}));
            }),
            "reshape: 0 elements do not fit shape [0, -1]\n"
            "  input  cpu  float32 [0]");
  EXPECT_EQ(error_text<ShapeError>([&] {
              static_cast<void>(x.reshape({-1, -1}));
            }),
            "reshape: 6 elements do not fit shape [-1, -1]\n"
            "  input  cpu  float32 [2, 3]");
  EXPECT_EQ(error_text<ShapeError>([&] { static_cast<void>(x.t().view({6})); }),
            "view: the strides [1, 3] do not permit shape [6] without a copy\n"
            "  input  cpu  float32 [3, 2]\n"
            "  use reshape");
  EXPECT_EQ(error_text<ShapeError>([&] { static_cast<void>(x.flatten(1, 0)); }),
            "flatten: start_dim 1 lies behind end_dim 0\n"
            "  input  cpu  float32 [2, 3]");
  EXPECT_EQ(error_text<ShapeError>([&] { static_cast<void>(zeros({2}).t()); }),
            "t: input must be a matrix\n"
            "  input  cpu  float32 [2]");
  EXPECT_EQ(error_text<ShapeError>([&] {
              static_cast<void>(x.permute({0, 0}));
            }),
            "permute: dims [0, 0] do not name each dimension once\n"
            "  input  cpu  float32 [2, 3]");
  EXPECT_EQ(error_text<ValueError>([&] { static_cast<void>(x.slice(0, 0, 2, 0)); }),
            "slice: step is 0, must be at least 1\n"
            "  input  cpu  float32 [2, 3]");
  EXPECT_EQ(error_text<IndexError>([&] { static_cast<void>(zeros({}).slice(0, 0, 1)); }),
            "slice: input has no dimensions\n"
            "  input  cpu  float32 []");
  EXPECT_EQ(error_text<IndexError>([&] { static_cast<void>(x.select(1, 3)); }),
            "select: index 3 lies outside dimension 1 of size 3\n"
            "  input  cpu  float32 [2, 3]");
  EXPECT_EQ(error_text<ShapeError>([&] {
              static_cast<void>(x.expand({3, 3}));
            }),
            "expand: input does not expand to [3, 3]\n"
            "  input  cpu  float32 [2, 3]");
  EXPECT_EQ(error_text<IndexError>([&] { static_cast<void>(x.transpose(0, 2)); }),
            "transpose: dimension 2 is out of range [-2, 2) of a tensor with 2 dimensions");
  EXPECT_EQ(error_text<ValueError>([&] { static_cast<void>(cat({})); }), "cat: no tensors");
  EXPECT_EQ(error_text<ShapeError>([&] {
              static_cast<void>(cat({x, x, zeros({2, 4})}, 0));
            }),
            "cat: sizes differ in another dimension than 0\n"
            "  tensors[0]  cpu  float32 [2, 3]\n"
            "  tensors[2]  cpu  float32 [2, 4]");
  EXPECT_EQ(error_text<ValueError>([&] { static_cast<void>(stack({})); }), "stack: no tensors");
  EXPECT_EQ(error_text<ShapeError>([&] {
              static_cast<void>(stack({x, x, zeros({2, 4})}));
            }),
            "stack: shapes differ\n"
            "  tensors[0]  cpu  float32 [2, 3]\n"
            "  tensors[2]  cpu  float32 [2, 4]");
  EXPECT_EQ(error_text<IndexError>([&] { static_cast<void>(stack({x}, 3)); }),
            "stack: dimension 3 is out of range [-3, 3) of a tensor with 3 dimensions");
  EXPECT_EQ(error_text<ValueError>([&] { static_cast<void>(x.split(0)); }),
            "split: split_size is 0, must be at least 1\n"
            "  input  cpu  float32 [2, 3]");
  EXPECT_EQ(error_text<ValueError>([&] {
              static_cast<void>(split(x, {4, -1}, 1));
            }),
            "split: split_sizes [4, -1] has a negative one\n"
            "  input  cpu  float32 [2, 3]");
  EXPECT_EQ(error_text<ShapeError>([&] { static_cast<void>(split(x, {2}, 1)); }),
            "split: split_sizes [2] do not add up to dimension 1 of size 3\n"
            "  input  cpu  float32 [2, 3]");
  EXPECT_EQ(error_text<ShapeError>([&] {
              static_cast<void>(split(x, {INT64_MAX, INT64_MAX, 5}, 1));
            }),
            "split: split_sizes [9223372036854775807, 9223372036854775807, 5] do not add up to dimension 1 of size 3\n"
            "  input  cpu  float32 [2, 3]");
  EXPECT_EQ(error_text<IndexError>([&] { static_cast<void>(zeros({}).split(1)); }),
            "split: input has no dimensions\n"
            "  input  cpu  float32 []");
  EXPECT_EQ(error_text<ValueError>([&] { static_cast<void>(x.chunk(-1)); }),
            "chunk: chunks is -1, must be at least 1\n"
            "  input  cpu  float32 [2, 3]");
  EXPECT_EQ(error_text<StateError>([&] { static_cast<void>(view(Tensor(), {2})); }),
            "view: input is undefined\n"
            "  input  undefined");
}

}}  // namespace tandem::testing
