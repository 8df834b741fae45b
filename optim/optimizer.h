// The base class of optimizers: parameter groups, options, states and steps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/state.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace optim {

inline constexpr size_t kMaxStateTensors = 4;  ///< maximum per parameter

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
/// Parameters are row-major floating-point leaves on any devices, in one or more groups with their own options. float16
/// and bfloat16 parameters have a float32 master, which is part of the state: the step computes in float32 from the
/// gradient and the master and rounds the result to the parameter. If the parameter differs from the rounded master,
/// because it was loaded or changed since the last step, the step starts from the parameter's value. P. Micikevicius et
/// al., "Mixed precision training", ICLR 2018.
///
/// Parameters that the ranks of a DistributedDataParallel divide (distributed::Shard) have state for this rank's shard
/// only, and a step is collective: if it throws on some ranks, the others wait until these step again or end. Steps of
/// optimizers that are not elementwise (Muon) throw StateError for them.
///
/// A step skips parameters that have no gradient or do not require one: neither these parameters nor their state
/// change. A step records nothing for autograd and increments the versions of the tensors that it changes. On a GPU a
/// step has one kernel launch for all parameters of a group that have taken equally many steps. Results do not depend
/// on the number of threads. Not thread-safe.
class TANDEM_API Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates the parameters. Throws, before anything is changed: DeviceError if a parameter and its state are on
  /// different devices, OutOfMemory if the state cannot be allocated, StateError if a cuda::Graph is being captured and
  /// new state would be needed.
  void step() { step(Tensor()); }
  /// Empties the parameters' gradient slots; writes no memory.
  void zero_grad() const;
  /// The parameters of all groups, in the groups' order.
  const std::vector<Tensor>& parameters() const { return parameters_; }

  int64_t num_groups() const { return static_cast<int64_t>(group_ends_.size()); }  ///< number of parameter groups
  /// Whether there is an option of this name whose value is a number or a bool. Names are as in state_dict(): "lr",
  /// "weight_decay"; the pair `betas` is "beta1" and "beta2".
  bool has_option(std::string_view name) const;
  /// The value of an option of a group; true is 1. Throws IndexError for the group, ValueError for the name.
  double option(int64_t group, std::string_view name) const;
  /// Sets an option of a group. Throws IndexError for the group; ValueError, changing nothing, for the name or for an
  /// invalid value. The value must be an integer for an integer option, and 0 or 1 for a bool.
  void set_option(int64_t group, std::string_view name, double value);
  /// The learning rate of a group. Throws IndexError.
  double lr(int64_t group = 0) const { return option(group, "lr"); }
  /// Sets the learning rate of all groups. Throws ValueError unless lr is finite and >= 0.
  void set_lr(double lr);
  /// Sets the learning rate of one group. Throws IndexError, and ValueError as above.
  void set_lr(int64_t group, double lr) { set_option(group, "lr", lr); }

  /// {"optimizer": its name, "groups": {"<g>": {its options, "num_parameters"}}, "state": {"<i>": {"name", the state of
  /// the parameter}}}, where i is the index in parameters() and "name" is the name that the parameter's module gave it.
  /// The state of a 16-bit parameter contains its float32 "master".
  /// Parameters that ranks divide have pieces (state_pieces.h), of which each rank has its own. The tensors are shared
  /// with the optimizer. An equal optimizer that loads the state continues with the same bits.
  State state_dict() const;
  /// Loads the options and copies the tensors, whole or in pieces, to the parameters' devices. Throws StateError,
  /// changing nothing, unless the state is that of an optimizer of the same kind, with the same number of groups and of
  /// parameters in each group, and with the same names, shapes and dtypes of parameters (names are compared if both are
  /// known). The message lists every entry that is missing, unexpected or different.
  void load_state_dict(const State& state);

 protected:
  /// An optimizer without groups. The rule must outlive it.
  explicit Optimizer(const OptimizerRule& rule) : rule_(rule) {}
  explicit Optimizer(const OptimizerRule&&) = delete;

  /// Throws ValueError for a wrong option or if a parameter is given twice; StateError for an undefined, non-leaf or
  /// not row-major parameter; DTypeError unless it is floating-point. `options` points to the rule's Options.
  void check_group(const std::vector<Tensor>& parameters, void* options) const;
  /// Adds a group that check_group accepts. `first_options` points to the options of group 0; those of the next groups
  /// follow at distances of `stride` bytes. They must stay valid until the next call or the destruction of the
  /// optimizer.
  void add_group(const std::vector<Tensor>& parameters, void* first_options, size_t stride);
  /// Throws ValueError if there are no parameters.
  void check_not_empty() const;
  /// Throws IndexError if the group does not exist, ValueError for a wrong option.
  void check_options(int64_t group, void* options) const;

 private:
  friend class GradScaler;

  struct ParameterState {
    int64_t steps = 0;
    int64_t begin = 0;  ///< first element of the parameter that the tensors belong to
    std::array<Tensor, kMaxStateTensors>
        tensors;    ///< in the order of the rule; undefined before the first step that uses them
    Tensor master;  ///< master of a 16-bit parameter; undefined before its first step
  };
  struct Update;
  struct Batch;

  size_t check_index(int64_t group) const;
  void check_options(void* options) const;
  std::string describe(size_t index, const Tensor& parameter) const;
  std::string describe_parameter(size_t index) const { return describe(index, parameters_[index]); }

  /// A step. `skip`: in the capture of a cuda::Graph an int32 [1] on the GPU, which the graph sets before the step; the
  /// step changes nothing if the value is 1. Outside of a capture an undefined tensor.
  void step(const Tensor& skip);
  void exchange(const std::vector<Update>& updates) const;
  /// Waits for the last step of a graph; if it was skipped, removes it from the counts of steps.
  void settle() const;
  std::vector<Update> prepare();
  std::vector<Batch> count_steps(const std::vector<Update>& updates, DType copy_dtype);
  void run(const Batch& batch, const Tensor& skip);
  void update_tensor(const Update& update);
  /// The arguments of a kernel for parameter `index`, with the state tensors whose bits are set in `used` and a copy
  /// for autocast of dtype `copy_dtype`; `gradient` may be undefined.
  StepTensors step_tensors(size_t index, const Tensor& gradient, unsigned used, DType copy_dtype) const;

  void* options_of(size_t group) const { return first_options_ + group * options_stride_; }

  const OptimizerRule& rule_;
  std::vector<Tensor> parameters_;
  std::vector<size_t> group_ends_;      ///< index after the last parameter of each group
  std::byte* first_options_ = nullptr;  ///< of group 0
  size_t options_stride_ = 0;           ///< bytes from the options of a group to those of the next one
  mutable std::vector<ParameterState> states_;
  mutable Tensor skip_;                ///< `skip` of the last step of a graph; undefined if that is settled
  std::vector<size_t> maybe_skipped_;  ///< the parameters of that step
};

/// An optimizer with groups of `Options`.
template <class Options>
class GroupedOptimizer : public Optimizer {
 public:
  const std::vector<ParameterGroup<Options>>& groups() const { return groups_; }  ///< with their current options

  /// Adds a group, for instance of layers that are trained from now on. Throws the errors of the constructor, changing
  /// nothing. The new group and its parameters are the last; the order of the others does not change.
  void add_param_group(ParameterGroup<Options> group) {
    check_group(group.parameters, &group.options);
    groups_.push_back(std::move(group));
    add_group(groups_.back().parameters, &groups_.front().options, sizeof groups_.front());
  }

  /// Replaces the options of a group. Throws IndexError, and ValueError as the constructor does.
  void set_options(int64_t group, Options options) {
    check_options(group, &options);
    groups_[static_cast<size_t>(group)].options = options;
  }

 protected:
  /// `rule` is the update. Throws ValueError if there are no parameters, and the errors of check_group.
  GroupedOptimizer(const OptimizerRule& rule, std::vector<ParameterGroup<Options>> groups) : Optimizer(rule) {
    for (auto& group : groups) add_param_group(std::move(group));
    check_not_empty();
  }

 private:
  std::vector<ParameterGroup<Options>> groups_;
};

}}}  // namespace tandem::v0::optim
