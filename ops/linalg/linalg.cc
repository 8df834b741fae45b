#include <tandem/ops/linalg.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/index.h>
#include <tandem/ops/linalg/linalg_cpu.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {
namespace linalg {

using namespace ops;
using autograd::BackwardContext;
using autograd::SavedTensor;

namespace {

Tensor transposed(const Tensor& matrix) { return matrix.transpose(-2, -1); }

Shape batch_shape(const Tensor& matrix) {
  return {std::span<const int64_t>(matrix.shape().begin(), matrix.shape().size() - 2)};
}

/// `batch` followed by the sizes of a matrix or a vector.
Shape joined(Shape batch, const Shape& sizes) {
  for (const int64_t size : sizes) batch.push_back(size);
  return batch;
}

/// Checks devices, dtypes, and that A is a (square) matrix.
[[nodiscard]] Call check(const char* op, Arguments arguments, bool is_square = true) {
  Call call(op, CastPolicy::kFloat32, arguments);
  const Tensor& a = call.operands[0].tensor;
  TANDEM_CHECK(DeviceError, a.device().is_cpu(),
               operand_error(op, "it runs on CPUs only", call.operands, {},
                             "move the operands with .cpu(), and the result back"));
  check_same_dtype(op, call.operands);
  call.require<DTypeError>(a.dtype() == kFloat32 || a.dtype() == kFloat64, "A must be float32 or float64");
  call.require(a.dim() >= 2 && (!is_square || a.size(-1) == a.size(-2)),
               is_square ? "A must be square, [..., n, n]" : "A must be [..., m, n]");
  return call;
}

/// Throws ValueError for a matrix A that failed in a kernel; `index` is its batch index, or -1.
void check_succeeded(const char* op, const Tensor& a, const Shape& batch, int64_t index, const char* problem) {
  if (index < 0) return;
  Shape position = batch;
  for (size_t d = batch.size(); d-- > 0; index /= batch[d]) position[d] = index % batch[d];
  throw ValueError(
      with_module_scope(operand_error(op, str('A', batch.empty() ? "" : to_string(position), problem), {{"A", a}})));
}

Tensor identity(int64_t n, TensorOptions options) {
  const Tensor elements = zeros({n * n}, options);
  elements.slice(0, 0, n * n, n + 1).fill_(1);
  return elements.view({n, n});
}

/// numerator / denominator, but 0 where both are 0.
Tensor ratio(const Tensor& numerator, const Tensor& denominator) {
  const Tensor is_zero = to(eq(numerator, 0), numerator.dtype());
  return div(numerator, where(eq(denominator, 0), is_zero, denominator));
}

/// Results of a decomposition are parts of one tensor [batches, elements], so that one node computes all gradients.
Tensor part(const Tensor& packed, int64_t begin, const Shape& batch, const Shape& sizes) {
  return packed.slice(1, begin, begin + num_elements(sizes)).reshape(joined(batch, sizes));
}

Tensor empty_packed(const Tensor& a, int64_t elements) {
  return empty({num_elements(batch_shape(a)), elements}, a.options());
}

Shape broadcast_batches(const char* op, const Tensor& a, const Tensor& b) {
  Shape batch = batch_shape(a), other = batch_shape(b);
  if (batch.size() < other.size()) std::swap(batch, other);
  for (size_t d = other.size(); d-- > 0;) {
    int64_t& size = batch[batch.size() - other.size() + d];
    TANDEM_CHECK(ShapeError, size == other[d] || size == 1 || other[d] == 1,
                 operand_error(op, "batches do not broadcast", {{"A", a}, {"B", b}}));
    if (size == 1) size = other[d];
  }
  return batch;
}

/// A^-1 B for square A and matrices B, whose batches broadcast; recorded.
Tensor solve_matrices(const char* op, const Tensor& a, const Tensor& b) {
  const Shape batch = broadcast_batches(op, a, b);
  const int64_t n = a.size(-1), k = b.size(-1);
  const Tensor left = row_major(a.detach().expand(joined(batch, {n, n})));
  const Tensor right = row_major(b.detach().expand(joined(batch, {n, k})));
  const Tensor out = empty(joined(batch, {n, k}), a.options());
  check_succeeded(op, a, batch,
                  cpu::solve(a.dtype(), num_elements(batch), n, k, left.data_ptr(), right.data_ptr(), out.data_ptr()),
                  " is singular");
  const auto gradients = [op, a_shape = a.shape(), b_shape = b.shape()](
                             BackwardContext& context, const SavedTensor& matrix, const SavedTensor& solution) {
    const Tensor grad_b = solve_matrices(op, transposed(matrix.get()), context.grad());
    const auto grad_a = [&] { return sum_to_shape(neg(matmul(grad_b, transposed(solution.get()))), a_shape); };
    return TensorList{context.needs(0) ? grad_a() : Tensor(),
                      context.needs(1) ? sum_to_shape(grad_b, b_shape) : Tensor()};
  };
  record_gradient(op, out, {&a, &b}, {{"A", a}, {"output", a.requires_grad() ? out : Tensor()}}, gradients);
  return out;
}

/// x R^-1 for square R.
Tensor times_inverse(const Tensor& x, const Tensor& r) {
  return transposed(solve_matrices("linalg::solve", transposed(r), transposed(x)));
}

}  // namespace

Tensor cholesky(Tensor A) {
  const Call call = check("linalg::cholesky", {{"A", &A}});
  const Tensor out = empty(A.shape(), A.options()), dense = row_major(A);
  const Shape batch = batch_shape(A);
  check_succeeded("linalg::cholesky", A, batch,
                  cpu::cholesky(A.dtype(), num_elements(batch), A.size(-1), dense.data_ptr(), out.data_ptr()),
                  " is not positive definite");
  record_gradient("linalg::cholesky", out, {&A}, {{"output", out}}, [](const Tensor& grad, const Tensor& lower) {
    const Tensor product = tril(matmul(transposed(lower), grad));
    const Tensor halved = sub(mul(product, 0.5), mul(mul(product, identity(lower.size(-1), lower.options())), 0.25));
    const Tensor symmetric = add(halved, transposed(halved));
    return times_inverse(transposed(times_inverse(symmetric, lower)), lower);
  });
  return out;
}

Tensor solve(Tensor A, Tensor B) {
  const Call call = check("linalg::solve", {{"A", &A}, {"B", &B}});
  Shape vectors = A.shape();
  vectors.pop_back();
  const bool is_vector = B.dim() == 1 || B.shape() == vectors;
  call.require(B.dim() > 0 && B.size(is_vector ? -1 : -2) == A.size(-1), "B must be [..., ", A.size(-1),
               ", k] or [..., ", A.size(-1), "]");
  const Tensor out = solve_matrices("linalg::solve", A, is_vector ? B.unsqueeze(-1) : B);
  return is_vector ? out.squeeze(-1) : out;
}

Tensor inv(Tensor A) {
  const Call call = check("linalg::inv", {{"A", &A}});
  return solve_matrices("linalg::inv", A, identity(A.size(-1), A.options()));
}

Tensor det(Tensor A) {
  const Call call = check("linalg::det", {{"A", &A}});
  const Shape batch = batch_shape(A);
  const Tensor out = empty(batch, A.options()), dense = row_major(A);
  cpu::det(A.dtype(), num_elements(batch), A.size(-1), dense.data_ptr(), out.data_ptr());
  const auto gradient = [](BackwardContext& context, const SavedTensor& a, const SavedTensor& output) {
    const Tensor matrix = a.get(), &grad = context.grad();
    if (context.create_graph()) {
      const Tensor inverse = solve_matrices("linalg::det", matrix, identity(matrix.size(-1), matrix.options()));
      return mul(mul(grad, output.get()).unsqueeze(-1).unsqueeze(-1), transposed(inverse));
    }
    const Tensor result = empty(matrix.shape(), matrix.options()), rows = row_major(matrix);
    check_succeeded("linalg::det", matrix, grad.shape(),
                    cpu::det_backward(matrix.dtype(), grad.numel(), matrix.size(-1), rows.data_ptr(),
                                      row_major(grad).data_ptr(), result.data_ptr()),
                    " is not finite");
    return result;
  };
  record_gradient("linalg::det", out, {&A}, {{"A", A}, {"output", out}}, gradient);
  return out;
}

namespace {

QR qr_parts(const Tensor& packed, const Shape& shape) {
  const Shape batch(std::span<const int64_t>(shape.begin(), shape.size() - 2));
  const int64_t m = shape[shape.size() - 2], n = shape.back(), k = std::min(m, n);
  return {part(packed, 0, batch, {m, k}), part(packed, m * k, batch, {k, n})};
}

/// The gradient of A = Q R for square R.
Tensor qr_gradient(const Tensor& q, const Tensor& r, const Tensor& grad_q, const Tensor& grad_r) {
  const Tensor m = sub(matmul(r, transposed(grad_r)), matmul(transposed(grad_q), q));
  const Tensor symmetric = add(tril(m), transposed(tril(m, -1)));
  return times_inverse(add(grad_q, matmul(q, symmetric)), transposed(r));
}

}  // namespace

QR qr(Tensor A) {
  const Call call = check("linalg::qr", {{"A", &A}}, false);
  const int64_t m = A.size(-2), n = A.size(-1);
  const Tensor packed = empty_packed(A, std::min(m, n) * (m + n)), dense = row_major(A);
  cpu::qr(A.dtype(), packed.size(0), m, n, dense.data_ptr(), packed.data_ptr());
  const auto gradient = [n, shape = A.shape()](const Tensor& grad, const Tensor& saved) {
    const auto [q, r] = qr_parts(saved, shape);
    const auto [grad_q, grad_r] = qr_parts(grad, shape);
    const int64_t k = q.size(-1);
    if (n == k) return qr_gradient(q, r, grad_q, grad_r);
    // A = [Q R1, Q R2]: the gradients of Q through both.
    const Tensor r1 = r.slice(-1, 0, k), r2 = r.slice(-1, k, n), grad_r2 = grad_r.slice(-1, k, n);
    const Tensor grad_of_q = add(grad_q, matmul(q, matmul(r2, transposed(grad_r2))));
    return cat({qr_gradient(q, r1, grad_of_q, grad_r.slice(-1, 0, k)), matmul(q, grad_r2)}, -1);
  };
  record_gradient("linalg::qr", packed, {&A}, {{"output", packed}}, gradient);
  const QR views = qr_parts(packed, A.shape());
  return {clone(views.Q), clone(views.R)};
}

namespace {

SVD svd_parts(const Tensor& packed, const Shape& shape) {
  const Shape batch(std::span<const int64_t>(shape.begin(), shape.size() - 2));
  const int64_t m = shape[shape.size() - 2], n = shape.back(), k = std::min(m, n);
  return {part(packed, 0, batch, {m, k}), part(packed, m * k, batch, {k}), part(packed, m * k + k, batch, {k, n})};
}

}  // namespace

SVD svd(Tensor A) {
  const Call call = check("linalg::svd", {{"A", &A}}, false);
  const int64_t m = A.size(-2), n = A.size(-1);
  const Tensor packed = empty_packed(A, std::min(m, n) * (m + n + 1)), dense = row_major(A);
  check_succeeded("linalg::svd", A, batch_shape(A),
                  cpu::svd(A.dtype(), packed.size(0), m, n, dense.data_ptr(), packed.data_ptr()), " is not finite");
  const auto gradient = [shape = A.shape()](const Tensor& grad_packed, const Tensor& saved) {
    const auto [u, s, vh] = svd_parts(saved, shape);
    const auto [grad_u, grad_s, grad_vh] = svd_parts(grad_packed, shape);
    const int64_t k = s.size(-1);
    const Tensor row = s.unsqueeze(-2), column = s.unsqueeze(-1), gaps = mul(sub(row, column), add(row, column));
    const auto skew = [&](const Tensor& x) { return ratio(sub(x, transposed(x)), gaps); };
    const Tensor of_u = matmul(transposed(u), grad_u), of_v = matmul(vh, transposed(grad_vh));
    const Tensor off_diagonal = add(mul(skew(of_u), row), mul(column, skew(of_v)));
    const Tensor inner = add(off_diagonal, mul(identity(k, s.options()), grad_s.unsqueeze(-1)));
    Tensor left = matmul(u, inner);
    if (u.size(-2) > k) left = add(left, ratio(sub(grad_u, matmul(u, of_u)), row));
    const Tensor grad = matmul(left, vh);
    if (vh.size(-1) == k) return grad;
    const Tensor rest = sub(grad_vh, matmul(transposed(of_v), vh));
    return add(grad, matmul(u, ratio(rest, column)));
  };
  record_gradient("linalg::svd", packed, {&A}, {{"output", packed}}, gradient);
  const SVD views = svd_parts(packed, A.shape());
  return {clone(views.U), clone(views.S), clone(views.Vh)};
}

namespace {

Eigh eigh_parts(const Tensor& packed, const Shape& shape) {
  const Shape batch(std::span<const int64_t>(shape.begin(), shape.size() - 2));
  const int64_t n = shape.back();
  return {part(packed, 0, batch, {n}), part(packed, n, batch, {n, n})};
}

}  // namespace

Eigh eigh(Tensor A) {
  const Call call = check("linalg::eigh", {{"A", &A}});
  const int64_t n = A.size(-1);
  const Tensor packed = empty_packed(A, n * (n + 1)), dense = row_major(A);
  check_succeeded("linalg::eigh", A, batch_shape(A),
                  cpu::eigh(A.dtype(), packed.size(0), n, dense.data_ptr(), packed.data_ptr()), " is not finite");
  const auto gradient = [shape = A.shape()](const Tensor& grad, const Tensor& saved) {
    const auto [values, vectors] = eigh_parts(saved, shape);
    const auto [grad_values, grad_vectors] = eigh_parts(grad, shape);
    const Tensor diagonal = identity(values.size(-1), values.options());
    const Tensor gaps = sub(values.unsqueeze(-2), values.unsqueeze(-1));
    const Tensor rotations = mul(matmul(transposed(vectors), grad_vectors), sub(1, diagonal));
    const Tensor inner = add(ratio(rotations, gaps), mul(diagonal, grad_values.unsqueeze(-1)));
    return matmul(matmul(vectors, inner), transposed(vectors));
  };
  record_gradient("linalg::eigh", packed, {&A}, {{"output", packed}}, gradient);
  const Eigh views = eigh_parts(packed, A.shape());
  return {clone(views.eigenvalues), clone(views.eigenvectors)};
}

namespace {

/// The permutation matrices [..., m, m] that undo the exchanges of lu_factor.
Tensor permutation(const Tensor& pivots, int64_t m, TensorOptions options) {
  const Shape batch = batch_shape(pivots.unsqueeze(-1));
  const int64_t batches = num_elements(batch), k = pivots.size(-1);
  const std::vector<int32_t> exchanges = pivots.to_vector<int32_t>();
  const Tensor result = zeros({batches * m * m}, options);
  std::vector<int64_t> places, rows(static_cast<size_t>(m));
  for (int64_t i = 0; i < batches; ++i) {
    std::iota(rows.begin(), rows.end(), 0);
    for (int64_t j = 0; j < k; ++j) {
      const int64_t p = exchanges[static_cast<size_t>(i * k + j)];
      TANDEM_CHECK(ValueError, p >= 1 && p <= m, "linalg::lu_unpack: pivot ", p, " is not in [1, ", m, "]");
      std::swap(rows[static_cast<size_t>(j)], rows[static_cast<size_t>(p - 1)]);
    }
    for (int64_t j = 0; j < m; ++j) places.push_back((i * m + rows[static_cast<size_t>(j)]) * m + j);
  }
  const Tensor index = empty(places.size(), {kInt64, options.device});
  std::copy(places.begin(), places.end(), index.data<int64_t>());
  result.index_fill_(0, index, 1);
  return result.view(joined(batch, {m, m}));
}

/// {L, U}, recorded.
std::pair<Tensor, Tensor> lu_parts(const Tensor& lu) {
  const int64_t m = lu.size(-2), n = lu.size(-1), k = std::min(m, n);
  const Tensor ones = eye(m, k, lu.options());
  return {add(tril(lu.narrow(-1, 0, k), -1), ones), triu(lu.narrow(-2, 0, k))};
}

}  // namespace

std::pair<Tensor, Tensor> lu_factor(Tensor A) {
  const Call call = check("linalg::lu_factor", {{"A", &A}}, false);
  const Shape batch = batch_shape(A);
  const int64_t m = A.size(-2), n = A.size(-1);
  const Tensor packed = empty(A.shape(), A.options());
  const Tensor pivots = empty(joined(batch, {std::min(m, n)}), {kInt32, A.device()});
  const Tensor dense = row_major(A);
  cpu::lu_factor(A.dtype(), num_elements(batch), m, n, dense.data_ptr(), packed.data_ptr(), pivots.data<int32_t>());
  // L = [L1; L2] and U = [U1 U2] with square L1 and U1. U2 = L1^-1 A2 and L2 = A2 U1^-1 are solutions of equations;
  // their gradients add to those of L1 and U1.
  const auto gradient = [m, n, k = std::min(m, n)](const Tensor& grad, const Tensor& lu, const Tensor& exchanges) {
    constexpr const char* kOp = "linalg::lu_factor";
    const auto [L, U] = lu_parts(lu);
    const Tensor L1 = L.narrow(-2, 0, k), U1 = U.narrow(-1, 0, k);
    const auto over_L1 = [&](const Tensor& x) { return solve_matrices(kOp, transposed(L1), x); };  // L1^-T x
    const auto over_U1 = [&](const Tensor& x) {
      return transposed(solve_matrices(kOp, U1, transposed(x)));
    };  // x U1^-T
    Tensor grad_L = tril(grad.narrow(-2, 0, k).narrow(-1, 0, k), -1);
    Tensor grad_U = triu(grad.narrow(-2, 0, k).narrow(-1, 0, k));
    Tensor rest;  // of the gradient
    if (n > k) {
      rest = over_L1(grad.narrow(-1, k, n - k));
      grad_L = sub(grad_L, tril(matmul(rest, transposed(U.narrow(-1, k, n - k))), -1));
    } else if (m > k) {
      rest = over_U1(grad.narrow(-2, k, m - k));
      grad_U = sub(grad_U, triu(matmul(transposed(L.narrow(-2, k, m - k)), rest)));
    }
    const Tensor inner = add(tril(matmul(transposed(L1), grad_L), -1), triu(matmul(grad_U, transposed(U1))));
    const Tensor square = over_U1(over_L1(inner));
    const Tensor rows = rest.defined() ? cat({square, rest}, n > k ? -1 : -2) : square;
    return matmul(permutation(exchanges, m, lu.options()), rows);
  };
  record_gradient("linalg::lu_factor", packed, {&A}, {{"LU", packed}, {"pivots", pivots}}, gradient);
  return {packed, pivots};
}

std::tuple<Tensor, Tensor, Tensor> lu_unpack(Tensor LU, const Tensor& pivots) {
  const Call call("linalg::lu_unpack", CastPolicy::kFloat32, {{"LU", &LU}, {"pivots", pivots}});
  const Call matrices = check("linalg::lu_unpack", {{"LU", &LU}}, false);
  call.require<DTypeError>(pivots.dtype() == kInt32, "pivots must be int32");
  call.require(pivots.shape() == joined(batch_shape(LU), {std::min(LU.size(-2), LU.size(-1))}),
               "pivots must be [..., min(m, n)]");
  const auto [L, U] = lu_parts(LU);
  return {permutation(pivots, LU.size(-2), LU.options()), L, U};
}

}  // namespace linalg

Tensor Tensor::inverse() const { return linalg::inv(*this); }

}}  // namespace tandem::v0
