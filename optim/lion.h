// Lion.
#pragma once

#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/optim/optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Options of Lion, with the defaults of its authors' implementation.
struct LionOptions {
  double lr = 1e-4;                               ///< learning rate; about a tenth of AdamW's
  std::pair<double, double> betas = {0.9, 0.99};  ///< weights of the moment in the direction and in the next moment
  double weight_decay = 0;                        ///< a step subtracts lr weight_decay times the parameter
  bool maximize = false;                          ///< uses -g instead of g
};

/// For each parameter p with gradient g and moment m, which begins at 0:
///
///     p = p - lr weight_decay p
///     p = p - lr sign(beta1 m + (1 - beta1) g)
///     m = beta2 m + (1 - beta2) g
///
/// One pass over memory per parameter. X. Chen et al., "Symbolic discovery of optimization algorithms", NeurIPS 2023.
class TANDEM_API Lion : public GroupedOptimizer<LionOptions> {
 public:
  /// Throws ValueError for an lr or weight_decay that is negative or not finite and betas outside of [0, 1), and the
  /// errors of Optimizer for parameters.
  explicit Lion(std::vector<Tensor> parameters, LionOptions options = {});
  explicit Lion(std::vector<ParameterGroup<LionOptions>> groups);
};

}}}  // namespace tandem::v0::optim
