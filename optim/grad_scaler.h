// Loss scaling for float16.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/optim/optimizer.h>
#include <tandem/tensor/state.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace optim {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;     ///< of the scale after growth_interval steps in a row without infinities
  double backoff_factor = 0.5;  ///< of the scale after a step with one
  int64_t growth_interval = 2000;
  /// Makes one decision of the ranks': replaces found [1], a float64 on the CPU, 1 where this rank has found an infinity, by the
  /// largest of all ranks'.  Empty: each decides for itself, which is the same where gradients are equal on all ranks, as
  /// DistributedDataParallel leaves them.
  ///     .share = [&](const Tensor& found) { group->all_reduce(found, ReduceOp::kMax); }
  std::function<void(const Tensor& found)> share = {};
};

/// Multiplies the loss, so that gradients that float16 would round to 0 are not, and divides the gradients before the step; steps
/// whose gradients are infinite or NaN are left out, and make the scale smaller.  bfloat16 needs none of it.
///
///     GradScaler scaler;
///     for (...) {
///       optimizer.zero_grad();
///       Autocast half(kFloat16);
///       scaler.backward(loss(...));
///       scaler.step(optimizer);
///       scaler.update();
///     }
///
/// In a cuda::Graph backward may be, with the scale of each replay; step decides on the host, so it stays outside.
///
/// A step costs one pass over the gradients, one launch on a GPU, and one wait for its finding.  P. Micikevicius et al., "Mixed
/// Precision Training", 2018.  Not safe from many threads.
class TANDEM_API GradScaler {
 public:
  /// Throws ValueError unless the scale is positive and finite, growth > 1, 0 < backoff < 1 and the interval is positive.
  explicit GradScaler(GradScalerOptions options = {});

  double get_scale() const { return scale_; }
  /// Backward from `loss` times the scale; loss is a float of one element.
  void backward(const Tensor& loss) const;
  /// Divides the gradients by the scale, in place, and looks for infinities and NaN; for whoever wants to see or clip them before
  /// the step.  Once for each optimizer between two update()s, else StateError.  Gradients are row-major float32 or float64.
  /// Collective where `share` is.
  void unscale_(Optimizer& optimizer);
  /// unscale_ if that was not called, then the optimizer's step unless there was an infinity; whether the step was taken.
  bool step(Optimizer& optimizer);
  /// At the end of each step: the scale for the next.
  void update();

  /// {"scale", "growth_tracker"}.
  State state_dict() const;
  /// Throws StateError, changing nothing, where something is missing, too much or makes no sense.
  void load_state_dict(const State& state);

 private:
  struct Unscaled {
    const Optimizer* optimizer;
    bool found;
    bool stepped;
  };
  Unscaled* find(const Optimizer& optimizer);

  const GradScalerOptions options_;
  double scale_;
  int64_t growth_tracker_ = 0;
  std::vector<Unscaled> unscaled_;  // since the last update
};

}}}  // namespace tandem::v0::optim
