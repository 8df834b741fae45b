// Adagrad.
#pragma once

#include <vector>

#include <tandem/base/macros.h>
#include <tandem/optim/optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Options of Adagrad.
struct AdagradOptions {
  double lr = 1e-2;                      ///< learning rate
  double lr_decay = 0;                   ///< the rate of step t is lr / (1 + (t - 1) lr_decay)
  double weight_decay = 0;               ///< weight_decay times the parameter is added to the gradient
  double initial_accumulator_value = 0;  ///< initial value of the sum of squares
  double eps = 1e-10;                    ///< added to the divisor
  bool maximize = false;                 ///< uses -g instead of g
};

/// PyTorch's rule for each parameter p with gradient g and sum of squares s, which begins at initial_accumulator_value,
/// in its t-th step, t = 1, 2, ..:
///
///     g = g + weight_decay p
///     s = s + g^2
///     p = p - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps)
///
/// One pass over memory per parameter. J. Duchi, E. Hazan, Y. Singer, "Adaptive subgradient methods for online learning
/// and stochastic optimization", JMLR 12, 2011.
class TANDEM_API Adagrad : public GroupedOptimizer<AdagradOptions> {
 public:
  /// Throws ValueError for an option that is negative or not finite, and the errors of Optimizer for parameters.
  explicit Adagrad(std::vector<Tensor> parameters, AdagradOptions options = {});
  explicit Adagrad(std::vector<ParameterGroup<AdagradOptions>> groups);
};

}}}  // namespace tandem::v0::optim
