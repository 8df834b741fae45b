// Muon.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/optim/optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Options of Muon.
struct MuonOptions {
  double lr = 1e-3;           ///< learning rate
  double weight_decay = 0.1;  ///< a step subtracts lr weight_decay times the parameter
  double momentum = 0.95;     ///< share of the momentum buffer that a step keeps
  bool nesterov = true;       ///< whether to use Nesterov momentum
  std::array<double, 3> ns_coefficients = {3.4445, -4.775, 2.0315};  ///< a, b and c of the iteration
  double eps = 1e-7;                                                 ///< lower limit of the divisor |u|
  int64_t ns_steps = 5;                                              ///< iterations
  /// Factor of the learning rate for a parameter of shape [A, B]: sqrt(max(1, A / B)) ("original"), 0.2 sqrt(max(A, B))
  /// ("match_rms_adamw") or sqrt(A / B) ("spectral_unclamped").
  std::string adjust_lr_fn = "original";
  bool maximize = false;  ///< uses -g instead of g
};

/// PyTorch's rule for each matrix p [A, B] with gradient g and momentum buffer m, which begins at 0:
///
///     m = momentum m + (1 - momentum) g
///     u = momentum m + (1 - momentum) g with nesterov, else m
///     x = u / max(|u|, eps), then ns_steps times: G = x x^T, x = a x + (b G + c G^2) x
///     p = p - lr weight_decay p - lr adjust_lr_fn(A, B) x
///
/// x is computed in bfloat16 by matrix products, in the transposed form if A > B; it is close to U V^T of the singular
/// value decomposition of u. So parameters differ from PyTorch's by up to about lr / 64 per step; those of other
/// optimizers differ only by rounding. Use Muon for the matrices of hidden layers, and AdamW for the other parameters.
/// A step cannot be captured in a cuda::Graph. K. Jordan et al., "Muon: An optimizer for hidden layers in neural
/// networks", 2024.
class TANDEM_API Muon : public GroupedOptimizer<MuonOptions> {
 public:
  /// Throws ValueError for an lr, weight_decay or eps that is negative or not finite, a momentum outside of [0, 1),
  /// ns_steps outside of [0, 99] and a parameter that is not a matrix, and the errors of Optimizer for parameters.
  explicit Muon(std::vector<Tensor> parameters, MuonOptions options = {});
  explicit Muon(std::vector<ParameterGroup<MuonOptions>> groups);
};

}}}  // namespace tandem::v0::optim
