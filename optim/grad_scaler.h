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

/// Options of GradScaler.
struct GradScalerOptions {
  double init_scale = 65536;       ///< first scale
  double growth_factor = 2;        ///< factor of the scale after growth_interval consecutive steps without infinities
  double backoff_factor = 0.5;     ///< factor of the scale after a step with an infinity
  int64_t growth_interval = 2000;  ///< steps without infinities until the scale grows
  /// Lower bound of the scale, at most init_scale. PyTorch has none, so infinities in every step make the scale 0. A
  /// bound of 1 keeps the scale usable after many steps with NaN; use less if unscaled gradients exceed float16.
  double min_scale = 0x1p-16;
  /// Replaces `found` [1], a float64 on the CPU that is 1 if this rank has found an infinity and else 0, by the maximum
  /// over all ranks, so that all ranks skip the same steps. Not needed if the gradients are equal on all ranks, as
  /// after DistributedDataParallel.
  ///     .all_reduce_found_inf = [&](const Tensor& found) { group->all_reduce(found, ReduceOp::kMax); }
  std::function<void(const Tensor& found)> all_reduce_found_inf = {};
};

/// Multiplies the loss by a scale, so that small gradients do not underflow in float16, and divides the gradients by it
/// before the step. A step whose gradients are infinite or NaN is skipped and reduces the scale. bfloat16 does not need
/// loss scaling.
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
/// All of this can be captured in a cuda::Graph, except with all_reduce_found_inf. Each replay uses the current scale,
/// and its kernels decide whether the step is skipped. The host reads the decision and computes the next scale at the
/// next replay, or when the program reads the scale. It waits for the GPU then, not in unscale_.
///
/// Outside of a graph, unscale_ takes one pass over the gradients, one kernel launch per GPU and dtype, and one
/// synchronization. P. Micikevicius et al., "Mixed Precision Training", 2018. Not thread-safe.
class TANDEM_API GradScaler {
 public:
  /// Throws ValueError unless min_scale is positive, init_scale is positive and finite, growth_factor > 1,
  /// 0 < backoff_factor < 1 and growth_interval is positive.
  explicit GradScaler(GradScalerOptions options = {});

  double get_scale() const;  ///< the current scale
  /// Computes the gradients of `loss` times the scale; loss is floating-point. The gradient of a float16 loss overflows
  /// at scales above 65504, so the first steps are skipped until the scale is small enough, as in PyTorch; convert the
  /// loss, or the tensors that it is computed from, to float32.
  void backward(const Tensor& loss) const;
  /// Divides the gradients by the scale, in place, and checks for infinities and NaN. Call it before step to read or
  /// clip the gradients. Throws StateError if it has already been called for this optimizer since the last update(),
  /// and DTypeError, changing nothing, for a float16 gradient, because it could underflow; use float32 parameters with
  /// Autocast. Gradients are row-major; bfloat16 gradients are divided in float32 and rounded. Collective if
  /// `all_reduce_found_inf` is collective, or if ranks divide gradients (distributed::Shard).
  void unscale_(Optimizer& optimizer);
  /// Calls unscale_ unless it was called already, then the optimizer's step unless a gradient was infinite or NaN.
  /// Returns whether the step was taken; true in a capture.
  bool step(Optimizer& optimizer);
  /// Updates the scale; call it at the end of each step.
  void update();

  /// {"scale", "growth_tracker"}.
  State state_dict() const;
  /// A scale below min_scale becomes min_scale. Throws StateError, changing nothing, if an entry is missing, unexpected
  /// or invalid.
  void load_state_dict(const State& state);

 private:
  struct Unscaled {
    const Optimizer* optimizer;
    bool found;
    bool stepped;
    Tensor found_in_graph;  ///< replaces `found` if a graph unscales: int32 [1], 1 if a gradient was infinite or NaN
  };
  /// Whether a gradient was infinite or NaN; waits for the GPU.
  static bool has_found(const Unscaled& one);
  Unscaled* find(const Optimizer& optimizer);
  void unscale_in_graph(const Optimizer& optimizer, const std::vector<Tensor>& gradients);
  /// Changes the scale after the steps in `unscaled`.
  void update_scale(const std::vector<Unscaled>& unscaled) const;
  /// Waits for the last step of a graph and changes the scale.
  void settle() const;

  const GradScalerOptions options_;
  mutable double scale_;
  mutable int64_t growth_tracker_ = 0;
  std::vector<Unscaled> unscaled_;         // since the last update
  mutable std::vector<Unscaled> pending_;  // of the last update in a graph, until it is settled
};

}}}  // namespace tandem::v0::optim
