// Stochastic gradient descent.
#pragma once

#include <functional>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/optim/optimizer.h>

namespace tandem { inline namespace v0 { namespace optim {

struct SgdStep;

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;     ///< of the gradient's share in the momentum, from a parameter's second step on
  double weight_decay = 0;  ///< added to the gradient, times the parameter
  bool nesterov = false;    ///< needs momentum > 0 and dampening 0
};

/// PyTorch's rule, for each parameter p with gradient g and momentum buffer b:
///
///     d = g + weight_decay p
///     b = d in the parameter's first step, then momentum b + (1 - dampening) d      (if momentum != 0)
///     d = d + momentum b with nesterov, else b                                      (if momentum != 0)
///     p = p - lr d
///
/// One pass over memory per parameter, in the parameter's dtype.  Y. Nesterov, 1983; I. Sutskever et al., "On the
/// importance of initialization and momentum in deep learning", ICML 2013.
class TANDEM_API SGD : public GroupedOptimizer<SGDOptions> {
 public:
  /// Throws ValueError for an option that is negative (dampening may be) or not finite, or nesterov without momentum or
  /// with dampening, and what Optimizer throws for parameters.
  explicit SGD(std::vector<Tensor> parameters, SGDOptions options = {});
  explicit SGD(std::vector<ParameterGroup<SGDOptions>> groups);

  /// Replaces the options of a group.  Throws IndexError, and ValueError as the constructor does.
  void set_options(int64_t group, const SGDOptions& options);

 protected:
  void prepare(size_t index) override;
  void update(const std::vector<Update>& updates) override;
  void save_options(size_t group, State& state) const override;
  void save_kept(size_t index, State& state) const override;
  std::function<void()> prepare_load(StateReader& reader) override;

 private:
  /// What is kept for a parameter.
  struct Kept {
    Tensor buffer;         ///< undefined while no step with momentum was prepared
    bool started = false;  ///< whether a step has filled it
  };

  /// The step that parameter `index` takes next.
  SgdStep step_of(size_t index) const;

  std::vector<Kept> kept_;
};

}}}  // namespace tandem::v0::optim
