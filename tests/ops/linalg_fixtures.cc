#include <tandem/ops/elementwise.h>
#include <tandem/ops/linalg.h>
#include <tandem/ops/math.h>
#include <tandem/ops/view.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {
namespace {

/// linalg runs on CPUs only.
Tensor on_cpu(const Arguments& arguments, const char* name) { return arguments.tensor(name).cpu(); }

}  // namespace

TANDEM_FIXTURES(linalg) {
  constexpr double kTolerance = 4096;  // matrices that are nearly singular
  fixtures.op(
      "linalg.inv", [](const Arguments& a) { return linalg::inv(on_cpu(a, "A")); }, kTolerance);
  fixtures.op(
      "linalg.det", [](const Arguments& a) { return linalg::det(on_cpu(a, "A")); }, kTolerance);
  fixtures.op(
      "linalg.cholesky", [](const Arguments& a) { return linalg::cholesky(on_cpu(a, "A")); }, kTolerance);
  fixtures.op(
      "linalg.solve", [](const Arguments& a) { return linalg::solve(on_cpu(a, "A"), on_cpu(a, "B")); }, kTolerance);
  fixtures.op(
      "linalg.qr",
      [](const Arguments& a) {
        const Tensor r = linalg::qr(on_cpu(a, "A")).R;
        return sqrt(mul(r, r));
      },
      kTolerance);
  fixtures.op(
      "linalg.svd", [](const Arguments& a) { return linalg::svd(on_cpu(a, "A")).S; }, kTolerance);
  fixtures.op(
      "linalg.eigh",
      [](const Arguments& a) {
        const Tensor matrix = on_cpu(a, "A");
        return linalg::eigh(div(add(matrix, transpose(matrix, -2, -1)), 2)).eigenvalues;
      },
      kTolerance);
}

}  // namespace tandem::testing
