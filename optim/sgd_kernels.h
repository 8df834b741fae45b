// The kernel of SGD.  Private to optim/.
#pragma once

#include <cstdint>
#include <span>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 { namespace optim {

template <class T>
struct SgdFactors;

/// What a step needs to know besides the tensors.
struct SgdStep {
  size_t group;  ///< of parameters: its options change together
  double lr;
  double momentum;
  double dampening;
  double weight_decay;
  bool nesterov;
  bool first;                                   ///< the momentum buffer holds nothing yet
  const SgdFactors<double>* of_step = nullptr;  ///< in a cuda::Graph: the factors of each replay, in the GPU's memory

  friend bool operator==(const SgdStep&, const SgdStep&) = default;
};

/// n values of a parameter, of its gradient, and of its momentum buffer, which is null exactly if momentum is 0.
struct SgdTensors {
  int64_t n;
  const void* gradient;
  void* parameter;
  void* buffer;
};

enum class Momentum { kNone, kFirst, kLater };

/// The step's numbers as the loop uses them.
template <class T>
struct SgdFactors {
  template <class From>
  TANDEM_HOST_DEVICE explicit SgdFactors(const SgdFactors<From>& from)
      : lr(static_cast<T>(from.lr)),
        momentum(static_cast<T>(from.momentum)),
        share(static_cast<T>(from.share)),
        decay(static_cast<T>(from.decay)) {}
  explicit SgdFactors(const SgdStep& step)
      : lr(static_cast<T>(step.lr)),
        momentum(static_cast<T>(step.momentum)),
        share(static_cast<T>(1 - step.dampening)),
        decay(static_cast<T>(step.weight_decay)) {}

  T lr;
  T momentum;
  T share;
  T decay;
};

/// The step of one value; `buffer` is not looked at without momentum.  What does not change from value to value is a template
/// parameter, so that a loop is without branches.
template <bool has_decay, Momentum kind, bool is_nesterov, class T>
TANDEM_HOST_DEVICE inline void sgd_element(const SgdFactors<T>& f, T direction, T& parameter, T* buffer) {
  if constexpr (has_decay) direction += f.decay * parameter;
  if constexpr (kind != Momentum::kNone) {
    const T next = kind == Momentum::kFirst ? direction : f.momentum * *buffer + f.share * direction;
    *buffer = next;
    direction = is_nesterov ? direction + f.momentum * next : next;
  }
  parameter -= f.lr * direction;
}

/// Calls run.operator()<has_decay, kind, is_nesterov>() for what a step is.
template <class Run>
void visit_sgd(const SgdStep& step, const Run& run) {
  const auto with_decay = [&]<bool has_decay>() {
    if (step.momentum == 0) return run.template operator()<has_decay, Momentum::kNone, false>();
    if (step.first) {
      return step.nesterov ? run.template operator()<has_decay, Momentum::kFirst, true>()
                           : run.template operator()<has_decay, Momentum::kFirst, false>();
    }
    return step.nesterov ? run.template operator()<has_decay, Momentum::kLater, true>()
                         : run.template operator()<has_decay, Momentum::kLater, false>();
  };
  step.weight_decay != 0 ? with_decay.template operator()<true>() : with_decay.template operator()<false>();
}

// clang-format off
TANDEM_KERNELS(
/// One step for all of these.  float32, float64.
void sgd(const KernelContext& context, DType dtype, const SgdStep& step, std::span<const SgdTensors> tensors);
)
// clang-format on

}}}  // namespace tandem::v0::optim
