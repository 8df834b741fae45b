#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {
namespace {

/// linalg runs on CPUs only.
Tensor on_cpu(const Arguments& arguments, const char* name) { return arguments.tensor(name).cpu(); }

}  // namespace

TANDEM_FIXTURES(linalg) {
  constexpr double kTolerance = 4096;  // matrices that are nearly singular
  fixtures.op("linalg.inv", kTolerance, [](const Arguments& a) { return linalg::inv(on_cpu(a, "A")); });
  fixtures.op("linalg.det", kTolerance, [](const Arguments& a) { return linalg::det(on_cpu(a, "A")); });
  fixtures.op("linalg.cholesky", kTolerance, [](const Arguments& a) { return linalg::cholesky(on_cpu(a, "A")); });
  fixtures.op("linalg.solve", kTolerance,
              [](const Arguments& a) { return linalg::solve(on_cpu(a, "A"), on_cpu(a, "B")); });
  fixtures.op("linalg.lu_factor", kTolerance, [](const Arguments& a) {
    const auto [LU, pivots] = linalg::lu_factor(on_cpu(a, "A"));
    return Results({LU, pivots});
  });
  fixtures.op("lu_unpack", kTolerance, [](const Arguments& a) {
    const auto [P, L, U] = linalg::lu_unpack(on_cpu(a, "LU_data"), on_cpu(a, "LU_pivots"));
    return Results({P, L, U});
  });
  fixtures.op("linalg.qr", kTolerance, [](const Arguments& a) {
    const Tensor r = linalg::qr(on_cpu(a, "A")).R;
    return sqrt(mul(r, r));
  });
  fixtures.op("linalg.svd", kTolerance, [](const Arguments& a) { return linalg::svd(on_cpu(a, "A")).S; });
  fixtures.op("linalg.eigh", kTolerance, [](const Arguments& a) {
    const Tensor matrix = on_cpu(a, "A");
    return linalg::eigh(div(add(matrix, transpose(matrix, -2, -1)), 2)).eigenvalues;
  });
}

}  // namespace tandem::testing
