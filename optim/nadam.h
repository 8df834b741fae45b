// NAdam.
#pragma once

#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/optim/optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Options of NAdam.
struct NAdamOptions {
  double lr = 2e-3;                                ///< learning rate
  std::pair<double, double> betas = {0.9, 0.999};  ///< decay rates of the moments
  double eps = 1e-8;                               ///< added to the root of the second moment
  double weight_decay = 0;                         ///< weight_decay times the parameter is added to the gradient
  double momentum_decay = 4e-3;                    ///< how fast the momentum rises to beta1
  bool decoupled_weight_decay = false;             ///< p = p - lr weight_decay p instead, as in AdamW
  bool maximize = false;                           ///< uses -g instead of g
};

/// PyTorch's rule: Adam with Nesterov momentum. For each parameter p with gradient g, moments m and v that begin at 0,
/// in its t-th step, t = 1, 2, ..:
///
///     mu(t) = beta1 (1 - 0.96^(t momentum_decay) / 2),  M(t) = mu(1) mu(2) .. mu(t)
///     g = g + weight_decay p
///     m = beta1 m + (1 - beta1) g
///     v = beta2 v + (1 - beta2) g^2
///     p = p - lr ((1 - mu(t)) / (1 - M(t)) g + mu(t + 1) / (1 - M(t + 1)) m) / (sqrt(v / (1 - beta2^t)) + eps)
///
/// M(t) is computed from t and the current options; PyTorch keeps it as state. One pass over memory per parameter.
/// T. Dozat, "Incorporating Nesterov momentum into Adam", ICLR workshop 2016.
class TANDEM_API NAdam : public GroupedOptimizer<NAdamOptions> {
 public:
  /// Throws ValueError for an lr, eps, weight_decay or momentum_decay that is negative or not finite and betas outside
  /// of [0, 1), and the errors of Optimizer for parameters.
  explicit NAdam(std::vector<Tensor> parameters, NAdamOptions options = {});
  explicit NAdam(std::vector<ParameterGroup<NAdamOptions>> groups);
};

}}}  // namespace tandem::v0::optim
