// RMSprop.
#pragma once

#include <vector>

#include <tandem/base/macros.h>
#include <tandem/optim/optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Options of RMSprop.
struct RMSpropOptions {
  double lr = 1e-2;         ///< learning rate
  double alpha = 0.99;      ///< decay rate of the averages
  double eps = 1e-8;        ///< added to the divisor
  double weight_decay = 0;  ///< weight_decay times the parameter is added to the gradient
  double momentum = 0;      ///< share of the momentum buffer that a step keeps
  bool centered = false;    ///< divides by the gradient's standard deviation instead of its root mean square
  bool maximize = false;    ///< uses -g instead of g
};

/// PyTorch's rule for each parameter p with gradient g, averages v and a, and momentum buffer b, all of which
/// begin at 0:
///
///     g = g + weight_decay p
///     v = alpha v + (1 - alpha) g^2
///     a = alpha a + (1 - alpha) g                              (if centered, else a = 0)
///     d = g / (sqrt(v - a^2) + eps)
///     b = momentum b + d, and d = b                            (if momentum != 0)
///     p = p - lr d
///
/// One pass over memory per parameter. G. Hinton, "Neural networks for machine learning", lecture 6, 2012; A. Graves,
/// "Generating sequences with recurrent neural networks", 2013 (centered).
class TANDEM_API RMSprop : public GroupedOptimizer<RMSpropOptions> {
 public:
  /// Throws ValueError for an lr, eps, weight_decay or momentum that is negative or not finite and an alpha outside of
  /// [0, 1), and the errors of Optimizer for parameters.
  explicit RMSprop(std::vector<Tensor> parameters, RMSpropOptions options = {});
  explicit RMSprop(std::vector<ParameterGroup<RMSpropOptions>> groups);
};

}}}  // namespace tandem::v0::optim
