#include <tandem/ops/matmul/matmul_kernels.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

/// a [.., m, k] @ b [.., k, n], batches broadcast, in float64.
Dense product(const Dense& a, const Dense& b) {
  const size_t dims = std::max(a.shape.size(), b.shape.size());
  auto padded = [&](const Shape& shape) {
    Shape result(dims - shape.size(), 1);
    for (int64_t size : shape) result.push_back(size);
    return result;
  };
  const Shape sa = padded(a.shape), sb = padded(b.shape);
  const int64_t m = sa[dims - 2], k = sa[dims - 1], n = sb[dims - 1];
  Shape shape(dims, 0);
  for (size_t d = 0; d + 2 < dims; ++d) shape[d] = sa[d] == 1 ? sb[d] : sa[d];
  shape[dims - 2] = m;
  shape[dims - 1] = n;
  Dense out = dense_zeros(shape);
  const int64_t batches = m * n == 0 ? 0 : out.numel() / (m * n);
  for (int64_t batch = 0; batch < batches; ++batch) {
    int64_t rest = batch, in_a = 0, in_b = 0, step_a = 1, step_b = 1;
    for (size_t d = dims - 2; d-- > 0;) {
      const int64_t index = rest % shape[d];
      rest /= shape[d];
      in_a += (sa[d] == 1 ? 0 : index) * step_a;
      in_b += (sb[d] == 1 ? 0 : index) * step_b;
      step_a *= sa[d];
      step_b *= sb[d];
    }
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l) sum += a[(in_a * m + i) * k + l] * b[(in_b * k + l) * n + j];
        out[(batch * m + i) * n + j] = sum;
      }
    }
  }
  return out;
}

/// x [.., in] @ weight [out, in]^T + bias.
Dense linear_reference(const Dense& x, const Dense& weight, const Dense* bias) {
  const int64_t in = weight.shape[1], out_size = weight.shape[0];
  Shape shape = x.shape;
  shape.back() = out_size;
  Dense out = dense_zeros(shape);
  for (int64_t i = 0; i < out.numel(); ++i) {
    const int64_t row = i / out_size, column = i % out_size;
    double sum = bias != nullptr ? (*bias)[column] : 0.0;
    for (int64_t l = 0; l < in; ++l) sum += x[row * in + l] * weight[column * in + l];
    out[i] = sum;
  }
  return out;
}

OpCase matmul_case(Shape a, Shape b) {
  OpCase op;
  op.name = "matmul";
  op.terms = static_cast<double>(a.back());
  op.inputs = {{"input", a}, {"other", b}};
  op.run = [](const std::vector<Tensor>& in) { return matmul(in[0], in[1]); };
  op.reference = [](const std::vector<Dense>& in) { return product(in[0], in[1]); };
  return op;
}

OpCase bmm_case(Shape a, Shape b) {
  OpCase op = matmul_case(a, b);
  op.name = "bmm";
  op.inputs[1].name = "mat2";
  op.run = [](const std::vector<Tensor>& in) { return bmm(in[0], in[1]); };
  return op;
}

OpCase addmm_case(Shape input, Shape a, Shape b) {
  OpCase op;
  op.name = "addmm";
  op.terms = static_cast<double>(a.back() + 1);
  op.inputs = {{"input", input}, {"mat1", a}, {"mat2", b}};
  op.run = [](const std::vector<Tensor>& in) { return addmm(in[0], in[1], in[2], 0.5, -1.25); };
  op.reference = [](const std::vector<Dense>& in) {
    const Dense factor = product(in[1], in[2]);
    return dense_map(factor.shape, {in[0], factor},
                     [](const std::vector<double>& x) { return 0.5 * x[0] - 1.25 * x[1]; });
  };
  return op;
}

/// A product of operands with one dimension fewer than matrices; `as_matrices` are the shapes that `product` takes.
OpCase vector_case(const char* name, Input a, Input b, Tensor (*run)(const Tensor&, const Tensor&),
                   std::pair<Shape, Shape> as_matrices, const Shape& result) {
  OpCase op;
  op.name = name;
  op.terms = static_cast<double>(as_matrices.first.back());
  op.inputs = {std::move(a), std::move(b)};
  op.run = [run](const std::vector<Tensor>& in) { return run(in[0], in[1]); };
  op.reference = [=](const std::vector<Dense>& in) {
    Dense out = product({as_matrices.first, in[0].values}, {as_matrices.second, in[1].values});
    out.shape = result;
    return out;
  };
  return op;
}

OpCase addmv_case(Shape input, Shape mat) {
  OpCase op;
  op.name = "addmv";
  op.terms = static_cast<double>(mat.back() + 1);
  op.inputs = {{"input", input}, {"mat", mat}, {"vec", {mat.back()}}};
  op.run = [](const std::vector<Tensor>& in) { return addmv(in[0], in[1], in[2], 0.5, -1.25); };
  op.reference = [](const std::vector<Dense>& in) {
    Dense factor = product(in[1], {{in[2].numel(), 1}, in[2].values});
    factor.shape = {factor.numel()};
    return dense_map(factor.shape, {in[0], factor},
                     [](const std::vector<double>& x) { return 0.5 * x[0] - 1.25 * x[1]; });
  };
  return op;
}

OpCase baddbmm_case(Shape input, Shape a, Shape b) {
  OpCase op = addmm_case(std::move(input), std::move(a), std::move(b));
  op.name = "baddbmm";
  op.inputs[1].name = "batch1";
  op.inputs[2].name = "batch2";
  op.run = [](const std::vector<Tensor>& in) { return baddbmm(in[0], in[1], in[2], 0.5, -1.25); };
  return op;
}

OpCase linear_case(Shape x, int64_t out, bool with_bias, bool with_relu) {
  OpCase op;
  op.name = with_relu ? "linear_relu" : "linear";
  op.terms = static_cast<double>(x.back() + 1);
  op.inputs = {{"x", x}, {"weight", {out, x.back()}}};
  if (with_bias) {
    op.inputs.push_back({"bias", {out}});
    op.inputs.back().optional = true;
  }
  op.run = [=](const std::vector<Tensor>& in) {
    const Tensor bias = with_bias ? in[2] : Tensor();
    return with_relu ? linear_relu(in[0], in[1], bias) : linear(in[0], in[1], bias);
  };
  op.reference = [=](const std::vector<Dense>& in) {
    Dense result = linear_reference(in[0], in[1], with_bias ? &in[2] : nullptr);
    if (with_relu) {
      for (double& value : result.values) value = std::max(value, 0.0);
    }
    return result;
  };
  return op;
}

OpCase linear_gelu_case(Shape x, int64_t out, bool with_bias, GeluApproximation form) {
  OpCase op = linear_case(std::move(x), out, with_bias, false);
  op.name = "linear_gelu";
  op.run = [=](const std::vector<Tensor>& in) { return linear_gelu(in[0], in[1], with_bias ? in[2] : Tensor(), form); };
  op.reference = [form, product = op.reference](const std::vector<Dense>& in) {
    Dense result = product(in);
    for (double& v : result.values) {
      const double tanh_form = 1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v));
      v *= 0.5 * (form == GeluApproximation::kTanh ? tanh_form : std::erfc(-v * M_SQRT1_2));
    }
    return result;
  };
  return op;
}

OpCase bilinear_case(const Shape& leading, int64_t in1, int64_t in2, int64_t out, bool with_bias) {
  const auto with_last = [&](int64_t size) {
    Shape shape = leading;
    shape.push_back(size);
    return shape;
  };
  OpCase op;
  op.name = "bilinear";
  op.terms = static_cast<double>(in1 * in2 + 1);
  // The tolerance is for terms of up to 1.
  op.inputs = {
      {"input1", with_last(in1), -1, 1}, {"input2", with_last(in2), -1, 1}, {"weight", {out, in1, in2}, -1, 1}};
  if (with_bias) op.inputs.push_back(optional({"bias", {out}}));
  op.run = [=](const Tensors& x) { return bilinear(x[0], x[1], x[2], with_bias ? x[3] : Tensor()); };
  op.reference = [=, shape = with_last(out)](const std::vector<Dense>& in) {
    Dense result = dense_zeros(shape);
    for (int64_t i = 0; i < result.numel(); ++i) {
      const int64_t row = i / out, o = i % out;
      result[i] = with_bias ? in[3][o] : 0;
      for (int64_t a = 0; a < in1; ++a) {
        for (int64_t b = 0; b < in2; ++b)
          result[i] += in[0][row * in1 + a] * in[2][(o * in1 + a) * in2 + b] * in[1][row * in2 + b];
      }
    }
    return result;
  };
  return op;
}

// x W^T, dy W and dy^T x of the layers in the training cases.
struct Product {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
};
constexpr Product kProducts[] = {
    {128, 1024, 784, false, true},  {128, 1024, 1024, false, true},   {128, 10, 1024, false, true},
    {1024, 1536, 384, false, true}, {128, 1024, 1024, false, false},  {128, 1024, 10, false, false},
    {1024, 784, 128, true, false},  {1024, 1024, 128, true, false},   {10, 1024, 128, true, false},
    {2048, 512, 128, false, true},  {1000, 1000, 1000, false, false},
};
constexpr GemmAlgorithm kAlgorithms[] = {GemmAlgorithm::kAvx2, GemmAlgorithm::kAvx2Swapped, GemmAlgorithm::kAvx512,
                                         GemmAlgorithm::kAvx512Swapped};

double flops(const Product& p) { return 2.0 * static_cast<double>(p.m * p.n * p.k); }

TensorList operands(const Product& p) {
  return {p.a_transposed ? transpose(randn({p.k, p.m}), 0, 1) : randn({p.m, p.k}),
          p.b_transposed ? transpose(randn({p.n, p.k}), 0, 1) : randn({p.k, p.n})};
}

/// The kernel with a given algorithm, without the operator function.
Tensor product(const Product& p, GemmAlgorithm algorithm, const TensorList& in) {
  const MatrixOperand a{in[0].data_ptr(), p.a_transposed ? p.m : p.k, p.a_transposed};
  const MatrixOperand b{in[1].data_ptr(), p.b_transposed ? p.k : p.n, p.b_transposed};
  const Tensor scratch = empty({cpu::gemm_workspace_bytes(kFloat32, algorithm, p.m, p.n, p.k, a, b)}, {kUInt8});
  Tensor out = empty({p.m, p.n});
  cpu::gemm(Device(), kFloat32, algorithm, p.m, p.n, p.k, 1, a, b, 0, {}, scratch.data_ptr(), out.data_ptr());
  return out;
}

}  // namespace

TANDEM_OP_CASES(matmul) {
  const auto product_of = [](const Tensors& x) { return matmul(x[0], x[1]); };
  const std::vector<Input> affine = {{"x", {2, 20, 33}}, {"weight", {31, 33}}, optional({"bias", {31}})};
  const auto policy = CastPolicy::kLowPrecision;
  cases.op("Tensor matmul(const Tensor& input, const Tensor& other)", policy,
           {{.inputs = {{"input", {31, 40}}, {"other", {40, 33}}}, .run = product_of},
            {.inputs = {{"input", {5}}, {"other", {5}}}, .run = product_of},
            {.inputs = {{"input", {5}}, {"other", {4, 5, 2}}}, .run = product_of},
            matmul_case({3, 7}, {7, 5}),
            matmul_case({7, 3}, {3, 5}),
            matmul_case({1, 1}, {1, 1}),
            matmul_case({2, 3, 7}, {7, 5}),
            matmul_case({4, 3, 5}, {5, 2}),
            matmul_case({2, 1, 3, 5}, {4, 5, 2})});
  cases.op("Tensor bmm(const Tensor& input, const Tensor& mat2)", policy,
           {bmm_case({2, 3, 5}, {2, 5, 4}), bmm_case({2, 3, 7}, {2, 7, 5}), bmm_case({2, 3, 4}, {2, 4, 5}),
            bmm_case({1, 1, 7}, {1, 7, 1})});
  cases.op(
      "Tensor addmm(const Tensor& input, const Tensor& mat1, const Tensor& mat2, Scalar beta = 1, Scalar alpha = 1)",
      policy,
      {addmm_case({4}, {3, 5}, {5, 4}),
       addmm_case({5}, {3, 7}, {7, 5}),
       addmm_case({3, 5}, {3, 4}, {4, 5}),
       addmm_case({3, 1}, {3, 4}, {4, 5}),
       addmm_case({5}, {3, 4}, {4, 5}),
       {.inputs = {{"input", {}}, {"mat1", {3, 5}}, {"mat2", {5, 4}}},
        .run = [](const Tensors& x) { return addmm(x[0], x[1], x[2], 0, 2); }}});
  cases.op("Tensor addmv(const Tensor& input, const Tensor& mat, const Tensor& vec, Scalar beta = 1, Scalar alpha = 1)",
           policy, {addmv_case({3}, {3, 7}), addmv_case({1}, {33, 5}), addmv_case({}, {4, 3})});
  cases.op(
      "Tensor baddbmm(const Tensor& input, const Tensor& batch1, const Tensor& batch2, Scalar beta = 1, Scalar alpha = "
      "1)",
      policy,
      {baddbmm_case({4}, {2, 3, 5}, {2, 5, 4}),
       baddbmm_case({2, 1, 5}, {2, 3, 7}, {2, 7, 5}),
       baddbmm_case({3, 1}, {1, 3, 7}, {1, 7, 5}),
       {.inputs = {{"input", {}}, {"batch1", {2, 3, 5}}, {"batch2", {2, 5, 4}}},
        .run = [](const Tensors& x) { return baddbmm(x[0], x[1], x[2], 0, 2); }}});
  cases.op("Tensor mm(const Tensor& input, const Tensor& mat2)", policy,
           {vector_case("mm", {"input", {3, 7}}, {"mat2", {7, 5}}, mm, {{3, 7}, {7, 5}}, {3, 5})});
  cases.op("Tensor mv(const Tensor& input, const Tensor& vec)", policy,
           {vector_case("mv", {"input", {3, 7}}, {"vec", {7}}, mv, {{3, 7}, {7, 1}}, {3}),
            vector_case("mv", {"input", {33, 31}}, {"vec", {31}}, mv, {{33, 31}, {31, 1}}, {33})});
  cases.op("Tensor dot(const Tensor& input, const Tensor& tensor)", policy,
           {vector_case("dot", {"input", {7}}, {"tensor", {7}}, dot, {{1, 7}, {7, 1}}, {}),
            vector_case("dot", {"input", {1}}, {"tensor", {1}}, dot, {{1, 1}, {1, 1}}, {})});
  cases.op("Tensor outer(const Tensor& input, const Tensor& vec2)", CastPolicy::kWidest,
           {vector_case("outer", {"input", {3}}, {"vec2", {7}}, outer, {{3, 1}, {1, 7}}, {3, 7})});
  const auto cross_case = [](const Shape& shape, int64_t dim, int64_t step) {  // elements along dim are `step` apart
    return OpCase{.name = "cross",
                  .inputs = {{"input", shape}, {"other", shape}},
                  .run = [=](const Tensors& x) { return cross(x[0], x[1], dim); },
                  .reference =
                      [=](const std::vector<Dense>& in) {
                        Dense out = in[0];
                        for (int64_t i = 0; i < out.numel(); ++i) {
                          const int64_t d = i / step % 3, begin = i - d * step;
                          const int64_t j = begin + (d + 1) % 3 * step, k = begin + (d + 2) % 3 * step;
                          out[i] = in[0][j] * in[1][k] - in[0][k] * in[1][j];
                        }
                        return out;
                      },
                  .terms = 4};
  };
  cases.op("Tensor cross(const Tensor& input, const Tensor& other, int64_t dim = -1)", CastPolicy::kWidest,
           {cross_case({5, 3}, -1, 1), cross_case({2, 3, 4}, 1, 4)});
  cases.benchmark(
      "cross", {{100'000, 3}, {100'000, 3}}, [](const TensorList& in) { return cross(in[0], in[1]); }, {},
      "torch.linalg.cross(a, b)");
  cases.op("Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {})", CastPolicy::kLowPrecision,
           {{.inputs = affine, .run = [](const Tensors& x) { return linear(x[0], x[1], x[2]); }},
            {.inputs = {{"x", {3, 7}, 0.5, 2}, {"weight", {5, 7}, 0.5, 2}, {"bias", {5}, 0.5, 2}},
             .run = [](const Tensors& x) { return linear(x[0], x[1], x[2]); },
             .terms = 8},
            {.inputs = {{"x", {3, 7}, 0.5, 2}, {"weight", {5, 7}, 0.5, 2}},
             .run = [](const Tensors& x) { return linear(x[0], x[1]); },
             .terms = 7}});
  cases.op("Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {})",
           CastPolicy::kLowPrecision,
           {{.inputs = affine, .run = [](const Tensors& x) { return linear_relu(x[0], x[1], x[2]); }},
            {.inputs = {{"x", {3, 7}, 0.5, 2}, {"weight", {5, 7}, 0.5, 2}, {"bias", {5}, 0.5, 2}},
             .run = [](const Tensors& x) { return linear_relu(x[0], x[1], x[2]); },
             .terms = 8}});
  const auto tanh_form = [](const Tensors& x) {
    return linear_gelu(x[0], x[1], x.size() == 3 ? x[2] : Tensor(), GeluApproximation::kTanh);
  };
  cases.op(
      "Tensor linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, GeluApproximation "
      "approximation = GeluApproximation::kNone)",
      CastPolicy::kLowPrecision,
      {{.inputs = affine, .run = [](const Tensors& x) { return linear_gelu(x[0], x[1], x[2]); }, .roundings = 2},
       {.inputs = affine, .run = tanh_form, .roundings = 2},
       {.inputs = {{"x", {2, 3, 24}, -1, 1}, {"weight", {16, 24}, -1, 1}, optional({"bias", {16}, -1, 1})},
        .run = tanh_form,
        .terms = 25,
        .roundings = 2},
       {.inputs = {{"x", {5, 8}, -1, 1}, {"weight", {8, 8}, -1, 1}}, .run = tanh_form, .terms = 8, .roundings = 2}});

  cases.op(
      "Tensor bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor bias = {})", CastPolicy::kLowPrecision,
      {bilinear_case({3}, 4, 5, 2, true), bilinear_case({2, 3}, 3, 1, 4, false), bilinear_case({}, 3, 2, 4, true)});
  cases.add(bilinear_case({33}, 17, 31, 9, true), kValues | kThreads);

  cases.add(matmul_case({31, 33}, {33, 17}));  // too large for the direct algorithm
  cases.add(matmul_case({3, 70}, {70, 7}));

  cases.add(matmul_case({2, 3, 4}, {4, 5}));
  cases.add(matmul_case({2, 3, 4}, {2, 4, 5}));
  cases.add(matmul_case({3, 4}, {2, 4, 5}));
  cases.add(matmul_case({2, 1, 3, 4}, {3, 4, 2}));
  cases.add(matmul_case({2, 1, 33, 31}, {3, 31, 32}), kValues);
  cases.add(matmul_case({2, 1, 33, 31}, {3, 31, 32}), kThreads);

  {
    OpCase op = matmul_case({3}, {3, 5});
    op.reference = [](const std::vector<Dense>& in) {
      Dense row = in[0];
      row.shape = {1, 3};
      Dense out = product(row, in[1]);
      out.shape = {5};
      return out;
    };
    cases.add(op);
    op = matmul_case({2, 3, 4}, {4});
    op.reference = [](const std::vector<Dense>& in) {
      Dense column = in[1];
      column.shape = {4, 1};
      Dense out = product(in[0], column);
      out.shape = {2, 3};
      return out;
    };
    cases.add(op);
    op = matmul_case({7}, {7});
    op.reference = [](const std::vector<Dense>& in) {
      Dense out = dense_zeros({});
      for (int64_t i = 0; i < 7; ++i) out[0] += in[0][i] * in[1][i];
      return out;
    };
    cases.add(op);
  }

  cases.add(bmm_case({3, 33, 31}, {3, 31, 32}), kValues);
  cases.add(bmm_case({3, 2, 31}, {3, 31, 1}), kGradients);
  cases.add(bmm_case({3, 65, 31}, {3, 31, 70}), kThreads);

  cases.add(addmm_case({33}, {32, 31}, {31, 33}), kValues);

  for (const auto form : {GeluApproximation::kNone, GeluApproximation::kTanh}) {
    cases.add(linear_gelu_case({3, 24}, 16, true, form));
    cases.add(linear_gelu_case({2, 3, 5}, 7, false, form));
  }
  cases.add(linear_case({7, 3}, 5, true, false));
  cases.add(linear_case({7, 3}, 5, false, false));
  cases.add(linear_case({3}, 4, true, false));
  cases.add(linear_case({2, 3, 4}, 5, true, false));
  cases.add(linear_case({1, 40}, 3300, true, false), kValues | kThreads);
  cases.add(linear_case({33, 31}, 65, true, false), kValues);
  cases.add(linear_case({33, 31}, 65, true, false), kThreads);

  {
    OpCase op = linear_case({2, 3, 4}, 1, true, false);
    op.inputs[1].shape = {4};
    op.inputs[2].shape = {};
    const Reference reference = op.reference;
    op.reference = [reference](std::vector<Dense> in) {
      in[1].shape = {1, 4};
      Dense out = reference(in);
      out.shape = {2, 3};
      return out;
    };
    cases.add(op, kValues | kGradients);
  }

  cases.add(linear_case({7, 3}, 5, true, true));
  cases.add(linear_case({7, 3}, 5, false, true));
  cases.add(linear_case({2, 3, 4}, 5, true, true));
  cases.add(linear_case({33, 31}, 65, true, true), kValues);
  cases.add(linear_case({33, 31}, 65, true, true), kThreads);

  for (const Product& p : kProducts) {
    const auto rule = gemm_algorithm(p.m, p.n, p.k, p.a_transposed, p.b_transposed);
    cases.benchmark(
        std::string("matmul ") + to_string(rule), [&p] { return operands(p); },
        [](const TensorList& in) { return matmul(in[0], in[1]); }, {.flops = flops(p)});
    for (const GemmAlgorithm algorithm : kAlgorithms) {
      if (!is_available(algorithm)) continue;
      cases.benchmark(
          std::string("product ") + to_string(algorithm), [&p] { return operands(p); },
          [&p, algorithm](const TensorList& in) { return product(p, algorithm, in); },
          {.flops = flops(p), .backward = false});
    }
  }
  cases.benchmark("matmul batched", {{64, 128, 32}, {64, 32, 128}},
                  [](const TensorList& in) { return matmul(in[0], in[1]); }, {.flops = 2.0 * 64 * 128 * 128 * 32});
  cases.benchmark("bmm", {{24, 256, 64}, {24, 64, 256}}, [](const TensorList& in) { return bmm(in[0], in[1]); },
                  {.flops = 2.0 * 24 * 256 * 256 * 64});
  cases.benchmark("addmv", {{2048}, {2048, 1024}, {1024}},
                  [](const TensorList& in) { return addmv(in[0], in[1], in[2]); });
  cases.benchmark("baddbmm", {{24, 256, 256}, {24, 256, 64}, {24, 64, 256}},
                  [](const TensorList& in) { return baddbmm(in[0], in[1], in[2]); },
                  {.flops = 2.0 * 24 * 256 * 256 * 64});
  cases.benchmark("mm", {{512, 512}, {512, 512}}, [](const TensorList& in) { return mm(in[0], in[1]); },
                  {.flops = 2.0 * 512 * 512 * 512});
  cases.benchmark("mv", {{2048, 1024}, {1024}}, [](const TensorList& in) { return mv(in[0], in[1]); });
  cases.benchmark("dot", {{1000000}, {1000000}}, [](const TensorList& in) { return dot(in[0], in[1]); });
  cases.benchmark("outer", {{2048}, {1024}}, [](const TensorList& in) { return outer(in[0], in[1]); });
  const auto layer = [] { return TensorList{randn({2048, 128}), randn({512, 128}), randn({512})}; };
  const double layer_flops = 2.0 * 2048 * 512 * 128;
  cases.benchmark("linear", layer, [](const TensorList& in) { return linear(in[0], in[1], in[2]); },
                  {.flops = layer_flops});
  cases.benchmark("bilinear", {{2048, 64}, {2048, 32}, {16, 64, 32}, {16}},
                  [](const TensorList& in) { return bilinear(in[0], in[1], in[2], in[3]); },
                  {.flops = 2.0 * 2048 * 16 * 32 * (64 + 1)});
  cases.benchmark("addmm", layer, [](const TensorList& in) { return addmm(in[2], in[0], in[1].t(), 0.5, 2); },
                  {.flops = layer_flops});
  cases.benchmark("linear_relu", layer, [](const TensorList& in) { return linear_relu(in[0], in[1], in[2]); },
                  {.flops = layer_flops});
  cases.benchmark("linear_gelu", layer,
                  [](const TensorList& in) { return linear_gelu(in[0], in[1], in[2], GeluApproximation::kTanh); },
                  {.flops = layer_flops});
}

}  // namespace tandem::testing
