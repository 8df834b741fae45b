// Adamax.
#pragma once

#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/optim/optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Options of Adamax.
struct AdamaxOptions {
  double lr = 2e-3;                                ///< learning rate
  std::pair<double, double> betas = {0.9, 0.999};  ///< decay rates of the moment and of the norm
  double eps = 1e-8;                               ///< added to |g|
  double weight_decay = 0;                         ///< weight_decay times the parameter is added to the gradient
  bool maximize = false;                           ///< uses -g instead of g
};

/// PyTorch's rule for each parameter p with gradient g, moment m and norm u that begin at 0, in its t-th step, t = 1,
/// 2, ..:
///
///     g = g + weight_decay p
///     m = beta1 m + (1 - beta1) g
///     u = max(beta2 u, |g| + eps)
///     p = p - lr / (1 - beta1^t) m / u
///
/// One pass over memory per parameter. D. P. Kingma, J. Ba, "Adam: A method for stochastic optimization", ICLR 2015,
/// section 7.1.
class TANDEM_API Adamax : public GroupedOptimizer<AdamaxOptions> {
 public:
  /// Throws ValueError for an lr, eps or weight_decay that is negative or not finite and betas outside of [0, 1), and
  /// the errors of Optimizer for parameters.
  explicit Adamax(std::vector<Tensor> parameters, AdamaxOptions options = {});
  explicit Adamax(std::vector<ParameterGroup<AdamaxOptions>> groups);
};

}}}  // namespace tandem::v0::optim
