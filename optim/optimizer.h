// What all optimizers share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/state.h>
#include <tandem/tensor/state_reader.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace optim {

/// Parameters that take their steps with the same options:
///
///     optim::AdamW adamw({{.parameters = matrices, .options = {.lr = 3e-4, .weight_decay = 0.1}},
///                         {.parameters = others, .options = {.lr = 3e-4, .weight_decay = 0}}});
template <class Options>
struct ParameterGroup {
  std::vector<Tensor> parameters;
  Options options = {};
};

/// Changes parameters in place along their gradients.
///
/// Parameters are row-major float32 or float64 leaves, on any devices, in one or more groups with options of their own.
/// A step skips those whose gradient slot is empty or that require no gradient: neither they nor their state change.
/// It records nothing and bumps the versions of what it changes.  Each value's step is a pass of its own over memory,
/// in pieces that sizes alone determine.  Not safe from many threads.
class TANDEM_API Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Throws DeviceError if a parameter moved away from its state, and OutOfMemory where there is no room for it: before
  /// anything is changed.
  void step();
  /// Empties the parameters' gradient slots; touches no memory.
  void zero_grad() const;
  /// Those of all groups, one group after the other.
  const std::vector<Tensor>& parameters() const { return parameters_; }

  int64_t num_groups() const { return static_cast<int64_t>(group_ends_.size()); }
  /// The learning rate of a group.  Throws IndexError.
  double lr(int64_t group = 0) const;
  /// Sets that of all groups.  Throws ValueError unless lr is finite and >= 0.
  void set_lr(double lr);
  /// Sets that of one group.  Throws IndexError, and ValueError as above.
  void set_lr(int64_t group, double lr);

  /// {"optimizer": its name, "groups": {"<g>": {its options, "num_parameters"}}, "state": {"<i>": {"name", what steps
  /// keep for the parameter}}}, where i counts the parameters() and "name" is the one that their module gave them.
  /// Shares the tensors.  Loaded into an equal optimizer, it continues to the bit.
  State state_dict() const;
  /// Takes the options over and copies the tensors, to the parameters' devices.  Throws StateError, changing nothing,
  /// unless the state is of the same kind of optimizer with as many groups of as many parameters of the same names,
  /// shapes and dtypes (a name is compared where both have one); the message lists every entry that is missing,
  /// unexpected or different.
  void load_state_dict(const State& state);

 protected:
  /// `name` is a literal that begins error texts; `groups` are the groups' parameters.  Throws ValueError for no
  /// parameters at all or the same one twice; StateError for an undefined, non-leaf or not row-major one; DTypeError
  /// for another dtype.
  Optimizer(const char* name, const std::vector<std::vector<Tensor>>& groups);

  const char* name() const { return name_; }
  /// The group of parameter `index`.
  size_t group_of(size_t index) const;
  /// `group` as an index.  Throws IndexError unless there is such a group.
  size_t check_group(int64_t group) const;
  /// "SGD: parameter 3 ('fc1.weight')", to begin an error text with.
  std::string describe_parameter(size_t index) const;
  /// Throws DeviceError if `kept`, unless it is undefined, is elsewhere than the parameter; `what` names it.
  void check_device(size_t index, const char* what, const Tensor& kept) const;
  /// Throws StateError where parameter `index`, which has taken no step, would take its first one in a cuda::Graph.
  void refuse_first_in_capture(size_t index) const;
  /// For replays of a cuda::Graph: throws StateError unless parameter `index` and its gradient still are where its kernels find them,
  /// and what is kept for it, and its options, `fit` too.
  void check_replay(size_t index, const void* parameter, const void* gradient, bool fit) const;
  /// A copy of what a state holds for parameter `index`, on the parameter's device; undefined for null.
  Tensor copy_for(size_t index, const Tensor* saved) const;

  virtual double lr_of(size_t group) const = 0;
  virtual void set_lr_of(size_t group, double lr) = 0;
  /// Makes the memory that a step of parameter `index` needs.  Throws DeviceError if what is kept for it is elsewhere, and
  /// OutOfMemory.
  virtual void prepare(size_t index) = 0;
  /// A parameter that a step changes, prepared; `gradient` is row-major, of its shape, dtype and device.
  struct Update {
    size_t index;
    Tensor parameter;
    Tensor gradient;
  };
  virtual void update(const std::vector<Update>& updates) = 0;
  virtual void save_options(size_t group, State& state) const = 0;
  virtual void save_kept(size_t index, State& state) const = 0;
  /// Reads the options below "groups.<g>" and what is kept below "state.<i>", noting in `reader` what does not fit.
  /// Returns what takes them over, called if all fits: it may throw OutOfMemory before it has changed anything.
  virtual std::function<void()> prepare_load(StateReader& reader) = 0;

 private:
  /// In a cuda::Graph: replays throw StateError where parameter `index`, which has no gradient now, has one.
  void refuse_in_replays(size_t index) const;

  const char* name_;
  std::vector<Tensor> parameters_;
  std::vector<size_t> group_ends_;  ///< index behind the last parameter of each group
};

/// An optimizer whose groups have `Options`: a struct with `lr` among its members.
template <class Options>
class GroupedOptimizer : public Optimizer {
 public:
  const std::vector<ParameterGroup<Options>>& groups() const { return groups_; }

 protected:
  GroupedOptimizer(const char* name, std::vector<ParameterGroup<Options>> groups)
      : Optimizer(name, parameters_of(groups)), groups_(std::move(groups)) {}

  const Options& options_of(size_t index) const { return groups_[group_of(index)].options; }
  double lr_of(size_t group) const override { return groups_[group].options.lr; }
  void set_lr_of(size_t group, double lr) override { groups_[group].options.lr = lr; }

  std::vector<ParameterGroup<Options>> groups_;

 private:
  static std::vector<std::vector<Tensor>> parameters_of(const std::vector<ParameterGroup<Options>>& groups) {
    std::vector<std::vector<Tensor>> result;
    for (const auto& group : groups) result.push_back(group.parameters);
    return result;
  }
};

}}}  // namespace tandem::v0::optim
