// The declarations of an optimizer's rule, in the form that Optimizer uses. See docs/adding_an_optimizer.md.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/optim/optimizer.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 { namespace optim {

/// An option: its name in states and error texts, its value, and a function that describes an invalid value ("" if it
/// is valid).
struct Option {
  const char* name;
  std::variant<double*, bool*> value;
  std::string (*problem)(const char* name, double value) = nullptr;
};

inline std::string finite(const char* name, double value) {
  return std::isfinite(value) ? "" : str(name, " is ", value, ", expected a finite number");
}

inline std::string not_negative(const char* name, double value) {
  return std::isfinite(value) && value >= 0 ? "" : str(name, " is ", value, ", expected a finite number >= 0");
}

inline std::string in_zero_one(const char* name, double value) {
  return value >= 0 && value < 1 ? "" : str(name, " is ", value, ", expected 0 <= ", name, " < 1");
}

/// A state tensor of each parameter, with the parameter's shape, dtype and device. The first step that uses it creates
/// it with zeros.
template <class Options>
struct StateTensor {
  const char* name;                           ///< in states
  bool (*is_used)(const Options&) = nullptr;  ///< null: always used
};

inline constexpr size_t kMaxFactors = 16;

/// n values of a parameter, of its gradient, and of its state.
struct StepTensors {
  int64_t n;
  const void* gradient;
  void* parameter;
  std::array<void*, kMaxStateTensors> state;  ///< unused entries point to the parameter, which is valid memory

  friend bool operator==(const StepTensors&, const StepTensors&) = default;
};

/// Arguments of a kernel: one step of parameters of one device and dtype.
struct StepCall {
  DType dtype;
  unsigned cases;  ///< bit i: the rule's cases()[i]
  std::array<double, kMaxFactors> factors;
  const double* replay_factors;  ///< in a cuda::Graph: the factors of each replay, in the GPU's memory; else null
  std::span<const StepTensors> tensors;
};

/// A type-erased optimizer rule. `options` points to the rule's Options.
struct OptimizerRule {
  struct StateInfo {
    const char* name;
    bool is_always_used;
  };

  const char* name;
  bool counts_steps;
  std::vector<StateInfo> state;
  size_t num_factors;
  std::vector<Option> (*options)(void* options);  ///< lr is the first
  std::string (*problem)(const void* options);    ///< describes incompatible options; "" if all are valid
  std::shared_ptr<void> (*default_options)();
  unsigned (*used_state)(const void* options);  ///< bit i: state[i]
  unsigned (*cases)(const void* options, bool is_first);
  std::array<double, kMaxFactors> (*factors)(const void* options, int64_t step);
  void (*cpu)(const KernelContext& context, const StepCall& call);
  void (*cuda)(const KernelContext& context, const StepCall& call);  ///< null in builds without GPUs
};

}}}  // namespace tandem::v0::optim
