#include <tandem/ops/elementwise.h>
#include <tandem/ops/linalg.h>
#include <tandem/ops/math.h>
#include <tandem/ops/view.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(linalg) {
  constexpr double kTolerance = 4096;  // matrices that are nearly singular
  fixtures.op(
      "linalg.inv", [](const Arguments& a) { return linalg::inv(a.tensor("A")); }, kTolerance);
  fixtures.op(
      "linalg.det", [](const Arguments& a) { return linalg::det(a.tensor("A")); }, kTolerance);
  fixtures.op(
      "linalg.cholesky", [](const Arguments& a) { return linalg::cholesky(a.tensor("A")); }, kTolerance);
  fixtures.op(
      "linalg.solve", [](const Arguments& a) { return linalg::solve(a.tensor("A"), a.tensor("B")); }, kTolerance);
  fixtures.op(
      "linalg.qr",
      [](const Arguments& a) {
        const Tensor r = linalg::qr(a.tensor("A")).R;
        return sqrt(mul(r, r));
      },
      kTolerance);
  fixtures.op(
      "linalg.svd", [](const Arguments& a) { return linalg::svd(a.tensor("A")).S; }, kTolerance);
  fixtures.op(
      "linalg.eigh",
      [](const Arguments& a) {
        const Tensor matrix = a.tensor("A");
        return linalg::eigh(div(add(matrix, transpose(matrix, -2, -1)), 2)).eigenvalues;
      },
      kTolerance);
}

}  // namespace tandem::testing
