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
Dense shifted(Dense x) {
  const int64_t n = x.shape.back(), m = x.shape[x.shape.size() - 2];
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (i % n == i / n % m) x[i] += 4 + 3 * static_cast<double>(i % n);
  }
  return x;
}

Tensor symmetric(const Tensor& x) { return x.defined() ? shifted(x) + shifted(x).transpose(-2, -1) : x; }

/// f(matrix, index of the matrix) for each matrix of the batch.
void for_matrices(const Dense& a, const std::function<void(const double*, int64_t)>& f) {
  const int64_t size = a.shape.back() * a.shape[a.shape.size() - 2];
  for (int64_t i = 0; i * size < a.numel(); ++i) f(a.values.data() + i * size, i);
}

/// Replaces b [n, k] by a^-1 b, by Gauss-Jordan elimination without pivoting; returns the determinant of a.
double eliminate(std::vector<double> a, int64_t n, double* b, int64_t k) {
  double determinant = 1;
  const auto at = [&](int64_t i, int64_t j) -> double& { return a[static_cast<size_t>(i * n + j)]; };
  for (int64_t p = 0; p < n; ++p) {
    const double pivot = at(p, p);
    determinant *= pivot;
    for (int64_t j = 0; j < n; ++j) at(p, j) /= pivot;
    for (int64_t j = 0; j < k; ++j) b[p * k + j] /= pivot;
    for (int64_t i = 0; i < n; ++i) {
      const double factor = at(i, p);
      if (i == p) continue;
      for (int64_t j = 0; j < n; ++j) at(i, j) -= factor * at(p, j);
      for (int64_t j = 0; j < k; ++j) b[i * k + j] -= factor * b[p * k + j];
    }
  }
  return determinant;
}

Dense solve_reference(const Dense& a, Dense b) {
  const int64_t n = a.shape.back(), k = b.shape.back();
  for_matrices(a, [&](const double* matrix, int64_t i) {
    eliminate({matrix, matrix + n * n}, n, b.values.data() + i * n * k, k);
  });
  return b;
}

Dense identities(const Shape& shape) {
  Dense out = dense_zeros(shape);
  const int64_t n = shape.back();
  for (int64_t i = 0; i < out.numel(); ++i) out[i] = i % n == i / n % n;
  return out;
}

/// The squares of R of the QR decomposition by Gram and Schmidt; R is unique but for signs of its rows.
Dense squared_r(const Dense& a) {
  const int64_t m = a.shape[a.shape.size() - 2], n = a.shape.back(), k = std::min(m, n);
  Shape shape = a.shape;
  shape[shape.size() - 2] = k;
  Dense out = dense_zeros(shape);
  for_matrices(a, [&](const double* matrix, int64_t batch) {
    std::vector<double> q(matrix, matrix + m * n);
    for (int64_t i = 0; i < k; ++i) {
      const auto product = [&](int64_t x, int64_t y) {
        double sum = 0;
        for (int64_t l = 0; l < m; ++l) sum += q[static_cast<size_t>(l * n + x)] * q[static_cast<size_t>(l * n + y)];
        return sum;
      };
      const double square = product(i, i);
      for (int64_t j = n; j-- > i;) {
        const double along = product(i, j);
        out[(batch * k + i) * n + j] = along * along / square;
        for (int64_t l = 0; l < m && j > i; ++l) {
          q[static_cast<size_t>(l * n + j)] -= along / square * q[static_cast<size_t>(l * n + i)];
        }
      }
    }
  });
  return out;
}

/// The sum of the squares of the elements of each matrix.
Dense squared_norms(const Dense& a) {
  Dense out = dense_zeros({a.shape.begin(), a.shape.end() - 2});
  const int64_t size = a.shape.back() * a.shape[a.shape.size() - 2];
  for (int64_t i = 0; i < a.numel(); ++i) out[i / size] += a[i] * a[i];
  return out;
}

/// The squares of the elements of both tensors, which do not depend on the signs of vectors, in rows.
Tensor squares(const Tensor& a, const Tensor& b) { return cat({square(a).flatten(), square(b).flatten()}); }

OpCase linalg_case(const char* name, std::vector<Shape> shapes, std::function<Tensor(const Tensors&)> run,
                   Reference reference) {
  static const char* const names[] = {"A", "B"};
  OpCase op;
  op.name = str("linalg::", name);
  for (size_t i = 0; i < shapes.size(); ++i) op.inputs.push_back({names[i], shapes[i], -0.5, 0.5});
  op.run = std::move(run);
  op.reference = std::move(reference);
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
    cholesky_cases.push_back(linalg_case(
        "cholesky", {shape}, [](const Tensors& x) { return square(linalg::cholesky(symmetric(x[0]))); },
        [](const std::vector<Dense>& in) {  // L^T of A = L L^T is R of the decomposition of L^T, whose R^T R is A
          Dense a = shifted(in[0]), out = a;
          const int64_t n = a.shape.back();
          for_matrices(a, [&](const double* matrix, int64_t batch) {
            double* lower = out.values.data() + batch * n * n;
            const auto value = [&](int64_t i, int64_t j) { return matrix[i * n + j] + matrix[j * n + i]; };
            for (int64_t i = 0; i < n; ++i) {
              for (int64_t j = 0; j < n; ++j) {
                double sum = value(i, j);
                for (int64_t l = 0; l < std::min(i, j); ++l) sum -= lower[i * n + l] * lower[j * n + l];
                lower[i * n + j] = i < j ? 0 : i == j ? std::sqrt(sum) : sum / lower[j * n + j];
              }
            }
          });
          for (double& x : out.values) x *= x;
          return out;
        }));
    inv_cases.push_back(linalg_case(
        "inv", {shape}, [](const Tensors& x) { return linalg::inv(shifted(x[0])); },
        [](const std::vector<Dense>& in) { return solve_reference(shifted(in[0]), identities(in[0].shape)); }));
    det_cases.push_back(linalg_case(
        "det", {shape}, [](const Tensors& x) { return linalg::det(shifted(x[0])); },
        [](const std::vector<Dense>& in) {
          const Dense a = shifted(in[0]);
          Dense out = dense_zeros({a.shape.begin(), a.shape.end() - 2});
          const int64_t n = a.shape.back();
          for_matrices(a, [&](const double* matrix, int64_t i) {
            out[i] = eliminate({matrix, matrix + n * n}, n, nullptr, 0);
          });
          return out;
        }));
    det_cases.back().terms = 4096;
    eigh_cases.push_back(linalg_case(
        "eigh", {shape}, [](const Tensors& x) { return square(linalg::eigh(symmetric(x[0])).eigenvalues).sum({-1}); },
        [](const std::vector<Dense>& in) {
          Dense a = shifted(in[0]);
          const int64_t n = a.shape.back();
          const Dense half = a;
          for (int64_t i = 0; i < a.numel(); ++i) {
            a[i] += half[i / (n * n) * n * n + i % n * n + i / n % n];
          }
          return squared_norms(a);
        }));
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
                          },
                          {}),
              kGradients);
  }

  cases.op("Tensor linalg::solve(Tensor A, Tensor B)", policy,
           {{.inputs = {{"A", {3, 3}}, {"B", {2, 3, 4}}},
             .run = [](const Tensors& x) { return linalg::solve(at_least_float32(x[0]), at_least_float32(x[1])); },
             .dtypes = {kFloat64, kFloat32}}});
  const auto solve = [](const Tensors& x) { return linalg::solve(shifted(x[0]), x[1]); };
  const auto solve_matrices = [](const std::vector<Dense>& in) { return solve_reference(shifted(in[0]), in[1]); };
  cases.add(linalg_case("solve", {{3, 3}, {3, 2}}, solve, solve_matrices));
  cases.add(linalg_case("solve", {{2, 5, 5}, {2, 5, 1}}, solve, solve_matrices));
  cases.add(linalg_case("solve", {{2, 3, 3}, {2, 3}}, solve, [=](std::vector<Dense> in) {
    in[1].shape.push_back(1);
    Dense out = solve_matrices(in);
    out.shape.pop_back();
    return out;
  }));
  cases.add(linalg_case("solve", {{2, 1, 3, 3}, {4, 3, 2}}, solve, {}), kGradients);  // batches broadcast
  cases.add(linalg_case("solve", {{70, 20, 20}, {70, 20, 3}}, solve, {}), kThreads);

  std::vector<OpCase> qr_cases, svd_cases;
  for (const Shape& shape : {Shape{3, 3}, Shape{2, 5, 3}, Shape{3, 5}, Shape{4, 1}}) {
    qr_cases.push_back(linalg_case(
        "qr", {shape}, [](const Tensors& x) { return square(linalg::qr(shifted(x[0])).R); },
        [](const std::vector<Dense>& in) { return squared_r(shifted(in[0])); }));
    svd_cases.push_back(linalg_case(
        "svd", {shape}, [](const Tensors& x) { return square(linalg::svd(shifted(x[0])).S).sum({-1}); },
        [](const std::vector<Dense>& in) { return squared_norms(shifted(in[0])); }));
  }
  cases.op("QR linalg::qr(Tensor A)", policy, qr_cases);
  cases.op("SVD linalg::svd(Tensor A)", policy, svd_cases);
  for (const OpCase& op : qr_cases) {
    cases.add(linalg_case("qr", {op.inputs[0].shape},
                          [](const Tensors& x) {
                            const auto [q, r] = linalg::qr(shifted(x[0]));
                            return squares(q, r);
                          },
                          {}),
              kGradients);
    cases.add(linalg_case("svd", {op.inputs[0].shape},
                          [](const Tensors& x) {
                            const auto [u, s, vh] = linalg::svd(shifted(x[0]));
                            return squares(squares(u, s), vh);
                          },
                          {}),
              kGradients);
  }

  std::vector<OpCase> lu_cases;
  for (const Shape& shape : {Shape{3, 3}, Shape{2, 5, 3}, Shape{3, 5}, Shape{4, 1}}) {
    lu_cases.push_back(linalg_case(
        "lu_factor", {shape},
        [](const Tensors& x) { return linalg::lu_factor(x[0].defined() ? shifted(x[0]).flip(-2) : x[0]).first; },
        [](const std::vector<Dense>& in) {
          Dense out = shifted(in[0]);
          const int64_t n = out.shape.back(), m = out.shape[out.shape.size() - 2];
          for (double* a = out.values.data(); a < out.values.data() + out.numel(); a += m * n) {
            for (int64_t i = 0; i < m / 2; ++i) std::swap_ranges(a + i * n, a + i * n + n, a + (m - 1 - i) * n);
            for (int64_t j = 0; j < std::min(m, n); ++j) {
              int64_t p = j;
              for (int64_t i = j; i < m; ++i) p = std::abs(a[i * n + j]) > std::abs(a[p * n + j]) ? i : p;
              std::swap_ranges(a + j * n, a + j * n + n, a + p * n);
              for (int64_t i = j + 1; i < m; ++i) {
                a[i * n + j] /= a[j * n + j];
                for (int64_t l = j + 1; l < n; ++l) a[i * n + l] -= a[i * n + j] * a[j * n + l];
              }
            }
          }
          return out;
        }));
  }
  cases.op("std::pair<Tensor, Tensor> linalg::lu_factor(Tensor A)", policy, lu_cases);
  OpCase unpack = linalg_case(
      "lu_unpack", {{2, 4, 3}},
      [](const Tensors& x) {
        const auto [P, L, U] = linalg::lu_unpack(at_least_float32(x[0]), x[1]);
        // Products that autocast does not cast.
        const auto product = [](const Tensor& a, const Tensor& b) {
          return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2);
        };
        return product(product(P, L), U);
      },
      [](const std::vector<Dense>& in) {
        Dense out = in[0];
        for (int64_t b = 0; b < 2; ++b) {
          const double* lu = in[0].values.data() + b * 12;
          double* a = out.values.data() + b * 12;
          for (int64_t i = 0; i < 12; ++i) {
            a[i] = i / 3 <= i % 3 ? lu[i] : 0;
            for (int64_t l = 0; l < std::min(i / 3, i % 3 + 1); ++l) a[i] += lu[i / 3 * 3 + l] * lu[l * 3 + i % 3];
          }
          for (int64_t j = 3; j-- > 0;) {
            const int64_t p = static_cast<int64_t>(in[1][b * 3 + j]) - 1;
            if (p != j) std::swap_ranges(a + j * 3, a + j * 3 + 3, a + p * 3);
          }
        }
        return out;
      });
  unpack.inputs = {{"LU", {2, 4, 3}, -0.5, 0.5}, {"pivots", {2, 3}, 1, 5, kInt32}};
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
