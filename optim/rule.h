// The declarations of an optimizer's rule, in the form that Optimizer uses. See docs/adding_an_optimizer.md.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/optim/optimizer.h>
#include <tandem/optim/option.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 { namespace optim {

/// A state tensor of each parameter, with the parameter's shape and device, and its dtype or, for 16-bit parameters,
/// float32. The first step that uses it creates it with zeros.
template <class Options>
struct StateTensor {
  const char* name;                           ///< in states
  bool (*is_used)(const Options&) = nullptr;  ///< null: always used
};

inline constexpr size_t kMaxFactors = 16;

/// n values of a parameter, of its gradient, and of its state.
struct StepTensors {
  int64_t n;
  const void* gradient;  ///< in the parameter's dtype
  void* parameter;       ///< the values that are updated; for 16-bit parameters the float32 master
  void* rounded;  ///< the 16-bit parameter, or the copy of a float32 parameter for autocast; null if there is neither
  std::array<void*, kMaxStateTensors> state;  ///< unused entries point to the parameter, which is valid memory

  friend bool operator==(const StepTensors&, const StepTensors&) = default;
};

/// Arguments of a kernel: one step of parameters of one device and dtype. A 16-bit parameter differs from its rounded
/// master if it was changed since the last step, or if this is its first step; the master is then first set to the
/// parameter's value.
struct StepCall {
  DType dtype;                              ///< of the parameters
  DType copy_dtype;                         ///< of the copies for autocast
  unsigned cases;                           ///< bit i: the rule's cases()[i]
  std::array<double, kMaxFactors> factors;  ///< the rule's factors, then the sign of the gradient: -1 with maximize
  const double* replay_factors;  ///< in a cuda::Graph: the factors of each replay, in the GPU's memory; else null
  const int32_t* skip;           ///< in the GPU's memory: 1 if this step changes nothing; null: it is not skipped
  std::span<const StepTensors> tensors;
};

/// One step of a parameter whose rule is not elementwise.
struct TensorStep {
  Tensor gradient;   ///< in the dtype of `parameter`; negated with `maximize`
  Tensor parameter;  ///< the values that are updated, detached; for 16-bit parameters the float32 master
  std::array<Tensor, kMaxStateTensors> state;
  int64_t number;  ///< 1 in the first step; 0 if the rule does not count steps
};

/// A type-erased optimizer rule. `options` points to the rule's Options.
struct OptimizerRule {
  struct StateInfo {
    const char* name;
    bool is_always_used;
  };

  const char* name;
  int64_t num_dims;  ///< required number of dimensions of parameters; -1: any
  bool counts_steps;
  std::vector<StateInfo> state;
  size_t num_factors;                             ///< including the sign
  std::vector<Option> (*options)(void* options);  ///< lr is the first
  std::string (*problem)(const void* options);    ///< describes incompatible options; "" if all are valid
  std::shared_ptr<void> (*copy_options)(const void* options);
  void (*assign_options)(const void* from, void* to);
  unsigned (*used_state)(const void* options);  ///< bit i: state[i]
  unsigned (*cases)(const void* options, bool is_first);
  std::array<double, kMaxFactors> (*factors)(const void* options, int64_t step);
  /// Null if the rule is elementwise. `rounded`: the 16-bit parameter whose master is updated; else undefined.
  void (*update_tensor)(const void* options, TensorStep step, const Tensor& rounded);
  // For elementwise rules only:
  void (*cpu)(const KernelContext& context, const StepCall& call);
  void (*cuda)(const KernelContext& context, const StepCall& call);  ///< null in builds without GPUs
};

}}}  // namespace tandem::v0::optim
