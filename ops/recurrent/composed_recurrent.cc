#include <algorithm>

#include <tandem/ops/activation.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/elementwise/elementwise_functions.h>
#include <tandem/ops/math.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/recurrent/recurrent_layer.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

// The formulas of recurrent_kernels.h on tensors.
static Tensor sigmoid_element(const Tensor& x) { return sigmoid(x); }
static Tensor tanh_element(const Tensor& x) { return tanh(x); }
static Tensor relu_element(const Tensor& x) { return relu(x); }
static Tensor relu_gradient(const Tensor& grad, const Tensor& h) { return ops::relu_backward(grad, h.detach()); }

namespace ops {

namespace {

template <RecurrentKind kind>
TensorList composed_backward(const std::vector<StepRows>& steps, const LayerOperands& in, const Tensor& grad) {
  constexpr bool kIsLstm = kind == RecurrentKind::kLstm, kIsGru = kind == RecurrentKind::kGru;
  const int64_t rows = in.input.size(0), batch = in.h.size(0), hidden = in.h.size(1);
  const auto rows_from = [](const Tensor& tensor, int64_t begin, int64_t count) {
    return tensor.defined() ? tensor.slice(0, begin, begin + count) : Tensor();
  };
  // A state in which the sequences of a step have new values.
  const auto replaced = [&](const Tensor& state, const Tensor& values) {
    const bool is_all = !values.defined() || values.size(0) == batch;
    return is_all ? values : cat({values, state.slice(0, values.size(0), batch)});
  };
  std::vector<RecurrentValues<Tensor>> values;
  std::vector<Tensor> states;  // h before each step
  const Tensor shares = linear(in.input, in.weight_ih, in.bias_ih);
  Tensor h = in.h, c = in.c;
  for (const auto& [begin, count] : steps) {
    states.push_back(rows_from(h, 0, count));
    const Tensor of_input = rows_from(shares, begin, count), of_h = linear(states.back(), in.weight_hh, in.bias_hh);
    const auto x = [&](int64_t k) { return of_input.slice(1, k * hidden, (k + 1) * hidden); };
    const auto y = [&](int64_t k) { return of_h.slice(1, k * hidden, (k + 1) * hidden); };
    values.push_back(recurrent_values<kind, Tensor>(x, y, states.back(), rows_from(c, 0, count)));
    h = replaced(h, values.back().h);
    c = replaced(c, values.back().c);
  }

  Tensor grad_h = rows_from(grad, rows, batch), grad_c = kIsLstm ? rows_from(grad, rows + batch, batch) : Tensor();
  std::vector<Tensor> input_grads(steps.size()), hidden_grads(steps.size());
  for (size_t i = steps.size(); i-- > 0;) {
    const auto [begin, count] = steps[i];
    const Tensor dh = rows_from(grad_h, 0, count) + rows_from(grad, begin, count);
    const auto d = recurrent_gradients<kind, Tensor>(values[i], states[i], dh, rows_from(grad_c, 0, count));
    std::vector<Tensor> gates(d.x, d.x + num_gates(kind));
    input_grads[i] = hidden_grads[i] = cat(gates, 1);
    if constexpr (kIsGru) {
      gates[2] = d.n_h;
      hidden_grads[i] = cat(gates, 1);
    }
    const Tensor through = matmul(hidden_grads[i], in.weight_hh);
    grad_h = replaced(grad_h, kIsGru ? through + d.h : through);
    grad_c = replaced(grad_c, d.c);
  }
  if (steps.front().begin > steps.back().begin) {  // from the order of the steps to the order of the rows
    for (std::vector<Tensor>* list : {&input_grads, &hidden_grads, &states}) std::reverse(list->begin(), list->end());
  }
  const Tensor input_grad = cat(input_grads), hidden_grad = cat(hidden_grads);
  return {matmul(input_grad, in.weight_ih),
          grad_h,
          grad_c,
          matmul(input_grad.t(), in.input),
          matmul(hidden_grad.t(), cat(states)),
          in.bias_ih.defined() ? input_grad.sum({0}) : Tensor(),
          in.bias_hh.defined() ? hidden_grad.sum({0}) : Tensor()};
}

}  // namespace

TensorList composed_recurrent_backward(RecurrentKind kind, const std::vector<StepRows>& steps, const LayerOperands& in,
                                       const Tensor& grad) {
  TensorList grads;
  visit_kind(kind, [&]<RecurrentKind k>() { grads = composed_backward<k>(steps, in, grad); });
  return grads;
}

}  // namespace ops

}}  // namespace tandem::v0
