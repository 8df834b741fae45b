// Modules: parameters and buffers in a tree of named parts.
#pragma once

#include <atomic>
#include <deque>
#include <iosfwd>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>
#include <tandem/tensor/state.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace nn {

/// A part of a model: owns parameters, buffers (tensors that are saved but not trained) and child modules.
///
/// A thing is named once, where it is made, in the initialiser of the member that refers to it:
///
///     struct Net : nn::Layer {
///       nn::Linear& fc1 = add<nn::Linear>("fc1", 784, 1024);
///       Tensor& scale = add_parameter("scale", ones({1024}));
///
/// Names hold no '.' and are unique within their module; from the root they form paths such as "encoder.fc1.weight",
/// which are also the keys of state_dict and the names of parameters in messages.  A tensor may be added in several
/// places (tied): it is one parameter, under its first path.  A module is neither copied nor moved.  Calling it from
/// several threads is safe where its forward is; changing it is not.
class TANDEM_API Module {
 public:
  Module() = default;
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // --- building ------------------------------------------------------------------------------------------------------
  // All throw ValueError for a name that is empty, holds a '.' or is taken, and StateError while the structure is
  // frozen.

  /// Makes a child T(args...).
  template <class T, class... Args>
  T& add(std::string name, Args&&... args) {
    return adopt(std::move(name), std::make_unique<T>(std::forward<Args>(args)...));
  }
  /// Makes an existing module a child.  Throws ValueError for null.
  template <class T>
  T& adopt(std::string name, std::unique_ptr<T> child) {
    T* const result = child.get();
    adopt_module(std::move(name), std::move(child));
    return *result;
  }
  /// Adds a parameter and makes it require grad.  An undefined one stands for a part that this module goes without (a
  /// layer without bias).  Throws StateError unless it is a row-major leaf, DTypeError unless it is floating.
  Tensor& add_parameter(std::string name, Tensor value);
  /// Adds a buffer, which may be undefined as well.  Throws StateError if it requires grad.
  Tensor& add_buffer(std::string name, Tensor value);

  // --- contents ------------------------------------------------------------------------------------------------------
  /// Paths and parameters, a module's own before its children's, in the order they were added; a tied one once.  Those
  /// of the module alone unless `recurse`.
  std::vector<std::pair<std::string, Tensor>> named_parameters(bool recurse = true) const;
  /// The parameters of named_parameters().
  std::vector<Tensor> parameters() const;
  /// Paths and buffers, in the same order and under the same rules.
  std::vector<std::pair<std::string, Tensor>> named_buffers(bool recurse = true) const;
  /// Names and children, in the order they were added.
  std::vector<std::pair<std::string, const Module*>> named_children() const;

  /// Parameters and buffers under PyTorch's keys, a tied one under each of its paths: handles that share memory with
  /// the module, detached from the graph.
  State state_dict() const;
  /// Copies the values in, from any devices.  Throws StateError, changing nothing, unless `state` holds exactly the
  /// tensors of state_dict() with their shapes and dtypes, a tied one under at least one of its paths; the message lists
  /// every key that is missing, unexpected or different.
  void load_state_dict(const State& state);

  // --- changing the whole --------------------------------------------------------------------------------------------
  /// Moves parameters, their gradients and buffers; handles (an optimizer's, tied ones) follow.  Throws StateError
  /// while the structure of this module, of one above or below is frozen, DeviceError, and OutOfMemory: each tensor is
  /// then either moved or not.
  void to(Device device);
  /// Switches between training and evaluation, for children too: what Dropout and their like do.
  void train(bool on = true);
  void eval() { train(false); }                   ///< train(false)
  bool is_training() const { return training_; }  ///< whether the module is in training mode, as it is at first
  /// Empties the gradient slots of all parameters; touches no memory.
  void zero_grad() const;

  /// Makes to() and the building functions of this module and those below throw StateError with `reason` until the
  /// handle is gone.  The handle may outlive the module.
  HookHandle freeze_structure(std::string reason);

  // --- names ---------------------------------------------------------------------------------------------------------
  /// "encoder.fc1"; "" for the root.
  std::string path() const;
  /// The class's name without namespaces: "Linear".
  std::string type_name() const;
  /// What to_string shows in parentheses behind the type: the settings of a layer, "784, 1024"; "" for none.
  virtual std::string extra_repr() const { return ""; }
  /// "Linear 'encoder.fc1'", or "Net" for the root: made once, then a few nanoseconds.
  RefPtr<ScopeName> scope_name() const {
    const RefPtr<ScopeName>* known = scope_name_.load(std::memory_order_acquire);
    return known != nullptr ? *known : make_scope_name();
  }

 private:
  struct Child {
    std::string name;
    std::unique_ptr<Module> module;
  };
  using NamedTensor = std::pair<std::string, Tensor>;

  void adopt_module(std::string name, std::unique_ptr<Module> child);
  void check_new_name(const char* what, const std::string& name) const;
  /// Throws if this module or one above is frozen.
  void check_not_frozen_above(const char* what) const;
  void check_not_frozen_below(const char* what) const;
  [[noreturn]] void throw_frozen(const char* what, const Module& frozen) const;
  RefPtr<ScopeName> make_scope_name() const;
  void forget_scope_names();
  /// Calls f(path, tensor, is_parameter) for each defined tensor of this module and, if `recurse`, of those below; tied
  /// ones in each of their places.
  template <class F>
  void for_each_tensor(const std::string& prefix, F&& f, bool recurse = true) const;
  std::vector<NamedTensor> distinct_tensors(bool is_parameter, bool recurse) const;

  Module* parent_ = nullptr;
  std::string name_;                    ///< under which the parent knows this module
  std::deque<NamedTensor> parameters_;  // deques: references to elements stay valid
  std::deque<NamedTensor> buffers_;
  std::vector<Child> children_;
  bool training_ = true;
  std::shared_ptr<std::list<std::string>> freezes_;  ///< reasons; null while there never was one
  mutable std::atomic<const RefPtr<ScopeName>*> scope_name_ = nullptr;
};

/// While it lives, errors, traces and recorded operations of the calling thread name `module`, and a trace has a span of
/// category "forward" for it.  First line of the operator() of a module that is no Layer.
class TANDEM_API ModuleScope {
 public:
  /// `module` must outlive the scope.
  explicit ModuleScope(const Module& module)
      : entered_(module), span_(trace_enabled() ? TraceSpan(module.scope_name()->text, "forward") : TraceSpan()) {}
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  struct Entered {
    explicit Entered(const Module& module)
        : context(RankContext::current()), previous(std::exchange(context.module_scope, module.scope_name())) {}
    ~Entered() { context.module_scope = std::move(previous); }
    RankContext& context;
    RefPtr<ScopeName> previous;
  };

  Entered entered_;
  TraceSpan span_;  ///< lies inside of the scope
};

/// A module that maps one tensor to one tensor.
class TANDEM_API Layer : public Module {
 public:
  /// The layer's function.  Call operator() instead, so that errors and traces name the layer.
  virtual Tensor forward(const Tensor& input) = 0;
  /// forward inside of the module's scope.
  Tensor operator()(const Tensor& input) {
    const ModuleScope scope(*this);
    return forward(input);
  }
};

/// The tree of modules below `module`, a line for each: its name, type and settings, its own parameters and buffers with
/// their shapes (and dtypes other than float32), and the number of values in the parameters of it and those below; then
/// the sums, a tied parameter counted once.
TANDEM_API std::string to_string(const Module& module);
TANDEM_API std::ostream& operator<<(std::ostream& out, const Module& module);

}}}  // namespace tandem::v0::nn
