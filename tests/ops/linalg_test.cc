#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

Tensor identity(int64_t n) { return one_hot(arange(n), n).to(kFloat64); }

/// Expects orthonormal columns.
void expect_orthonormal(const Tensor& q) {
  const Tensor gram = matmul(q.transpose(-2, -1), q);
  EXPECT_TRUE(close(gram, dense(identity(q.size(-1)).expand(gram.shape())), 1e-13));
}

void expect_descending(const Tensor& values) {
  const Tensor steps = values.slice(-1, 0, values.size(-1) - 1) - values.slice(-1, 1, values.size(-1));
  for (const double step : steps.to_vector<double>()) EXPECT_GE(step, 0);
}

const Shape kShapes[] = {{3, 3}, {2, 3, 7, 4}, {4, 7}, {1, 1}, {70, 33}, {33, 70}};

TEST(Qr, FactorsAreOrthonormalAndTriangular) {
  for (const Shape& shape : kShapes) {
    const Tensor a = random_tensor(shape, 1, kFloat64);
    const auto [q, r] = linalg::qr(a);
    expect_orthonormal(q);
    EXPECT_TRUE(close(matmul(q, r), dense(a), 1e-13));
    EXPECT_TRUE(same_bits(r - tril(r, -1), r));
  }
}

TEST(Svd, FactorsAreOrthonormalAndSorted) {
  for (const Shape& shape : kShapes) {
    const Tensor a = random_tensor(shape, 1, kFloat64);
    const auto [u, s, vh] = linalg::svd(a);
    expect_orthonormal(u);
    expect_orthonormal(vh.transpose(-2, -1));
    expect_descending(s);
    EXPECT_TRUE(close(matmul(u * s.unsqueeze(-2), vh), dense(a), 1e-13));
  }
}

TEST(Eigh, EigenvectorsAreOrthonormalAndSorted) {
  for (const Shape& shape : {Shape{3, 3}, Shape{2, 5, 5}, Shape{70, 70}}) {
    const Tensor x = random_tensor(shape, 1, kFloat64), a = x + x.transpose(-2, -1);
    const auto [values, vectors] = linalg::eigh(tril(a));
    expect_orthonormal(vectors);
    expect_descending(-values);
    EXPECT_TRUE(close(matmul(vectors * values.unsqueeze(-2), vectors.transpose(-2, -1)), dense(a), 1e-13));
  }
}

TEST(Svd, SingularValuesOfRepeatedOnesHaveFiniteGradients) {
  Tensor a = identity(3).requires_grad_();
  linalg::svd(a).S.sum().backward();
  EXPECT_TRUE(close(a.grad(), dense(identity(3)), 1e-15));
  a.zero_grad();
  linalg::eigh(a).eigenvalues.sum().backward();
  EXPECT_TRUE(close(a.grad(), dense(identity(3)), 1e-15));
}

TEST(Det, GradientOfSingularMatrixIsItsCofactors) {
  Tensor a = tensor({1.0, 2.0, 2.0, 4.0}).to(kFloat64).view({2, 2}).detach().requires_grad_();
  const Tensor d = linalg::det(a);
  EXPECT_NEAR(d.item(), 0, 1e-15);
  d.backward({}, true);
  EXPECT_TRUE(close(a.grad(), {{2, 2}, {4, -2, -2, 1}}, 1e-14));
  const Tensor outputs[] = {d}, inputs[] = {a};
  EXPECT_EQ(error_text<ValueError>([&] { grad(outputs, inputs, {}, {.create_graph = true}); }).substr(0, 26),
            "linalg::det: A is singular");
}

TEST(Linalg, EmptyMatricesAreAccepted) {
  const TensorOptions options = {kFloat64};
  EXPECT_EQ(linalg::det(empty({2, 0, 0}, options)).to_vector<double>(), (std::vector<double>{1, 1}));
  EXPECT_EQ(linalg::inv(empty({0, 3, 3}, options)).shape(), Shape({0, 3, 3}));
  EXPECT_EQ(linalg::solve(empty({0, 0}, options), empty({0, 2}, options)).shape(), Shape({0, 2}));
  EXPECT_EQ(linalg::qr(empty({3, 0}, options)).Q.shape(), Shape({3, 0}));
  EXPECT_EQ(linalg::svd(empty({0, 2}, options)).Vh.shape(), Shape({0, 2}));
  EXPECT_EQ(linalg::eigh(empty({0, 0}, options)).eigenvectors.shape(), Shape({0, 0}));
}

TEST(Linalg, AutocastRaisesHalfTypes) {
  const Tensor a = identity(2).to(kBFloat16);
  const Autocast autocast(kBFloat16);
  EXPECT_EQ(linalg::inv(a).dtype(), kFloat32);
  EXPECT_EQ(linalg::svd(a).S.dtype(), kFloat32);
}

TEST(Linalg, FailuresNameTheFirstMatrix) {
  const Tensor ones_batch = ones({2, 2, 2, 2}), good = identity(2).to(kFloat32).expand({2, 2, 2, 2});
  EXPECT_ERROR(ValueError, linalg::inv(ones({2, 2})), "linalg::inv: A is singular\n  A  cpu  float32 [2, 2]");
  EXPECT_ERROR(ValueError, linalg::solve(cat({good, ones_batch}), ones({2})),
               "linalg::solve: A[2, 0] is singular\n  A  cpu  float32 [4, 2, 2, 2]");
  EXPECT_ERROR(ValueError, linalg::cholesky(stack({identity(2), -identity(2)})),
               "linalg::cholesky: A[1] is not positive definite\n  A  cpu  float64 [2, 2, 2]");
  EXPECT_ERROR(ValueError, linalg::svd(full({2, 3}, NAN)), "linalg::svd: A is not finite\n  A  cpu  float32 [2, 3]");
  EXPECT_ERROR(ValueError, linalg::eigh(full({2, 2}, INFINITY)),
               "linalg::eigh: A is not finite\n  A  cpu  float32 [2, 2]");
}

TEST(Linalg, InvalidArgumentsAreNamedInErrors) {
  EXPECT_ERROR(ShapeError, linalg::inv(zeros({2, 3})),
               "linalg::inv: A must be square, [..., n, n]\n  A  cpu  float32 [2, 3]");
  EXPECT_ERROR(ShapeError, linalg::qr(zeros({3})), "linalg::qr: A must be [..., m, n]\n  A  cpu  float32 [3]");
  EXPECT_ERROR(DTypeError, linalg::det(zeros({3, 3}, {kFloat16})),
               "linalg::det: A must be float32 or float64\n  A  cpu  float16 [3, 3]");
  EXPECT_ERROR(ShapeError, linalg::solve(zeros({3, 3}), zeros({2, 4, 2})),
               "linalg::solve: B must be [..., 3, k] or [..., 3]\n"
               "  A  cpu  float32 [3, 3]\n"
               "  B  cpu  float32 [2, 4, 2]");
  EXPECT_ERROR(ShapeError, linalg::solve(zeros({3, 2, 2}), zeros({4, 2, 1})),
               "linalg::solve: batches do not broadcast\n"
               "  A  cpu  float32 [3, 2, 2]\n"
               "  B  cpu  float32 [4, 2, 1]");
}

}}  // namespace tandem::testing
