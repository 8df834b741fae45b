#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

/// Passes an undefined x on.
Tensor at_least_float32(const Tensor& x) { return x.defined() ? x.to(promote(x.dtype(), kFloat32)) : x; }

/// x + diag(4, 7, 10, ...): well conditioned, with distinct singular values. Half types are raised to float32. An
/// undefined x is passed on.
Tensor shifted(const Tensor& x) {
  if (!x.defined()) return x;
  const int64_t m = x.size(-2), n = x.size(-1);
  const DType dtype = promote(x.dtype(), kFloat32);
  const Tensor diagonal = zeros({m * n}, {dtype, x.device()});
  for (int64_t i = 0; i < std::min(m, n); ++i) diagonal.slice(0, i * (n + 1), i * (n + 1) + 1).fill_(4 + 3 * i);
  return x.to(dtype) + diagonal.view({m, n});
}

Tensor symmetric(const Tensor& x) { return x.defined() ? shifted(x) + shifted(x).transpose(-2, -1) : x; }

/// The squares of the elements of both tensors, which do not depend on the signs of vectors, in rows.
Tensor squares(const Tensor& a, const Tensor& b) { return cat({square(a).flatten(), square(b).flatten()}); }

OpCase linalg_case(const char* name, std::vector<Shape> shapes, std::function<Tensor(const Tensors&)> run) {
  static const char* const names[] = {"A", "B"};
  OpCase op;
  op.name = str("linalg::", name);
  for (size_t i = 0; i < shapes.size(); ++i) op.inputs.push_back({names[i], shapes[i], -0.5, 0.5});
  op.run = std::move(run);
  op.reference = in_float64(op);
  op.terms = 64;
  op.tolerance = 64;  // distances of singular values amplify rounding errors
  op.dtypes = {kFloat64, kFloat32};
  return op;
}

}  // namespace

TANDEM_OP_CASES(linalg) {
  if (!test_device().is_cpu()) return;  // there are no kernels for GPUs
  const auto policy = CastPolicy::kFloat32;
  const std::vector<Shape> shapes = {{3, 3}, {2, 5, 5}, {1, 1}};

  std::vector<OpCase> cholesky_cases, inv_cases, det_cases, eigh_cases;
  for (const Shape& shape : shapes) {
    cholesky_cases.push_back(
        linalg_case("cholesky", {shape}, [](const Tensors& x) { return square(linalg::cholesky(symmetric(x[0]))); }));
    inv_cases.push_back(linalg_case("inv", {shape}, [](const Tensors& x) { return linalg::inv(shifted(x[0])); }));
    det_cases.push_back(linalg_case("det", {shape}, [](const Tensors& x) { return linalg::det(shifted(x[0])); }));
    det_cases.back().terms = 4096;
    eigh_cases.push_back(linalg_case(
        "eigh", {shape}, [](const Tensors& x) { return square(linalg::eigh(symmetric(x[0])).eigenvalues).sum({-1}); }));
  }
  cases.op("Tensor linalg::cholesky(Tensor A)", policy, cholesky_cases);
  cases.op("Tensor linalg::inv(Tensor A)", policy, inv_cases);
  cases.op("Tensor linalg::det(Tensor A)", policy, det_cases);
  cases.op("Eigh linalg::eigh(Tensor A)", policy, eigh_cases);
  for (const Shape& shape : shapes) {
    cases.add(linalg_case("eigh", {shape},
                          [](const Tensors& x) {
                            const auto [values, vectors] = linalg::eigh(symmetric(x[0]));
                            return squares(values, vectors);
                          }),
              kGradients);
  }

  cases.op("Tensor linalg::solve(Tensor A, Tensor B)", policy,
           {{.inputs = {{"A", {3, 3}}, {"B", {2, 3, 4}}},
             .run = [](const Tensors& x) { return linalg::solve(at_least_float32(x[0]), at_least_float32(x[1])); },
             .dtypes = {kFloat64, kFloat32}}});
  const auto solve = [](const Tensors& x) { return linalg::solve(shifted(x[0]), x[1]); };
  cases.add(linalg_case("solve", {{3, 3}, {3, 2}}, solve));
  cases.add(linalg_case("solve", {{2, 5, 5}, {2, 5, 1}}, solve));
  cases.add(linalg_case("solve", {{2, 3, 3}, {2, 3}}, solve));
  cases.add(linalg_case("solve", {{2, 1, 3, 3}, {4, 3, 2}}, solve), kGradients);  // batches broadcast
  cases.add(linalg_case("solve", {{70, 20, 20}, {70, 20, 3}}, solve), kThreads);

  std::vector<OpCase> qr_cases, svd_cases;
  for (const Shape& shape : {Shape{3, 3}, Shape{2, 5, 3}, Shape{3, 5}, Shape{4, 1}}) {
    qr_cases.push_back(
        linalg_case("qr", {shape}, [](const Tensors& x) { return square(linalg::qr(shifted(x[0])).R); }));
    svd_cases.push_back(
        linalg_case("svd", {shape}, [](const Tensors& x) { return square(linalg::svd(shifted(x[0])).S).sum({-1}); }));
  }
  cases.op("QR linalg::qr(Tensor A)", policy, qr_cases);
  cases.op("SVD linalg::svd(Tensor A)", policy, svd_cases);
  for (const OpCase& op : qr_cases) {
    cases.add(linalg_case("qr", {op.inputs[0].shape},
                          [](const Tensors& x) {
                            const auto [q, r] = linalg::qr(shifted(x[0]));
                            return squares(q, r);
                          }),
              kGradients);
    cases.add(linalg_case("svd", {op.inputs[0].shape},
                          [](const Tensors& x) {
                            const auto [u, s, vh] = linalg::svd(shifted(x[0]));
                            return squares(squares(u, s), vh);
                          }),
              kGradients);
  }

  std::vector<OpCase> lu_cases;
  for (const Shape& shape : {Shape{3, 3}, Shape{2, 5, 3}, Shape{3, 5}, Shape{4, 1}}) {
    lu_cases.push_back(linalg_case("lu_factor", {shape}, [](const Tensors& x) {
      return linalg::lu_factor(x[0].defined() ? shifted(x[0]).flip(-2) : x[0]).first;
    }));
  }
  cases.op("std::pair<Tensor, Tensor> linalg::lu_factor(Tensor A)", policy, lu_cases);
  OpCase unpack = linalg_case("lu_unpack", {{2, 4, 3}}, [](const Tensors& x) {
    const auto [P, L, U] = linalg::lu_unpack(at_least_float32(x[0]), x[1]);
    // Products that autocast does not cast.
    const auto product = [](const Tensor& a, const Tensor& b) { return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2); };
    return product(product(P, L), U);
  });
  unpack.inputs = {{"LU", {2, 4, 3}, -0.5, 0.5}, {"pivots", {2, 3}, 1, 5, kInt32}};
  unpack.reference = in_float64(unpack);
  cases.op("std::tuple<Tensor, Tensor, Tensor> linalg::lu_unpack(Tensor LU, const Tensor& pivots)", policy, {unpack});

  const std::pair<const char*, Tensor (*)(const TensorList&)> rows[] = {
      {"lu_factor", [](const TensorList& in) { return linalg::lu_factor(in[0]).first; }},
      {"lu_unpack",
       [](const TensorList& in) {
         return std::get<1>(linalg::lu_unpack(in[0], ones({16, 64}, kInt)));
       }},
      {"cholesky", [](const TensorList& in) { return linalg::cholesky(symmetric(in[0])); }},
      {"solve", [](const TensorList& in) { return linalg::solve(shifted(in[0]), in[1]); }},
      {"inv", [](const TensorList& in) { return linalg::inv(shifted(in[0])); }},
      {"det", [](const TensorList& in) { return linalg::det(shifted(in[0])); }},
      {"qr", [](const TensorList& in) { return linalg::qr(in[0]).R; }},
      {"svd", [](const TensorList& in) { return linalg::svd(in[0]).S; }},
      {"eigh", [](const TensorList& in) { return linalg::eigh(in[0]).eigenvalues; }}};
  for (const auto& [name, run] : rows) {
    cases.benchmark(
        name,
        [] {
          return TensorList{rand({16, 64, 64}), rand({16, 64, 64})};
        },
        run);
  }
}

}  // namespace tandem::testing
