// Modules: trees of named parameters, buffers and child modules.
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

/// A part of a model. Owns parameters, buffers (tensors that are saved but not trained) and child modules.
///
/// Members are references, which are initialized and named by add(), add_parameter() and add_buffer():
///
///     struct Net : nn::Layer {
///       nn::Linear& fc1 = add<nn::Linear>("fc1", 784, 1024);
///       Tensor& scale = add_parameter("scale", ones({1024}));
///
/// Names have no '.' and are unique within their module. They form paths such as "encoder.fc1.weight", which are the
/// keys of state_dict() and the names of parameters in error texts. A tensor that is added several times (tied) is one
/// parameter, with its first path. Modules cannot be copied or moved. Concurrent calls are safe if forward()
/// is thread-safe. Changing a module is not thread-safe.
class TANDEM_API Module {
 public:
  Module() = default;
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // --- building ------------------------------------------------------------------------------------------------------
  // All functions throw ValueError for a name that is empty, contains a '.' or exists already, and StateError while the
  // structure is frozen.

  /// Creates a child T(args...).
  template <class T, class... Args>
  T& add(std::string name, Args&&... args) {
    return add_module(std::move(name), std::make_unique<T>(std::forward<Args>(args)...));
  }
  /// Adds an existing module as a child. Throws ValueError for null.
  template <class T>
  T& add_module(std::string name, std::unique_ptr<T> child) {
    T* const result = child.get();
    insert_child(std::move(name), std::move(child));
    return *result;
  }
  /// Adds a parameter and makes it require grad. An undefined tensor is allowed: it represents an optional parameter
  /// that this module does not have (a layer without bias). Throws StateError unless it is a contiguous leaf,
  /// DTypeError unless it is floating-point.
  Tensor& add_parameter(std::string name, Tensor value);
  /// Adds a buffer, which may be undefined. Throws StateError if it requires grad.
  Tensor& add_buffer(std::string name, Tensor value);

  // --- contents ------------------------------------------------------------------------------------------------------
  /// (path, parameter) in the order in which they were added, a module's own before its children's; tied parameters
  /// once. Only the module's own if `recurse` is false.
  std::vector<std::pair<std::string, Tensor>> named_parameters(bool recurse = true) const;
  /// The parameters of named_parameters().
  std::vector<Tensor> parameters() const;
  /// Paths and buffers, in the same order and under the same rules.
  std::vector<std::pair<std::string, Tensor>> named_buffers(bool recurse = true) const;
  /// (name, child) in the order in which they were added.
  std::vector<std::pair<std::string, const Module*>> named_children() const;

  /// Parameters and buffers with PyTorch's keys, tied ones under each of their paths. The tensors share memory with the
  /// module and are detached from the graph.
  State state_dict() const;
  /// Copies the values of `state`, whose tensors may be on any device. Throws StateError, changing nothing, unless
  /// `state` has exactly the keys, shapes and dtypes of state_dict() (tied tensors under at least one of their paths);
  /// the error lists every missing, unexpected and different key.
  void load_state_dict(const State& state);

  // --- device, mode and gradients ------------------------------------------------------------------------------------
  /// Moves parameters, their gradients and buffers in place, so that other handles (of an optimizer, or tied
  /// parameters) refer to the moved tensors. Throws StateError while the structure of this module, of a module above or of a module
  /// below is frozen, DeviceError, and OutOfMemory, after which each tensor is either moved or not.
  void to(Device device);
  /// Sets training or evaluation mode of this module and its children, which for instance Dropout depends on.
  void train(bool on = true);
  void eval() { train(false); }                   ///< train(false)
  bool is_training() const { return training_; }  ///< whether the module is in training mode; initially true
  /// Empties the gradient slots of all parameters; does not write to their memory.
  void zero_grad() const;

  /// Makes to() and the building functions of this module and the modules below throw StateError with `reason` until
  /// the handle is destroyed. The handle may outlive the module.
  HookHandle freeze_structure(std::string reason);

  // --- names ---------------------------------------------------------------------------------------------------------
  /// "encoder.fc1"; "" for the root.
  std::string path() const;
  /// The class's name without namespaces: "Linear".
  std::string type_name() const;
  /// Settings of the module that to_string prints in parentheses after its type: "784, 1024"; "" for none.
  virtual std::string extra_repr() const { return ""; }
  /// "Linear 'encoder.fc1'", or "Net" for the root. Cached, so that later calls take a few nanoseconds.
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

  void insert_child(std::string name, std::unique_ptr<Module> child);
  void check_new_name(const char* what, const std::string& name) const;
  /// Throws if this module or a module above is frozen.
  void check_not_frozen_above(const char* what) const;
  void check_not_frozen_below(const char* what) const;
  [[noreturn]] void throw_frozen(const char* what, const Module& frozen) const;
  RefPtr<ScopeName> make_scope_name() const;
  void forget_scope_names();
  /// Calls f(path, tensor, is_parameter) for each defined tensor of this module and, if `recurse`, of the modules
  /// below; for tied tensors once per path.
  template <class F>
  void for_each_tensor(const std::string& prefix, F&& f, bool recurse = true) const;
  std::vector<NamedTensor> distinct_tensors(bool is_parameter, bool recurse) const;

  Module* parent_ = nullptr;
  std::string name_;                    ///< name in the parent
  std::deque<NamedTensor> parameters_;  // deques: references to elements stay valid
  std::deque<NamedTensor> buffers_;
  std::vector<Child> children_;
  bool training_ = true;
  std::shared_ptr<std::list<std::string>> freezes_;  ///< reasons; null before the first
  mutable std::atomic<const RefPtr<ScopeName>*> scope_name_ = nullptr;
};

/// While in scope, error texts, traces and recorded operations of the calling thread contain the name of `module`, and
/// a trace gets a span of category "forward". Use it as the first line of operator() of a module that is not a Layer.
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
  TraceSpan span_;  ///< after entered_, so that the span is recorded with the module's name
};

/// A module that maps one tensor to one tensor.
class TANDEM_API Layer : public Module {
 public:
  /// The layer's function. Call operator() instead, so that errors and traces name the layer.
  virtual Tensor forward(const Tensor& input) = 0;
  /// Calls forward() in a ModuleScope of this module.
  Tensor operator()(const Tensor& input) {
    const ModuleScope scope(*this);
    return forward(input);
  }
};

/// A table with one line per module of the tree: name, type and settings, number of elements in the parameters of the
/// module and the modules below, and its own parameters and buffers with their shapes (and dtypes other than float32).
/// Then the totals, in which tied parameters count once.
TANDEM_API std::string to_string(const Module& module);
TANDEM_API std::ostream& operator<<(std::ostream& out, const Module& module);

}}}  // namespace tandem::v0::nn
