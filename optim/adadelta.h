// Adadelta.
#pragma once

#include <vector>

#include <tandem/base/macros.h>
#include <tandem/optim/optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Options of Adadelta.
struct AdadeltaOptions {
  double lr = 1.0;          ///< learning rate
  double rho = 0.9;         ///< decay rate of the averages
  double eps = 1e-6;        ///< added to the averages before their roots
  double weight_decay = 0;  ///< weight_decay times the parameter is added to the gradient
  bool maximize = false;    ///< uses -g instead of g
};

/// PyTorch's rule for each parameter p with gradient g and averages v and u, which begin at 0:
///
///     g = g + weight_decay p
///     v = rho v + (1 - rho) g^2
///     d = sqrt(u + eps) / sqrt(v + eps) g
///     u = rho u + (1 - rho) d^2
///     p = p - lr d
///
/// One pass over memory per parameter. M. D. Zeiler, "ADADELTA: An adaptive learning rate method", 2012.
class TANDEM_API Adadelta : public GroupedOptimizer<AdadeltaOptions> {
 public:
  /// Throws ValueError for an lr, eps or weight_decay that is negative or not finite and a rho outside of [0, 1), and
  /// the errors of Optimizer for parameters.
  explicit Adadelta(std::vector<Tensor> parameters, AdadeltaOptions options = {});
  explicit Adadelta(std::vector<ParameterGroup<AdadeltaOptions>> groups);
};

}}}  // namespace tandem::v0::optim
