// RAdam.
#pragma once

#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/optim/optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Options of RAdam.
struct RAdamOptions {
  double lr = 1e-3;                                ///< learning rate
  std::pair<double, double> betas = {0.9, 0.999};  ///< decay rates of the moments
  double eps = 1e-8;                               ///< added to the root of the second moment
  double weight_decay = 0;                         ///< weight_decay times the parameter is added to the gradient
  bool decoupled_weight_decay = false;             ///< p = p - lr weight_decay p instead, as in AdamW
  bool maximize = false;                           ///< uses -g instead of g
};

/// PyTorch's rule: Adam, but without division by the second moment in the first steps. For each parameter p with
/// gradient g, moments m and v that begin at 0, in its t-th step, t = 1, 2, ..:
///
///     g = g + weight_decay p
///     m = beta1 m + (1 - beta1) g
///     v = beta2 v + (1 - beta2) g^2
///     R = 2 / (1 - beta2) - 1,  r = R - 2 t beta2^t / (1 - beta2^t)
///     p = p - lr m / (1 - beta1^t)                                                                        (if r <= 5)
///     p = p - lr m / (1 - beta1^t) sqrt((r - 4) (r - 2) R (1 - beta2^t) / ((R - 4) (R - 2) r)) / (sqrt(v) + eps)
///
/// One pass over memory per parameter. L. Liu et al., "On the variance of the adaptive learning rate and beyond", ICLR
/// 2020.
class TANDEM_API RAdam : public GroupedOptimizer<RAdamOptions> {
 public:
  /// Throws ValueError for an lr, eps or weight_decay that is negative or not finite and betas outside of [0, 1), and
  /// the errors of Optimizer for parameters.
  explicit RAdam(std::vector<Tensor> parameters, RAdamOptions options = {});
  explicit RAdam(std::vector<ParameterGroup<RAdamOptions>> groups);
};

}}}  // namespace tandem::v0::optim
