// What all optimizers share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/state.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::optim {

/// Changes parameters in place along their gradients.
///
/// Parameters are row-major float32 or float64 leaves, on any devices.  A step skips those whose gradient slot is empty
/// or that require no gradient: neither they nor their state change.  It records nothing and bumps the versions of what
/// it changes.  Not safe from many threads.
class TANDEM_API Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Throws DeviceError, before anything is changed, if a parameter moved away from its state.
  void step();
  /// Empties the parameters' gradient slots; touches no memory.
  void zero_grad() const;
  const std::vector<Tensor>& parameters() const { return parameters_; }

  double lr() const { return lr_; }
  /// Throws ValueError unless lr is finite and >= 0.
  void set_lr(double lr);

  /// {"lr", the optimizer's own numbers, "num_parameters", "state": {"<i>": {"name", its tensors}}}, where i counts the
  /// parameters and "name" is the one that their module gave them.  Shares the tensors.
  State state_dict() const;
  /// Takes the numbers over and copies the tensors, to the parameters' devices.  Throws StateError, changing nothing,
  /// if an entry is missing or does not fit the parameter of that number.
  void load_state_dict(const State& state);

 protected:
  /// `name` is a literal that begins error texts.  Throws ValueError for no parameters, the same one twice, or a bad
  /// lr; StateError for an undefined, non-leaf or not row-major one; DTypeError for another dtype.
  Optimizer(const char* name, std::vector<Tensor> parameters, double lr);

  const char* name() const { return name_; }
  /// "SGD: parameter 3 ('fc1.weight')", to begin an error text with.
  std::string describe_parameter(size_t index) const;

  /// Throws DeviceError if the state of parameter `index` is elsewhere than the parameter.
  virtual void check(size_t index) const = 0;
  /// Changes parameter `index`; `gradient` is row-major, of its shape, dtype and device.
  virtual void update(size_t index, const Tensor& parameter, const Tensor& gradient) = 0;
  virtual void save_numbers(State& state) const = 0;
  virtual void save_tensors(size_t index, State& state) const = 0;
  /// Checks everything, in `numbers` and in `tensors` [number of parameters], before it changes anything.
  virtual void load(const State& numbers, const std::vector<State>& tensors) = 0;

 private:
  const char* name_;
  std::vector<Tensor> parameters_;
  double lr_;
};

}  // namespace tandem::inline v0::optim
