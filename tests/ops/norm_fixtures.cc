#include <tandem/ops/elementwise.h>
#include <tandem/ops/norm.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(norm) {
  fixtures.op(
      "nn.functional.batch_norm",
      [](const Arguments& a) {
        Tensors results(1);
        for (const char* name : {"running_mean", "running_var"}) {
          if (a.has(name)) results.push_back(a.tensor(name).clone());
        }
        const bool has_statistics = results.size() == 3;
        results[0] = batch_norm(a.tensor("input"), has_statistics ? results[1] : Tensor(),
                                has_statistics ? results[2] : Tensor(), a.tensor("weight"), a.tensor("bias"),
                                a.flag("training"), a.real("momentum", 0.1), a.real("eps", 1e-5));
        return Results(results);
      },
      64);
  fixtures.op(
      "nn.functional.layer_norm",
      [](const Arguments& a) {
        return layer_norm(a.tensor("input"), a.shape("normalized_shape"), a.tensor("weight"), a.tensor("bias"),
                          a.real("eps", 1e-5));
      },
      128);
}

}  // namespace tandem::testing
