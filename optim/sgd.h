// Stochastic gradient descent.
#pragma once

#include <vector>

#include <tandem/base/macros.h>
#include <tandem/optim/optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Options of SGD.
struct SGDOptions {
  double lr = 1e-3;         ///< learning rate
  double momentum = 0;      ///< share of the momentum buffer that a step keeps
  double dampening = 0;     ///< from the second step on, the buffer takes 1 - dampening times the gradient
  double weight_decay = 0;  ///< weight_decay times the parameter is added to the gradient
  bool nesterov = false;    ///< requires momentum > 0 and dampening 0
  bool maximize = false;    ///< uses -g instead of g
};

/// PyTorch's rule for each parameter p with gradient g and momentum buffer b:
///
///     d = g + weight_decay p
///     b = d in the buffer's first step, then momentum b + (1 - dampening) d         (if momentum != 0)
///     d = d + momentum b with nesterov, else b                                      (if momentum != 0)
///     p = p - lr d
///
/// One pass over memory per parameter. Y. Nesterov, 1983; I. Sutskever et al., "On the importance of initialization and
/// momentum in deep learning", ICML 2013.
class TANDEM_API SGD : public GroupedOptimizer<SGDOptions> {
 public:
  /// Throws ValueError for an option that is negative (except dampening) or not finite and for nesterov without
  /// momentum or with dampening, and the errors of Optimizer for parameters.
  explicit SGD(std::vector<Tensor> parameters, SGDOptions options = {});
  explicit SGD(std::vector<ParameterGroup<SGDOptions>> groups);
};

}}}  // namespace tandem::v0::optim
