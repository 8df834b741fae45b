#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

/// The result of norm(running_mean, running_var) on copies of the running statistics, and the copies.
template <class Norm>
Results with_running_statistics(const Arguments& a, const Norm& norm) {
  Tensors results(1);
  for (const char* name : {"running_mean", "running_var"}) {
    if (a.has(name)) results.push_back(a.tensor(name).clone());
  }
  const bool has_statistics = results.size() == 3;
  results[0] = norm(has_statistics ? results[1] : Tensor(), has_statistics ? results[2] : Tensor());
  return Results(results);
}

TANDEM_FIXTURES(norm) {
  fixtures.op("nn.functional.batch_norm", 64, [](const Arguments& a) {
    return with_running_statistics(a, [&](const Tensor& mean, const Tensor& var) {
      return batch_norm(a.tensor("input"), mean, var, a.tensor("weight"), a.tensor("bias"), a.flag("training"),
                        a.real("momentum", 0.1), a.real("eps", 1e-5));
    });
  });
  fixtures.op("nn.functional.instance_norm", 64, [](const Arguments& a) {
    return with_running_statistics(a, [&](const Tensor& mean, const Tensor& var) {
      return instance_norm(a.tensor("input"), mean, var, a.tensor("weight"), a.tensor("bias"),
                           a.flag("use_input_stats", true), a.real("momentum", 0.1), a.real("eps", 1e-5));
    });
  });
  fixtures.op("nn.functional.group_norm", 64, [](const Arguments& a) {
    return group_norm(a.tensor("input"), a.integer("num_groups"), a.tensor("weight"), a.tensor("bias"),
                      a.real("eps", 1e-5));
  });
  fixtures.op("nn.functional.local_response_norm", 64, [](const Arguments& a) {
    return local_response_norm(a.tensor("input"), a.integer("size"), a.real("alpha", 1e-4), a.real("beta", 0.75),
                               a.real("k", 1));
  });
  fixtures.op("nn.functional.rms_norm", 64, [](const Arguments& a) {
    const std::optional<double> eps = a.has("eps") ? std::optional(a.real("eps", 0)) : std::nullopt;
    return rms_norm(a.tensor("input"), a.shape("normalized_shape"), a.tensor("weight"), eps);
  });
  fixtures.op("nn.functional.layer_norm", 128, [](const Arguments& a) {
    return layer_norm(a.tensor("input"), a.shape("normalized_shape"), a.tensor("weight"), a.tensor("bias"),
                      a.real("eps", 1e-5));
  });
}

}  // namespace tandem::testing
