// The base class of optimizers: parameter groups, options, states and steps.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/state.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace optim {

inline constexpr size_t kMaxStateTensors = 4;  ///< of one parameter

struct OptimizerRule;
struct StepTensors;

/// Parameters that are updated with the same options:
///
///     optim::AdamW adamw({{.parameters = matrices, .options = {.lr = 3e-4, .weight_decay = 0.1}},
///                         {.parameters = others, .options = {.lr = 3e-4, .weight_decay = 0}}});
template <class Options>
struct ParameterGroup {
  std::vector<Tensor> parameters;  ///< updated in place; leaves
  Options options = {};            ///< of these parameters
};

/// Updates parameters in place from their gradients.
///
/// Parameters are row-major float32 or float64 leaves on any devices, in one or more groups with their own options. A
/// step skips parameters without gradient and parameters that do not require one: neither they nor their state change.
/// A step records nothing for autograd and increments the versions of the tensors that it changes. On a GPU it is one
/// kernel launch for all parameters of a group that have taken equally many steps. Results do not depend on the number
/// of threads. Not thread-safe.
class TANDEM_API Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Throws, before anything is changed: DeviceError if a parameter and its state are on different devices, OutOfMemory
  /// if the state cannot be allocated, StateError if a cuda::Graph is being captured and new state would be needed.
  void step();
  /// Empties the parameters' gradient slots; writes no memory.
  void zero_grad() const;
  /// The parameters of all groups, in the groups' order.
  const std::vector<Tensor>& parameters() const { return parameters_; }

  int64_t num_groups() const { return static_cast<int64_t>(group_ends_.size()); }  ///< number of parameter groups
  /// The learning rate of a group. Throws IndexError.
  double lr(int64_t group = 0) const;
  /// Sets the learning rate of all groups. Throws ValueError unless lr is finite and >= 0.
  void set_lr(double lr);
  /// Sets the learning rate of one group. Throws IndexError, and ValueError as above.
  void set_lr(int64_t group, double lr);

  /// {"optimizer": its name, "groups": {"<g>": {its options, "num_parameters"}}, "state": {"<i>": {"name", the state of
  /// the parameter}}}, where i is the index in parameters() and "name" is the name that the parameter's module gave it.
  /// Shares the tensors. An equal optimizer that loads it continues with the same bits.
  State state_dict() const;
  /// Loads the options and copies the tensors to the parameters' devices. Throws StateError, changing nothing, unless
  /// the state is of the same kind of optimizer with equally many groups of equally many parameters of the same names,
  /// shapes and dtypes (names are compared if both are known); the message lists every entry that is missing,
  /// unexpected or different.
  void load_state_dict(const State& state);

 protected:
  /// `groups` are the groups' parameters. Throws ValueError if there are no parameters or one is given twice;
  /// StateError for an undefined, non-leaf or not row-major parameter; DTypeError for another dtype.
  Optimizer(const OptimizerRule& rule, const std::vector<std::vector<Tensor>>& groups);

  /// Declares the next group's options, an object of the rule's Options that outlives the optimizer. Throws ValueError
  /// for a wrong option.
  void add_options(void* options);
  /// Throws IndexError if the group does not exist, ValueError for a wrong option.
  void check_options(int64_t group, void* options) const;

 private:
  struct ParameterState {
    int64_t steps = 0;
    std::array<Tensor, kMaxStateTensors>
        tensors;  ///< as the rule lists them; undefined before the first step that uses them
  };
  struct Update;
  struct Batch;

  size_t check_group(int64_t group) const;
  std::string describe_parameter(size_t index) const;

  std::vector<Update> prepare();
  std::vector<Batch> count_steps(const std::vector<Update>& updates);
  void run(const Batch& batch);
  /// The arguments of a kernel for parameter `index`, with the state tensors whose bits are set in `used`; `gradient`
  /// may be undefined.
  StepTensors step_tensors(size_t index, const Tensor& gradient, unsigned used) const;

  const OptimizerRule& rule_;
  std::vector<Tensor> parameters_;
  std::vector<size_t> group_ends_;  ///< index after the last parameter of each group
  std::vector<void*> options_;      ///< of each group
  std::vector<ParameterState> states_;
};

/// An optimizer with groups of `Options`.
template <class Options>
class GroupedOptimizer : public Optimizer {
 public:
  const std::vector<ParameterGroup<Options>>& groups() const { return groups_; }  ///< with their current options

  /// Replaces the options of a group. Throws IndexError, and ValueError as the constructor does.
  void set_options(int64_t group, Options options) {
    check_options(group, &options);
    groups_[static_cast<size_t>(group)].options = options;
  }

 protected:
  /// `rule` is the update; throws as Optimizer's constructor and add_options.
  GroupedOptimizer(const OptimizerRule& rule, std::vector<ParameterGroup<Options>> groups)
      : Optimizer(rule, parameters_of(groups)), groups_(std::move(groups)) {
    for (auto& group : groups_) add_options(&group.options);
  }

 private:
  static std::vector<std::vector<Tensor>> parameters_of(const std::vector<ParameterGroup<Options>>& groups) {
    std::vector<std::vector<Tensor>> result;
    for (const auto& group : groups) result.push_back(group.parameters);
    return result;
  }

  std::vector<ParameterGroup<Options>> groups_;
};

}}}  // namespace tandem::v0::optim
