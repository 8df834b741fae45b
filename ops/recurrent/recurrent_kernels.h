// Kernels of one step of a recurrent layer, their formulas, and whole layers by a library. Private to ops/.
#pragma once

#include <cstdint>
#include <vector>

#include <tandem/ops/elementwise/math_formulas.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/kernel_context.h>

namespace tandem { inline namespace v0 {

enum class RecurrentKind : int8_t { kLstm, kGru, kTanh, kRelu };

TANDEM_HOST_DEVICE constexpr int64_t num_gates(RecurrentKind kind) {
  return kind == RecurrentKind::kLstm ? 4 : kind == RecurrentKind::kGru ? 3 : 1;
}

// --- formulas ----------------------------------------------------------------------------------------------------
// Of numbers in kernels, of tensors where backward is composed of operations. V has +, -, *, sigmoid_element,
// tanh_element, relu_element and relu_gradient.

template <class C>
TANDEM_FORMULA inline C relu_element(C x) {
  return choose(x < C{0}, C{0}, x);
}
/// `grad` where the result h is positive.
template <class C>
TANDEM_FORMULA inline C relu_gradient(C grad, C h) {
  return choose(h > C{0}, grad, C{0});
}

/// The results of a step.
template <class V>
struct RecurrentValues {
  V gates[4] = {};  ///< activations
  V kept = {};      ///< further value for backward: the cell state before the step (LSTM), n_h (GRU)
  V h = {}, c = {};
};

/// A step from the states h and c: x(k) and y(k) are the shares of the input and of h in gate k.
template <RecurrentKind kind, class V, class X, class Y>
TANDEM_FORMULA inline RecurrentValues<V> recurrent_values(const X& x, const Y& y, const V& h, const V& c) {
  RecurrentValues<V> v;
  if constexpr (kind == RecurrentKind::kLstm) {
    v.gates[0] = sigmoid_element(x(0) + y(0));
    v.gates[1] = sigmoid_element(x(1) + y(1));
    v.gates[2] = tanh_element(x(2) + y(2));
    v.gates[3] = sigmoid_element(x(3) + y(3));
    v.kept = c;
    v.c = v.gates[1] * c + v.gates[0] * v.gates[2];
    v.h = v.gates[3] * tanh_element(v.c);
  } else if constexpr (kind == RecurrentKind::kGru) {
    v.gates[0] = sigmoid_element(x(0) + y(0));
    v.gates[1] = sigmoid_element(x(1) + y(1));
    v.kept = y(2);
    v.gates[2] = tanh_element(x(2) + v.gates[0] * v.kept);
    v.h = v.gates[2] + v.gates[1] * (h - v.gates[2]);
  } else {
    v.h = kind == RecurrentKind::kTanh ? tanh_element(x(0) + y(0)) : relu_element(x(0) + y(0));
    v.gates[0] = v.h;
  }
  return v;
}

/// The gradients of a step.
template <class V>
struct RecurrentGradients {
  V x[4] = {};  ///< of the input's shares; also of the hidden shares, except for gate n of a GRU
  V n_h = {};   ///< GRU only
  V c = {};     ///< LSTM only
  V h = {};     ///< GRU only: the part of h's gradient that does not go through the shares
};

/// The gradients for the gradients dh and dc of its results. `h` is the state before the step, for GRUs only.
template <RecurrentKind kind, class V>
TANDEM_FORMULA inline RecurrentGradients<V> recurrent_gradients(const RecurrentValues<V>& v, const V& h, const V& dh,
                                                                const V& dc) {
  RecurrentGradients<V> d;
  if constexpr (kind == RecurrentKind::kLstm) {
    const V &i = v.gates[0], &f = v.gates[1], &g = v.gates[2], &o = v.gates[3];
    const V t = tanh_element(f * v.kept + i * g), cell = dc + dh * o * (1 - t * t);
    d.x[0] = cell * g * i * (1 - i);
    d.x[1] = cell * v.kept * f * (1 - f);
    d.x[2] = cell * i * (1 - g * g);
    d.x[3] = dh * t * o * (1 - o);
    d.c = cell * f;
  } else if constexpr (kind == RecurrentKind::kGru) {
    const V &r = v.gates[0], &z = v.gates[1], &n = v.gates[2];
    d.x[2] = dh * (1 - z) * (1 - n * n);
    d.x[1] = dh * (h - n) * z * (1 - z);
    d.x[0] = d.x[2] * v.kept * r * (1 - r);
    d.n_h = d.x[2] * r;
    d.h = dh * z;
  } else {
    const V& y = v.gates[0];
    d.x[0] = kind == RecurrentKind::kTanh ? dh * (1 - y * y) : relu_gradient(dh, y);
  }
  return d;
}

// --- kernels -----------------------------------------------------------------------------------------------------

/// The tensors of a step, row-major with `rows` rows of H (gates, products: G H) columns. Those of dtype C have the
/// accumulation dtype of `dtype`, the others `dtype`.
struct RecurrentStep {
  RecurrentKind kind;
  DType dtype;
  int64_t rows;
  int64_t hidden;        ///< H
  const void* bias_ih;   ///< [G H]
  const void* bias_hh;   ///< [G H]
  const void* products;  ///< C: h weight_hh^T
  void* gates;           ///< C: x weight_ih^T, overwritten by the activations
  void* h;               ///< overwritten by the new state
  void* c;               ///< C, LSTM only: overwritten by the new cell state
  void* h_before;        ///< receives h from before the step
  void* kept;            ///< C, LSTM and GRU only: receives RecurrentValues::kept
  void* out;             ///< receives the new state
};

/// The tensors of a step in backward, as in RecurrentStep.
struct RecurrentBackwardStep {
  RecurrentKind kind;
  DType dtype;
  int64_t rows;
  int64_t hidden;
  const void* gates;     ///< C: activations
  const void* h_before;  ///< read for GRUs only
  const void* kept;      ///< C
  const void* grad;      ///< of out
  void* grad_h;          ///< C: of h after the step; GRU: overwritten by RecurrentGradients::h
  void* grad_c;          ///< C, LSTM only: of c after the step, overwritten by the gradient of c before it
  void* input_grad;      ///< receives the gradient of x weight_ih^T
  void* hidden_grad;     ///< GRU only: receives the gradient of h weight_hh^T
};

/// Unit j of a row of RecurrentStep.
template <RecurrentKind kind, class T>
TANDEM_FORMULA inline void recurrent_unit(const RecurrentStep& step, int64_t row, int64_t j) {
  using C = Accumulator<T>;
  constexpr bool kIsLstm = kind == RecurrentKind::kLstm;
  const int64_t hidden = step.hidden, at = row * hidden + j, first = row * num_gates(kind) * hidden + j;
  C* gates = static_cast<C*>(step.gates) + first;
  const auto x = [&](int64_t k) {
    return gates[k * hidden] + static_cast<C>(static_cast<const T*>(step.bias_ih)[k * hidden + j]);
  };
  const auto y = [&](int64_t k) {
    return static_cast<const C*>(step.products)[first + k * hidden] +
           static_cast<C>(static_cast<const T*>(step.bias_hh)[k * hidden + j]);
  };
  const T h = static_cast<const T*>(step.h)[at];
  const C c = kIsLstm ? static_cast<const C*>(step.c)[at] : C{0};
  const RecurrentValues<C> v = recurrent_values<kind, C>(x, y, static_cast<C>(h), c);
  for (int64_t k = 0; k < num_gates(kind); ++k) gates[k * hidden] = v.gates[k];
  static_cast<T*>(step.h_before)[at] = h;
  static_cast<T*>(step.h)[at] = static_cast<T*>(step.out)[at] = static_cast<T>(v.h);
  if constexpr (kIsLstm) static_cast<C*>(step.c)[at] = v.c;
  if constexpr (kIsLstm || kind == RecurrentKind::kGru) static_cast<C*>(step.kept)[at] = v.kept;
}

/// Unit j of a row of RecurrentBackwardStep.
template <RecurrentKind kind, class T>
TANDEM_FORMULA inline void recurrent_unit_backward(const RecurrentBackwardStep& step, int64_t row, int64_t j) {
  using C = Accumulator<T>;
  constexpr bool kIsLstm = kind == RecurrentKind::kLstm, kIsGru = kind == RecurrentKind::kGru;
  const int64_t hidden = step.hidden, at = row * hidden + j, first = row * num_gates(kind) * hidden + j;
  RecurrentValues<C> v;
  for (int64_t k = 0; k < num_gates(kind); ++k) v.gates[k] = static_cast<const C*>(step.gates)[first + k * hidden];
  if constexpr (kIsLstm || kIsGru) v.kept = static_cast<const C*>(step.kept)[at];
  const C h = kIsGru ? static_cast<C>(static_cast<const T*>(step.h_before)[at]) : C{0};
  const C dh = static_cast<const C*>(step.grad_h)[at] + static_cast<C>(static_cast<const T*>(step.grad)[at]);
  const C dc = kIsLstm ? static_cast<const C*>(step.grad_c)[at] : C{0};
  const RecurrentGradients<C> d = recurrent_gradients<kind, C>(v, h, dh, dc);
  T* input_grad = static_cast<T*>(step.input_grad) + first;
  for (int64_t k = 0; k < num_gates(kind); ++k) input_grad[k * hidden] = static_cast<T>(d.x[k]);
  if constexpr (kIsLstm) static_cast<C*>(step.grad_c)[at] = d.c;
  if constexpr (kIsGru) {
    T* hidden_grad = static_cast<T*>(step.hidden_grad) + first;
    hidden_grad[0] = static_cast<T>(d.x[0]);
    hidden_grad[hidden] = static_cast<T>(d.x[1]);
    hidden_grad[2 * hidden] = static_cast<T>(d.n_h);
    static_cast<C*>(step.grad_h)[at] = d.h;
  }
}

/// Calls run.operator()<kind>() for the step's kind.
template <class F>
void visit_kind(RecurrentKind kind, const F& run) {
  switch (kind) {
    case RecurrentKind::kLstm: return run.template operator()<RecurrentKind::kLstm>();
    case RecurrentKind::kGru: return run.template operator()<RecurrentKind::kGru>();
    case RecurrentKind::kTanh: return run.template operator()<RecurrentKind::kTanh>();
    case RecurrentKind::kRelu: return run.template operator()<RecurrentKind::kRelu>();
  }
}

// CPUs: float32 and float64; GPUs: any floating dtype.
TANDEM_KERNELS(void recurrent_step(const KernelContext& context, const RecurrentStep& step);
               void recurrent_step_backward(const KernelContext& context, const RecurrentBackwardStep& step);)

// --- layers by a library -----------------------------------------------------------------------------------------

/// A layer of all D directions, for all steps.
struct RecurrentProblem {
  RecurrentKind kind;
  DType dtype;
  bool tf32;         ///< whether float32 operands of products may be rounded
  bool is_training;  ///< whether the forward pass keeps what backward needs
  bool has_biases;
  int64_t directions;
  int64_t input_size;
  int64_t hidden;
  std::vector<int64_t> batch_sizes;  ///< rows of each step, which do not increase
};

/// The memory that a library needs.
struct RecurrentMemory {
  int64_t weights = 0;           ///< bytes of all parameters; 0 if tandem's own kernels must compute the layer
  int64_t workspace = 0;         ///< bytes
  int64_t reserve = 0;           ///< bytes of what backward needs
  std::vector<int64_t> offsets;  ///< elements before each parameter: weight_ih, weight_hh, bias_ih, bias_hh of each
                                 ///< direction; each is row-major, its gates in PyTorch's order
};

/// A sequence, the rows of all steps, and the states [D, N, H]; c is null unless the layer is an LSTM.
struct RecurrentSequence {
  void* rows = nullptr;
  void* h = nullptr;
  void* c = nullptr;
};

/// The tensors of a pass, row-major.
struct RecurrentPass {
  RecurrentSequence in, out;
  RecurrentSequence grad_in = {}, grad_out = {};  ///< backward only
  void* weights;
  void* weights_grad = nullptr;  ///< backward only: zeros, to which the gradients are added; null if not needed
  void* workspace;
  void* reserve;  ///< written by forward, read and overwritten by backward; null unless is_training
};

// GPUs: cuDNN, for all dtypes but float64, where it supports the problem; a failure is logged as a warning, once for
// all problems that differ only in is_training and batch_sizes. CPUs: none. recurrent_pass, forward unless grad_out is
// given, returns false if tandem's own kernels must compute the layer.
TANDEM_KERNELS(RecurrentMemory recurrent_memory(const KernelContext& context, const RecurrentProblem& problem);
               bool recurrent_pass(const KernelContext& context, const RecurrentProblem& problem,
                                   const RecurrentMemory& memory, const RecurrentPass& pass);)

}}  // namespace tandem::v0
