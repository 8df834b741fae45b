// Differentiable functions defined by a program.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <tandem/autograd/grad_mode.h>
#include <tandem/base/trace.h>
#include <tandem/base/type_name.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace autograd {

class FunctionNode;

/// The part of Function that does not depend on the derived class.
class TANDEM_API FunctionBase {
 public:
  FunctionBase() = default;
  virtual ~FunctionBase() = default;
  FunctionBase(const FunctionBase&) = delete;
  FunctionBase& operator=(const FunctionBase&) = delete;

  /// One gradient per tensor argument of forward, in that order; undefined for zero, or where needs_input_grad is
  /// false. `grad_outputs` has one gradient per output, with its shape, dtype and device. Grad mode is on only under
  /// create_graph: a backward composed of operations then supports second derivatives. A backward that calls kernels
  /// does not support them, unless it calls the kernels in another Function.
  virtual TensorList backward(const TensorList& grad_outputs) = 0;

 protected:
  /// In forward: saves arguments, outputs or intermediate results for backward, after the tensors that earlier calls
  /// saved. A tensor that is changed in place between forward and backward makes saved_tensor throw. Other members of
  /// the class are kept as well, but are neither checked nor released after backward.
  void save_for_backward(std::initializer_list<Tensor> tensors);
  /// In backward: saved tensor i. Throws IndexError if it does not exist, StateError if it was changed in place, or
  /// released by an earlier backward without retain_graph.
  Tensor saved_tensor(size_t i) const;
  /// In backward: all saved tensors.
  TensorList saved_tensors() const;
  /// Whether tensor argument i needs a gradient; the tensors of list arguments are counted too. Throws IndexError if
  /// there is none.
  bool needs_input_grad(size_t i) const;
  /// In forward: `output` gets no gradient and does not require grad. Outputs that are not floating-point are marked
  /// automatically.
  void mark_non_differentiable(const Tensor& output);
  /// In forward: whether backward gets zeros instead of undefined tensors for outputs without a gradient; initially
  /// true.
  void set_materialize_grads(bool on) { materialize_grads_ = on; }

  using Inputs = SmallVector<const Tensor*, 4>;  ///< the tensor arguments
  using Outputs = SmallVector<Tensor*, 4>;       ///< the results
  /// Before forward: whether the call must be recorded.
  void begin(const Inputs& inputs);
  /// After forward: records the call; if it need not be recorded, releases its saved tensors.
  static void finish(std::unique_ptr<FunctionBase> function, const char* name, const Inputs& inputs,
                     const Outputs& outputs);

 private:
  friend class FunctionNode;
  FunctionNode* node_ = nullptr;  ///< owns this; null during forward
  SmallVector<bool, 4> needs_input_grad_;
  bool recorded_ = false;
  bool materialize_grads_ = true;
  std::vector<Tensor> to_save_;             ///< until forward ends
  std::vector<Tensor> non_differentiable_;  ///< until forward ends
};

/// An operation with its own derivative, as torch.autograd.Function:
///
///     struct Cube : autograd::Function<Cube> {
///       Tensor forward(const Tensor& x) {
///         save_for_backward({x});
///         return x * x * x;
///       }
///       TensorList backward(const TensorList& grad_outputs) override {
///         const Tensor x = saved_tensor(0);
///         return {grad_outputs[0] * (x * x * 3)};
///       }
///     };
///     Tensor y = Cube::apply(x);
///
/// Each call creates its own object, so attributes are members that forward sets. forward takes arguments of any type;
/// arguments of type Tensor, std::vector<Tensor> and TensorList have gradients. It returns a Tensor, a std::tuple of
/// Tensors, a std::vector<Tensor> or a TensorList. It runs without grad mode. The class's name is in error texts and
/// traces.
template <class F>
class Function : public FunctionBase {
 public:
  /// Calls F().forward(args...) and records it if a tensor argument requires grad.
  template <class... Args>
  static auto apply(const Args&... args) {
    static const std::string name = type_name(typeid(F));
    const TraceSpan span(name, "op");
    auto function = std::make_unique<F>();
    Inputs inputs;
    (add_input(inputs, args), ...);
    function->FunctionBase::begin(inputs);
    auto result = [&] {
      const NoGradGuard no_grad;
      return function->forward(args...);
    }();
    Outputs outputs;
    add_output(outputs, result);
    finish(std::move(function), name.c_str(), inputs, outputs);
    return result;
  }

 private:
  template <class T>
  static constexpr bool is_list = std::is_same_v<T, std::vector<Tensor>> || std::is_same_v<T, TensorList>;

  template <class T>
  static void add_input(Inputs& inputs, const T& argument) {
    if constexpr (std::is_same_v<T, Tensor>) {
      inputs.push_back(&argument);
    } else if constexpr (is_list<T>) {
      for (const Tensor& tensor : argument) inputs.push_back(&tensor);
    }
  }

  template <class T>
  static void add_output(Outputs& outputs, T& result) {
    if constexpr (std::is_same_v<T, Tensor>) {
      outputs.push_back(&result);
    } else if constexpr (is_list<T>) {
      for (Tensor& tensor : result) outputs.push_back(&tensor);
    } else {
      std::apply([&](auto&... tensors) { (add_output(outputs, tensors), ...); }, result);
    }
  }
};

}}}  // namespace tandem::v0::autograd
