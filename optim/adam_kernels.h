// The kernel of Adam and AdamW.  Private to optim/.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 { namespace optim {

template <class T>
struct AdamFactors;

/// What a step needs to know besides the tensors.
struct AdamStep {
  size_t group;  ///< of parameters: its options change together
  double lr;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  bool decoupled;                                ///< weight_decay shrinks the parameter instead of joining the gradient
  int64_t number;                                ///< 1 in a parameter's first step
  const AdamFactors<double>* of_step = nullptr;  ///< in a cuda::Graph: the factors of each replay, in the GPU's memory

  friend bool operator==(const AdamStep&, const AdamStep&) = default;
};

/// n values of a parameter, of its gradient, and of its moments.
struct AdamTensors {
  int64_t n;
  const void* gradient;
  void* parameter;
  void* mean;
  void* square;
};

enum class Decay { kNone, kIntoGradient, kDecoupled };

inline Decay decay_of(const AdamStep& step) {
  if (step.weight_decay == 0) return Decay::kNone;
  return step.decoupled ? Decay::kDecoupled : Decay::kIntoGradient;
}

/// The step's numbers as the loop uses them.
template <class T>
struct AdamFactors {
  template <class From>
  TANDEM_HOST_DEVICE explicit AdamFactors(const AdamFactors<From>& from)
      : weight_decay(static_cast<T>(from.weight_decay)),
        shrink(static_cast<T>(from.shrink)),
        old_mean(static_cast<T>(from.old_mean)),
        new_mean(static_cast<T>(from.new_mean)),
        old_square(static_cast<T>(from.old_square)),
        new_square(static_cast<T>(from.new_square)),
        eps(static_cast<T>(from.eps)),
        size(static_cast<T>(from.size)),
        root_scale(static_cast<T>(from.root_scale)) {}
  explicit AdamFactors(const AdamStep& step)
      : weight_decay(static_cast<T>(step.weight_decay)),
        shrink(static_cast<T>(1 - step.lr * step.weight_decay)),
        old_mean(static_cast<T>(step.beta1)),
        new_mean(static_cast<T>(1 - step.beta1)),
        old_square(static_cast<T>(step.beta2)),
        new_square(static_cast<T>(1 - step.beta2)),
        eps(static_cast<T>(step.eps)) {
    const auto number = static_cast<double>(step.number);
    size = static_cast<T>(step.lr / (1 - std::pow(step.beta1, number)));
    root_scale = static_cast<T>(1 / std::sqrt(1 - std::pow(step.beta2, number)));
  }

  T weight_decay;
  T shrink;
  T old_mean;
  T new_mean;
  T old_square;
  T new_square;
  T eps;
  T size;        ///< lr / (1 - beta1^t)
  T root_scale;  ///< 1 / sqrt(1 - beta2^t)
};

/// The step of one value.  What does not change from value to value is a template parameter, so that a loop is without branches.
template <Decay decay, bool is_first, class T>
TANDEM_HOST_DEVICE inline void adam_element(const AdamFactors<T>& f, T g, T& parameter, T& mean, T& square) {
  T p = parameter;
  if constexpr (decay == Decay::kDecoupled) p *= f.shrink;
  if constexpr (decay == Decay::kIntoGradient) g += f.weight_decay * p;
  const T m = is_first ? f.new_mean * g : f.old_mean * mean + f.new_mean * g;
  const T v = is_first ? f.new_square * g * g : f.old_square * square + f.new_square * g * g;
  mean = m;
  square = v;
  parameter = p - f.size * (m / (std::sqrt(v) * f.root_scale + f.eps));
}

// clang-format off
TANDEM_KERNELS(
/// One step for all of these.  The moments are not read if step.number is 1.  float32, float64.
void adam(const KernelContext& context, DType dtype, const AdamStep& step, std::span<const AdamTensors> tensors);
)
// clang-format on

}}}  // namespace tandem::v0::optim
