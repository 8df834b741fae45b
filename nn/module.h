// Modules: trees of named parameters, buffers and child modules.
#pragma once

#include <atomic>
#include <concepts>
#include <deque>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <tandem/base/function_ref.h>
#include <tandem/base/hook_handle.h>
#include <tandem/base/macros.h>
#include <tandem/base/module_observer.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>
#include <tandem/tensor/state.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {
class StateReader;
}}  // namespace tandem::v0

namespace tandem { inline namespace v0 { namespace nn {

class Module;
struct LayerHooks;
template <class T>
class Replaceable;
TANDEM_API void copy_state(const Module& from, Module& to);  ///< nn/clone.h

/// Options of add_buffer.
struct BufferOptions {
  bool persistent = true;  ///< whether state_dict() contains the buffer
};

/// A replacement of a prefix of keys.
struct KeyRename {
  std::string from;  ///< prefix of keys; empty: matches all keys
  std::string to;    ///< replacement of the prefix
};

/// Options of load_state_dict.
struct LoadStateDictOptions {
  bool strict = true;          ///< missing and unexpected keys are errors
  bool convert_dtype = false;  ///< convert floating-point tensors to the dtypes of the module; false: an error
  /// Applied to the keys of the state; for each key the first one that matches. {{"transformer.", ""}} removes a
  /// prefix, {{"", "transformer."}} adds a prefix.
  std::vector<KeyRename> renames = {};
};

/// Result of load_state_dict. Each key of state_dict() is in `loaded_keys` or in `missing_keys`.
struct LoadReport {
  std::vector<std::string> missing_keys;     ///< keys of the module that the state does not contain
  std::vector<std::string> unexpected_keys;  ///< keys of the state, after renaming, that the module does not have
  std::vector<std::string> loaded_keys;      ///< keys of the module whose values were set; all keys of a tied parameter
  std::vector<std::string> converted_keys;   ///< keys of the state, after renaming, whose tensors were converted
};

/// The numbers of tensors that were loaded and converted, and a line for each missing and each unexpected key.
TANDEM_API std::string to_string(const LoadReport& report);
TANDEM_API std::ostream& operator<<(std::ostream& out, const LoadReport& report);

/// The class that a replaceable child must have. Internal.
struct ModuleClass {
  const std::type_info* type;       ///< of the class
  bool (*contains)(const Module&);  ///< whether a module is of the class
};

/// False, in static_asserts of code that is an error if it is compiled. Internal.
template <class...>
inline constexpr bool kNever = false;

/// The first argument of calls that no constructor accepts. Internal.
struct NoSuchConstructorOrOption {
  template <class A>
  NoSuchConstructorOrOption(A&& first);  ///< from any type
};

/// Named in the error for apply(f) of an overloaded function. Internal.
struct OverloadedFunctionNeedsALambda;

/// A part of a model. Owns parameters, buffers (tensors that are not trained) and child modules.
///
/// Members are references, which are initialized and named by add(), add_parameter() and add_buffer():
///
///     struct Net : nn::Layer {
///       nn::Linear& fc1 = add<nn::Linear>("fc1", 784, 1024);
///       Tensor& scale = add_parameter("scale", ones({1024}));
///
/// Names have no '.' and are unique within their module. They form paths such as "encoder.fc1.weight", which are the
/// keys of state_dict() and the names of parameters in error texts. A tensor that is added several times (tied) is one
/// parameter, with its first path. Concurrent calls are safe if forward() is thread-safe. Changing a module is not
/// thread-safe. A module that is a member by value, or an element of a standard container, is not registered: its first
/// call in the forward of another module, while gradients are recorded, logs a warning if it has trainable parameters.
class TANDEM_API Module {
 public:
  Module() = default;
  virtual ~Module();
  /// Moves a module that is not a child, so that modules can be arguments by value; references to its parameters,
  /// buffers and children stay valid. `other` can only be destroyed. Throws StateError if `other` is a child, or while
  /// its structure is frozen.
  Module(Module&& other);
  // Not deleted: the errors for a deleted constructor do not contain a text.
  __attribute__((unavailable("modules are not copied: write nn::Linear& fc = add<nn::Linear>(..) or nn::ModuleList")))
  Module(const Module&);
  Module& operator=(const Module&) = delete;

  // --- building ------------------------------------------------------------------------------------------------------
  // All functions throw ValueError for a name that is empty, contains a '.' or exists already, and StateError while the
  // structure is frozen.

  /// Creates a child T(args...). The last argument may be T::Options in braces, behind at most four others:
  /// add<nn::Conv2d>("conv", 1, 8, 3, {.padding = 1}).
  template <class T, class... Args>
  requires std::constructible_from<T, Args...> T& add(std::string name, Args&&... args) {
    return add_module(std::move(name), std::make_unique<T>(std::forward<Args>(args)...));
  }
  template <class T>
  T& add(std::string name, typename T::Options options) {
    return add_module(std::move(name), std::make_unique<T>(std::move(options)));
  }
  template <class T, class A>
  T& add(std::string name, A&& a, typename T::Options options) {
    return add_module(std::move(name), std::make_unique<T>(std::forward<A>(a), std::move(options)));
  }
  template <class T, class A, class B>
  T& add(std::string name, A&& a, B&& b, typename T::Options options) {
    return add_module(std::move(name), std::make_unique<T>(std::forward<A>(a), std::forward<B>(b), std::move(options)));
  }
  template <class T, class A, class B, class C>
  T& add(std::string name, A&& a, B&& b, C&& c, typename T::Options options) {
    return add_module(std::move(name), std::make_unique<T>(std::forward<A>(a), std::forward<B>(b), std::forward<C>(c),
                                                           std::move(options)));
  }
#ifdef __clang__  // lists all overloads for a deleted one
  template <class T>
  auto& add(std::string, NoSuchConstructorOrOption, ...) {
    static_assert(kNever<T>, "T has no such constructor, or T::Options has no such field");
    return reinterpret_cast<T&>(*this);
  }
  template <class T = void>
  auto& apply(...) {
    static_assert(kNever<T>, "an overloaded function needs a lambda: apply([](nn::Linear& linear) { init(linear); })");
    return *this;
  }
#else
  template <class T>
  T& add(std::string, NoSuchConstructorOrOption, ...) = delete;  // no such constructor, or no such field of Options
  template <class T = OverloadedFunctionNeedsALambda>
  Module& apply(...) = delete;  // write apply([](nn::Linear& linear) { init(linear); })
#endif
  /// Adds a module as a child: by value, by std::unique_ptr, or a function of a tensor as a FunctionLayer. Throws
  /// ValueError for null.
  template <class M>
  auto& add_module(std::string name, M&& child) {
    auto module = make_child(std::forward<M>(child));
    auto* const result = module.get();
    insert_child(children_.size(), std::move(name), std::move(module));
    return *result;
  }
  /// Creates a child U(args...) that replace_module() may replace by another T.
  template <class T, class U = T, class... Args>
  Replaceable<T> add_replaceable(std::string name, Args&&... args);
  /// Adds a parameter and makes it require grad. An undefined tensor is allowed: it represents an optional parameter
  /// that this module does not have (a layer without bias). Throws StateError unless it is a contiguous leaf,
  /// DTypeError unless it is floating-point.
  Tensor& add_parameter(std::string name, Tensor value);
  /// Adds a buffer, which may be undefined. Throws StateError if it requires grad.
  Tensor& add_buffer(std::string name, Tensor value, BufferOptions options = {});

  /// Replaces the module at `path`, and returns the old one. Possible for children made by add_replaceable(), and for
  /// children of containers (Sequential, ModuleList, ModuleDict). Other children are referenced by members of C++
  /// classes, which would dangle (StateError). Throws ValueError if no module has this path, or if the new module is
  /// null or of a class that is not allowed at this path. Must not be called during a call of the old module.
  std::unique_ptr<Module> replace_module(const std::string& path, std::unique_ptr<Module> module);
  template <std::derived_from<Module> M>
  std::unique_ptr<Module> replace_module(const std::string& path, M&& module) {
    return replace_module(path, make_child(std::forward<M>(module)));
  }
  /// Removes the module at `path` and returns it, under the rules of replace_module(). Later children of a Sequential
  /// or ModuleList get the next smaller index; using an emptied Replaceable throws StateError.
  std::unique_ptr<Module> remove_module(const std::string& path);

  // --- contents ------------------------------------------------------------------------------------------------------
  /// (path, parameter) in the order of registration, a module's own parameters before its children's; tied parameters
  /// once. If `recurse` is false, only the module's own parameters.
  std::vector<std::pair<std::string, Tensor>> named_parameters(bool recurse = true) const;
  /// The parameters of named_parameters().
  std::vector<Tensor> parameters() const;
  /// Paths and buffers, in the same order and under the same rules.
  std::vector<std::pair<std::string, Tensor>> named_buffers(bool recurse = true) const;
  /// (name, child) in the order of registration.
  std::vector<std::pair<std::string, Module*>> named_children();
  std::vector<std::pair<std::string, const Module*>> named_children() const;
  /// The modules of named_children().
  std::vector<Module*> children();
  std::vector<const Module*> children() const;
  /// (path below this module, module): first ("", this), then its children, each followed by its own descendants.
  std::vector<std::pair<std::string, Module*>> named_modules();
  std::vector<std::pair<std::string, const Module*>> named_modules() const;
  /// The modules of named_modules().
  std::vector<Module*> modules();
  std::vector<const Module*> modules() const;
  /// Calls f(module) for the modules below, children before their parents, and finally for this module. If the argument
  /// of `f` is of a derived class, as in [](nn::Linear& linear) { .. }, only for modules of this class. Returns this.
  template <class F = void (*)(Module&)>
  Module& apply(F f) {
    visit([&](Module& module) {
      if constexpr (std::invocable<F&, Module&>) {
        f(module);
      } else if (auto* const derived = dynamic_cast<decltype(argument_of(std::function(f)))>(&module)) {
        f(*derived);
      }
    });
    return *this;
  }

  /// The module at a path below this module; "" is this module. Throws ValueError, listing the existing modules, if no
  /// module has this path, and ValueError if the module is not a T.
  template <class T = Module>
  T& get_submodule(const std::string& path) {
    return const_cast<T&>(std::as_const(*this).template get_submodule<T>(path));
  }
  template <class T = Module>
  const T& get_submodule(const std::string& path) const {
    const Module& found = find_module("get_submodule", path);
    const auto* const result = dynamic_cast<const T*>(&found);
    if (result == nullptr) throw_wrong_class("get_submodule", found, typeid(T));
    return *result;
  }
  /// The parameter at a path below this module. Throws ValueError, listing the existing parameters, if no parameter has
  /// this path.
  Tensor get_parameter(const std::string& path) const;
  /// The buffer at a path below this module. Throws ValueError, listing the existing buffers, if no buffer has this
  /// path.
  Tensor get_buffer(const std::string& path) const;

  /// Parameters and persistent buffers with PyTorch's keys, tied ones under each of their paths. The tensors share
  /// memory with the module and are detached from the graph.
  State state_dict() const;
  /// Copies the values of `state`, whose tensors may be on any device. Throws StateError, changing nothing, unless
  /// `state` has exactly the keys, shapes and dtypes of state_dict() (tied tensors under at least one of their paths,
  /// with equal values under several); the error lists every missing, unexpected and different key, and keys that
  /// become equal by renaming. Without `strict`, missing and unexpected keys are not errors, but only reported. With
  /// `convert_dtype`, tensors of another floating-point dtype are converted.
  LoadReport load_state_dict(const State& state, const LoadStateDictOptions& options = {});
  /// Loads a list of named tensors, for example SafetensorsFile::tensors. The names need not be paths of a State.
  LoadReport load_state_dict(const std::vector<std::pair<std::string, Tensor>>& tensors,
                             const LoadStateDictOptions& options = {});

  // --- device, mode and gradients ------------------------------------------------------------------------------------
  /// Moves parameters, their gradients and buffers in place, so that other handles (of an optimizer, or tied
  /// parameters) refer to the moved tensors. Throws StateError while the structure of this module, of a module above or
  /// of a module below is frozen, DeviceError, and OutOfMemory, after which each tensor is either moved or not.
  void to(Device device) { convert(device, {}); }
  /// Converts the floating-point parameters, their gradients and the floating-point buffers to `dtype` in place; other
  /// buffers keep their dtype. Throws DTypeError unless `dtype` is floating-point, else as to(Device). Optimizers made
  /// before keep their state in the old dtype.
  void to(DType dtype) { convert({}, dtype); }
  /// to(device) and to(dtype) together.
  void to(Device device, DType dtype) { convert(device, dtype); }
  /// Sets whether the parameters of this module and the modules below require grad. Returns this.
  Module& requires_grad_(bool requires_grad = true);
  /// Reports a call of a class without operator().
  template <class... Inputs>
  Tensor operator()(const Inputs&...) {
    static_assert(kNever<Inputs...>,
                  "the module has no operator(): derive it from nn::Layer, or declare one that begins "
                  "with nn::ModuleScope scope(*this);");
    return {};
  }
  /// Sets training or evaluation mode of this module and its children. For instance, Dropout depends on the mode.
  void train(bool on = true);
  void eval() { train(false); }                   ///< train(false)
  bool is_training() const { return training_; }  ///< whether the module is in training mode; initially true
  /// Empties the gradient slots of all parameters; does not write to their memory.
  void zero_grad() const;

  /// Makes to() and the building functions of this module and the modules below throw StateError with `reason` until
  /// the handle is destroyed. The handle may outlive the module.
  HookHandle freeze_structure(std::string reason);
  /// For each of named_parameters() the path of its unit: the innermost of `units` (paths of modules) that contains all
  /// places of the parameter, or "". An empty list means the children of every ModuleList. Throws ValueError if a
  /// module does not exist. For DistributedDataParallel.
  std::vector<std::string> units_of_parameters(std::vector<std::string> units) const;
  /// Makes `observer` (null: nobody) the observer of the calls of the module at `path`: of its ModuleScopes.
  void observe_calls(const std::string& path, RefPtr<ModuleObserver> observer);

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

 protected:
  /// The argument of add_module as an owning pointer.
  template <class M>
  static auto make_child(M&& module);

 private:
  template <class Base, class T>
  friend class ModuleContainer;
  friend class ModuleScope;
  friend class ParametrizationList;
  friend void copy_state(const Module& from, Module& to);

  enum class Kind {
    kParameter,
    kComputed,  ///< was a parameter, and is now the result of a parametrization
    kBuffer,
    kNonPersistentBuffer,
  };
  struct OwnTensor {
    std::string name;
    Tensor tensor;
    Kind kind;
  };
  struct Child {
    std::string name;
    std::unique_ptr<Module> module;
    std::shared_ptr<Module*> place = {};    ///< for Replaceable handles: `module`, or null after its removal
    const ModuleClass* required = nullptr;  ///< for Replaceable handles: class that the module must have
  };
  using NamedTensor = std::pair<std::string, Tensor>;

  template <class T>
  static const ModuleClass& class_of() {
    static constexpr ModuleClass kClass = {&typeid(T), [](const Module& module) {
                                             if constexpr (std::is_same_v<T, Module>) return true;
                                             return dynamic_cast<const T*>(&module) != nullptr;
                                           }};
    return kClass;
  }
  /// The class of all children of a container, which may be replaced and removed; null for other modules.
  virtual const ModuleClass* element_class() const { return nullptr; }
  /// Whether children that are named by their index are renamed if one is inserted or removed before them.
  virtual bool numbers_children() const { return false; }

  template <class R, class M>
  static M* argument_of(const std::function<R(M&)>&);
  void visit(FunctionRef<void(Module&)> f);
  void insert_child(size_t position, std::string name, std::unique_ptr<Module> child);
  std::shared_ptr<Module*> insert_replaceable(std::string name, std::unique_ptr<Module> child, const ModuleClass& type);
  void check_class(const char* what, const std::string& name, const Module& child, const ModuleClass& required) const;
  /// Gives `child` its parent and name, and its tensors their paths.
  void attach(Module& child, const std::string& name);
  static void detach(Module& child);
  void rename_child(size_t position, std::string name);
  /// Renames the children from `first` on that are named by their index before it changed by `shift`.
  void renumber(size_t first, int64_t shift);
  /// The child at `path`, which may be removed, or replaced by `replacement` if that is not null.
  Child& find_replaceable(const char* what, const std::string& path, Module** parent, const Module* replacement);
  const Module& find_module(const char* what, const std::string& path) const;
  const Tensor& find_tensor(const char* what, const char* noun, std::deque<OwnTensor> Module::*list,
                            const std::string& path) const;
  [[noreturn]] static void throw_wrong_class(const char* what, const Module& found, const std::type_info& expected);
  void check_new_name(const char* what, const std::string& name) const;
  /// Makes a leaf a parameter of this module: it requires grad, and its leaf state has a name.
  void make_parameter(const std::string& name, Tensor& tensor);
  /// Throws if this module or a module above is frozen.
  void check_not_frozen_above(const char* what) const;
  void check_not_frozen_below(const char* what) const;
  [[noreturn]] void throw_frozen(const char* what, const Module& frozen) const;
  RefPtr<ScopeName> make_scope_name() const;
  void forget_scope_names();
  /// Calls f(path, tensor, kind) for each defined tensor of this module and, if `recurse`, of the modules below; for
  /// tied tensors once per path.
  template <class F>
  void for_each_tensor(const std::string& prefix, F&& f, bool recurse = true) const;
  std::vector<NamedTensor> distinct_tensors(bool is_parameter, bool recurse) const;
  LoadReport load(StateReader& reader, const LoadStateDictOptions& options);
  void convert(std::optional<Device> device, std::optional<DType> dtype);

  Module* parent_ = nullptr;
  std::string name_;                  ///< name in the parent
  std::deque<OwnTensor> parameters_;  // deques: references to elements stay valid
  std::deque<OwnTensor> buffers_;
  std::vector<Child> children_;
  bool training_ = true;
  struct Freezes;
  std::shared_ptr<Freezes> freezes_;  ///< null before the first
  mutable std::atomic<const RefPtr<ScopeName>*> scope_name_ = nullptr;
  RefPtr<ModuleObserver> observer_;
};

/// A child that can be replaced, as a member of the module that owns it:
///
///     nn::Replaceable<nn::Linear> fc = add_replaceable<nn::Linear>("fc", 512, 1000);
///     ...
///     net.replace_module("fc", nn::Linear(512, 10));
///
/// Copies refer to the same child, also after it was replaced. All functions except operator bool throw StateError if
/// the child was removed or its parent destroyed.
template <class T>
class Replaceable {
 public:
  explicit operator bool() const { return *place_ != nullptr; }  ///< whether the child exists
  T* get() const {                                               ///< the present child
    TANDEM_CHECK(StateError, *place_ != nullptr, "Replaceable: the module was removed");
    return static_cast<T*>(*place_);
  }
  T& operator*() const { return *get(); }  ///< the present child
  T* operator->() const { return get(); }  ///< the present child
  /// Calls the present child.
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    return (*get())(std::forward<Args>(args)...);
  }

 private:
  friend class Module;
  explicit Replaceable(std::shared_ptr<Module*> place) : place_(std::move(place)) {}

  std::shared_ptr<Module*> place_;
};

template <class T, class U, class... Args>
Replaceable<T> Module::add_replaceable(std::string name, Args&&... args) {
  static_assert(std::derived_from<U, T>, "add_replaceable<T, U>: U is not a T");
  return Replaceable<T>(
      insert_replaceable(std::move(name), std::make_unique<U>(std::forward<Args>(args)...), class_of<T>()));
}

/// While in scope, error texts, traces and recorded operations of the calling thread contain the name of `module`, and
/// a trace gets a span of category "forward". Use it as the first line of operator() of a module that is not a Layer.
class TANDEM_API ModuleScope {
 public:
  /// `module` must outlive the scope.
  explicit ModuleScope(const Module& module)
      : entered_(module),
        span_(trace_enabled() ? TraceSpan(module.scope_name()->text, "forward") : TraceSpan()),
        observed_(module.observer_) {}
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
  ObservedCall observed_;
};

/// A module that maps one tensor to one tensor.
///
/// Hooks run in each call, in the order of their registration. An exception of a hook ends the call. A hook may add and
/// remove hooks: new hooks run from the next call on, removed hooks no longer run. Hooks are not copied by clone().
class TANDEM_API Layer : public Module {
 public:
  /// The layer's function. Call operator() instead, so that errors and traces name the layer, and hooks run.
  virtual Tensor forward(const Tensor& input) = 0;
  /// Calls forward() in a ModuleScope of this module.
  Tensor operator()(const Tensor& input) {
    return call(input, [this](const Tensor& value) { return forward(value); });
  }

  /// Calls hook(layer, input) before forward(). The hook returns nothing, or a tensor that replaces the input of the
  /// later hooks and of forward(), unless undefined.
  template <class F>
  HookHandle register_forward_pre_hook(F hook) {
    return add_forward_pre_hook(returning_tensor<const Tensor&>(std::move(hook)));
  }
  /// Calls hook(layer, input, output) after forward(). The hook returns nothing, or a tensor that replaces the output,
  /// unless undefined.
  template <class F>
  HookHandle register_forward_hook(F hook) {
    return add_forward_hook(returning_tensor<const Tensor&, const Tensor&>(std::move(hook)));
  }
  /// Calls hook(layer, grad_input, grad_output) in backward, when the gradient of a call's input is complete.
  /// grad_input is undefined if the input does not require grad; grad_output is undefined if backward does not pass
  /// through the output. The hook does not run if tandem::grad does not need the input's gradient. The hook returns
  /// nothing, or a tensor that replaces grad_input, unless undefined. Applies to calls after the registration. The
  /// layer must outlive backward.
  template <class F>
  HookHandle register_full_backward_hook(F hook) {
    return add_full_backward_hook(returning_tensor<const Tensor&, const Tensor&>(std::move(hook)));
  }

 protected:
  /// Calls f(input) in a ModuleScope of this module, with the hooks: for call operators with further arguments.
  template <class F>
  Tensor call(const Tensor& input, F&& f) {
    const ModuleScope scope(*this);
    if (hooks_ == nullptr) [[likely]]
      return f(input);
    return call_with_hooks(input, f);
  }

 private:
  /// `hook` as a function that returns a tensor, undefined if `hook` returns nothing.
  template <class... Tensors, class F>
  static std::function<Tensor(Layer&, Tensors...)> returning_tensor(F hook) {
    if constexpr (std::is_void_v<std::invoke_result_t<F&, Layer&, Tensors...>>) {
      return [hook = std::move(hook)](Layer& layer, Tensors... tensors) mutable {
        hook(layer, tensors...);
        return Tensor();
      };
    } else {
      return hook;
    }
  }
  using TensorHook = std::function<Tensor(Layer&, const Tensor&)>;
  using TensorsHook = std::function<Tensor(Layer&, const Tensor&, const Tensor&)>;
  HookHandle add_forward_pre_hook(TensorHook hook);
  HookHandle add_forward_hook(TensorsHook hook);
  HookHandle add_full_backward_hook(TensorsHook hook);
  Tensor call_with_hooks(const Tensor& input, FunctionRef<Tensor(const Tensor&)> f);

  std::shared_ptr<LayerHooks> hooks_;  ///< null before the first hook; shared with the graph
};

/// A layer without parameters: a function of its input, of any shape unless the function requires otherwise.
class TANDEM_API FunctionLayer : public Layer {
 public:
  using Function = std::function<Tensor(const Tensor&)>;  ///< of the input
  /// `settings`: for extra_repr.
  explicit FunctionLayer(Function function, std::string settings = "")
      : function_(std::move(function)), settings_(std::move(settings)) {}
  Tensor forward(const Tensor& input) override { return function_(input); }
  std::string extra_repr() const override { return settings_; }

 private:
  Function function_;
  std::string settings_;
};

template <class M>
auto Module::make_child(M&& module) {
  using T = std::remove_cvref_t<M>;
  if constexpr (std::derived_from<T, Module>) {
    static_assert(!std::is_lvalue_reference_v<M>, "a module that has a name is not copied: create it in the call");
    return std::make_unique<T>(std::move(module));
  } else if constexpr (requires { FunctionLayer(std::forward<M>(module)); }) {
    return std::make_unique<FunctionLayer>(std::forward<M>(module));
  } else {
    static_assert(
        requires { typename T::element_type; },
        "expected a module, a std::unique_ptr to one, or a function: [](const Tensor& x) { return relu(x); }");
    return std::forward<M>(module);
  }
}

/// A table with one line per module of the tree: name, type and settings, number of elements in the parameters of the
/// module and the modules below, and its own parameters and buffers with their shapes (and dtypes other than float32).
/// Then the totals, in which tied parameters count once.
TANDEM_API std::string to_string(const Module& module);
TANDEM_API std::ostream& operator<<(std::ostream& out, const Module& module);

}}}  // namespace tandem::v0::nn
