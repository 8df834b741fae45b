// Adam and AdamW.
#pragma once

#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/optim/optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Options of Adam.
struct AdamOptions {
  double lr = 1e-3;                                ///< learning rate
  std::pair<double, double> betas = {0.9, 0.999};  ///< decay rates of the moments
  double eps = 1e-8;                               ///< added to the root of the second moment
  double weight_decay = 0;                         ///< weight_decay times the parameter is added to the gradient
  bool amsgrad = false;                            ///< divides by the largest v so far
  bool maximize = false;                           ///< uses -g instead of g
};

/// PyTorch's rule for each parameter p with gradient g, moments m and v that begin at 0, in its t-th step,
/// t = 1, 2, ..:
///
///     g = g + weight_decay p
///     m = beta1 m + (1 - beta1) g
///     v = beta2 v + (1 - beta2) g^2
///     p = p - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
///
/// With amsgrad, v in the last line is replaced by the largest v of all steps so far (S. J. Reddi et al., "On the
/// convergence of Adam and beyond", ICLR 2018).
///
/// One pass over memory per parameter; t counts the steps in which the parameter had a gradient. D. P. Kingma, J. Ba,
/// "Adam: A method for stochastic optimization", ICLR 2015.
class TANDEM_API Adam : public GroupedOptimizer<AdamOptions> {
 public:
  /// Throws ValueError for an lr, eps or weight_decay that is negative or not finite and betas outside of [0, 1), and
  /// the errors of Optimizer for parameters.
  explicit Adam(std::vector<Tensor> parameters, AdamOptions options = {});
  explicit Adam(std::vector<ParameterGroup<AdamOptions>> groups);
};

/// Options of AdamW.
struct AdamWOptions {
  double lr = 1e-3;                                ///< learning rate
  std::pair<double, double> betas = {0.9, 0.999};  ///< decay rates of the moments
  double eps = 1e-8;                               ///< added to the root of the second moment
  double weight_decay = 1e-2;                      ///< a step subtracts lr weight_decay times the parameter
  bool amsgrad = false;                            ///< divides by the largest v so far
  bool maximize = false;                           ///< uses -g instead of g
};

/// Adam whose weight decay does not pass through the moments: instead of changing g, each step begins with
///
///     p = p - lr weight_decay p
///
/// I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", ICLR 2019.
class TANDEM_API AdamW : public GroupedOptimizer<AdamWOptions> {
 public:
  /// Throws the errors of Adam.
  explicit AdamW(std::vector<Tensor> parameters, AdamWOptions options = {});
  explicit AdamW(std::vector<ParameterGroup<AdamWOptions>> groups);
};

}}}  // namespace tandem::v0::optim
