#include <tandem/base/math.h>
#include <tandem/ops/recurrent.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include <tandem/base/host_memory.h>
#include <tandem/base/trace.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/matmul/product.h>
#include <tandem/ops/random.h>
#include <tandem/ops/recurrent/recurrent_layer.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;

namespace {

/// The address of a row of a row-major matrix; null for an undefined tensor.
void* address_of(const Tensor& matrix, int64_t row) {
  if (!matrix.defined()) return nullptr;
  return static_cast<std::byte*>(matrix.data_ptr()) + row * matrix.size(1) * size_of(matrix.dtype());
}

/// out = a @ weight^T + beta * out for the rows of each step, without an allocation per step.
class StepProducts {
 public:
  StepProducts(const KernelContext& context, const Tensor& weight, const std::vector<StepRows>& steps,
               const Tensor& out)
      : context_(context), weight_(row_major(weight)), out_(out) {
    int64_t bytes = 0, rows = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
      rows += steps[i].count;
      if (i > 0 && steps[i].count == steps[i - 1].count) continue;
      bytes = std::max(bytes, TANDEM_KERNEL(context_, gemm_workspace_bytes, weight.dtype(), 1, steps[i].count, n(), k(),
                                            left(nullptr), right()));
    }
    scratch_ = scratch_memory(bytes, weight.device());
    trace_work(2 * rows * n() * k());
  }
  void run(int64_t rows, const void* a, double beta) const {
    TANDEM_KERNEL(context_, gemm, weight_.dtype(), 1, rows, n(), k(), 1, left(a), nullptr, right(), nullptr, beta,
                  {nullptr, false, out_.dtype() != weight_.dtype()}, data_or_null(scratch_), out_.data_ptr());
  }

 private:
  int64_t n() const { return weight_.size(0); }
  int64_t k() const { return weight_.size(1); }
  MatrixOperand left(const void* a) const { return {a, std::max<int64_t>(1, k()), false}; }
  MatrixOperand right() const { return {weight_.data_ptr(), std::max<int64_t>(1, k()), true}; }

  const KernelContext& context_;
  Tensor weight_, out_, scratch_;
};

struct RecurrentNode : Node {
  SavedTensor input{*this, "input"}, h{*this, "h_0"}, c{*this, "c_0"};
  SavedTensor weight_ih{*this, "weight_ih"}, weight_hh{*this, "weight_hh"};
  SavedTensor bias_ih{*this, "bias_ih"}, bias_hh{*this, "bias_hh"};
  SavedTensor gates{*this, "gates"}, h_before{*this, "h"}, kept{*this, "state"};
  RecurrentKind kind = RecurrentKind::kLstm;
  std::vector<StepRows> steps;

  TensorList backward(BackwardContext& context) override {
    const LayerOperands in{input.get(),     h.get(),       c.get(),      weight_ih.get(),
                           weight_hh.get(), bias_ih.get(), bias_hh.get()};
    if (context.create_graph()) {
      TensorList grads = composed_recurrent_backward(kind, steps, in, context.grad());
      clear_unneeded(context, grads);
      return grads;
    }
    const KernelContext kernels = kernel_context(in.input.device());
    const Tensor activations = gates.get(), states = h_before.get(), values = kept.get();
    const Tensor grad = row_major(context.grad());
    const int64_t rows = in.input.size(0), batch = in.h.size(0);
    const DType dtype = grad.dtype();
    const bool is_gru = kind == RecurrentKind::kGru;
    const auto state_grad = [&](int64_t begin) {
      return row_major_copy(grad.slice(0, begin, begin + batch), activations.dtype());
    };
    const Tensor grad_h = state_grad(rows);
    const Tensor grad_c = kind == RecurrentKind::kLstm ? state_grad(rows + batch) : Tensor();
    const Tensor input_grad = empty(activations.shape(), grad.options());
    const Tensor hidden_grad = is_gru ? empty(activations.shape(), grad.options()) : input_grad;
    {  // releases the scratch memory of the products before the gradients of the weights
      const StepProducts products(kernels, in.weight_hh.t(), steps, grad_h);
      for (size_t i = steps.size(); i-- > 0;) {
        const auto [begin, count] = steps[i];
        const RecurrentBackwardStep step{kind,
                                         dtype,
                                         count,
                                         in.h.size(1),
                                         address_of(activations, begin),
                                         address_of(states, begin),
                                         address_of(values, begin),
                                         address_of(grad, begin),
                                         grad_h.data_ptr(),
                                         data_or_null(grad_c),
                                         address_of(input_grad, begin),
                                         address_of(hidden_grad, begin)};
        TANDEM_KERNEL(kernels, recurrent_step_backward, step);
        products.run(count, step.hidden_grad, is_gru ? 1 : 0);
      }
    }

    TensorList grads(num_inputs());
    const auto deliver = [&](int i, auto&& gradient) {
      if (!context.needs(i)) return;
      grads[static_cast<size_t>(i)] = gradient();
      context.notify_ready(i, grads[static_cast<size_t>(i)]);
    };
    const auto product = [&](int i, const Tensor& like, Matrix a, Matrix b) {
      deliver(i, [&] { return matmul_gradient(kernels, context, i, like.shape(), dtype, std::move(a), std::move(b)); });
    };
    product(3, in.weight_ih, matrix(input_grad).t(), matrix(in.input));
    product(4, in.weight_hh, matrix(hidden_grad).t(), matrix(states));
    deliver(5, [&] { return sum_rows_gradient(context, 5, dtype, matrix(input_grad)); });
    deliver(6, [&] { return sum_rows_gradient(context, 6, dtype, matrix(hidden_grad)); });
    product(0, in.input, matrix(input_grad), matrix(in.weight_ih));
    deliver(1, [&] { return converted(grad_h, dtype); });
    deliver(2, [&] { return converted(grad_c, dtype); });
    return grads;
  }
};

/// A layer in one direction. The result has the rows of the output, then h after the last step, and for an LSTM c.
Tensor recurrent_layer(const char* op, RecurrentKind kind, const LayerOperands& in, std::vector<StepRows> steps) {
  const KernelContext context = kernel_context(in.input.device());
  const TensorOptions options = in.input.options(),
                      wide{is_half(options.dtype) ? kFloat32 : options.dtype, options.device};
  const int64_t rows = in.input.size(0), batch = in.h.size(0), hidden = in.h.size(1), width = num_gates(kind) * hidden;
  const bool is_lstm = kind == RecurrentKind::kLstm, has_kept = is_lstm || kind == RecurrentKind::kGru;
  const bool is_recorded =
      autograd::should_record(in.input, in.h, in.c, in.weight_ih, in.weight_hh, in.bias_ih, in.bias_hh);

  const Tensor gates = empty({rows, width}, wide);
  multiply(context, matrix(in.input), matrix(in.weight_ih).t(), 1, 0, gates);
  const Tensor result = empty({rows + (is_lstm ? 2 : 1) * batch, hidden}, options);
  const Tensor h = result.slice(0, rows, rows + batch);
  primitives::copy(in.h, h);
  Tensor c;
  if (is_lstm) {
    c = wide.dtype == options.dtype ? result.slice(0, rows + batch, rows + 2 * batch) : empty({batch, hidden}, wide);
    primitives::copy(in.c, c);
  }
  const auto dense_bias = [&](const Tensor& bias) {
    return bias.defined() ? row_major(bias) : zeros({width}, options);
  };
  const Tensor bias_ih = dense_bias(in.bias_ih), bias_hh = dense_bias(in.bias_hh);
  // Unless backward needs the values of all steps, each step overwrites those of the step before.
  const Tensor h_before = empty({is_recorded ? rows : batch, hidden}, options);
  const Tensor kept = has_kept ? empty({is_recorded ? rows : batch, hidden}, wide) : Tensor();
  const Tensor hidden_products = empty({batch, width}, wide);
  const StepProducts products(context, in.weight_hh, steps, hidden_products);
  for (const auto& [begin, count] : steps) {
    products.run(count, h.data_ptr(), 0);
    const int64_t saved_row = is_recorded ? begin : 0;
    const RecurrentStep step{kind,
                             options.dtype,
                             count,
                             hidden,
                             bias_ih.data_ptr(),
                             bias_hh.data_ptr(),
                             hidden_products.data_ptr(),
                             address_of(gates, begin),
                             h.data_ptr(),
                             data_or_null(c),
                             address_of(h_before, saved_row),
                             address_of(kept, saved_row),
                             address_of(result, begin)};
    TANDEM_KERNEL(context, recurrent_step, step);
  }
  if (is_lstm && c.dtype() != options.dtype) primitives::copy(c, result.slice(0, rows + batch, rows + 2 * batch));

  if (auto* node = autograd::record<RecurrentNode>(op, result, in.input, in.h, in.c, in.weight_ih, in.weight_hh,
                                                   in.bias_ih, in.bias_hh)) {
    node->input.save(in.input);
    node->h.save(in.h);
    node->c.save(in.c);
    node->weight_ih.save(in.weight_ih);
    node->weight_hh.save(in.weight_hh);
    node->bias_ih.save(in.bias_ih);
    node->bias_hh.save(in.bias_hh);
    node->gates.save(gates);
    node->h_before.save(h_before);
    node->kept.save(kept);
    node->kind = kind;
    node->steps = std::move(steps);
  }
  return result;
}

/// The tensors of a call in the order of the arguments: input, states, parameters.
struct RecurrentCall {
  const char* op;
  RecurrentKind kind;
  std::vector<std::string> names = {};
  std::vector<Tensor> tensors = {};

  void add(std::string name, const Tensor& tensor) {
    names.push_back(std::move(name));
    tensors.push_back(tensor);
    cast_for(CastPolicy::kLowPrecision, {&tensors.back()});
  }
  void add_states(const std::vector<Tensor>& hx) {
    const bool is_lstm = kind == RecurrentKind::kLstm;
    TANDEM_CHECK(ValueError, !is_lstm || hx.size() == 2, op, ": hx has ", hx.size(), " tensors, expected 2, h and c");
    for (size_t i = 0; i < hx.size(); ++i) add(is_lstm ? str("hx[", i, ']') : "hx", hx[i]);
  }
  CallOperands operands() const {
    CallOperands result(op);
    for (size_t i = 0; i < tensors.size(); ++i) result.operands.push_back({names[i].c_str(), tensors[i]});
    return result;
  }
  void check_shape(size_t i, const Shape& shape) const {
    if (tensors[i].shape() != shape) operands().require(false, names[i], " must have shape ", shape);
  }
  /// Checks the parameters of a layer in one direction, of which tensors[first] is the first.
  void check_parameters(size_t first, size_t count, int64_t input_size, int64_t hidden) const {
    const int64_t width = num_gates(kind) * hidden;
    check_shape(first, {width, input_size});
    check_shape(first + 1, {width, hidden});
    for (size_t i = first + 2; i < first + count; ++i) check_shape(i, {width});
  }
  size_t num_states() const { return kind == RecurrentKind::kLstm ? 2 : 1; }
  /// CPU kernels have no half types: the call computes in float32 and rounds its results. Returns the dtype of results.
  DType widen() {
    const DType dtype = tensors[0].dtype();
    if (is_half(dtype) && tensors[0].device().is_cpu()) {
      for (Tensor& tensor : tensors) tensor = to(tensor, kFloat32);
    }
    return dtype;
  }
  /// weight_ih, weight_hh, bias_ih and bias_hh, of which tensors[first] is the first; without biases two are undefined.
  TensorList parameters(size_t first, bool has_biases) const {
    const auto bias = [&](size_t i) { return has_biases ? tensors[first + i] : Tensor(); };
    return {tensors[first], tensors[first + 1], bias(2), bias(3)};
  }
};

/// The steps of packed sequences. Throws unless batch_sizes describes `rows` rows.
std::vector<StepRows> packed_steps(const char* op, const Tensor& batch_sizes, int64_t rows) {
  TANDEM_CHECK(ValueError, batch_sizes.device().is_cpu() && batch_sizes.dtype() == kInt64 && batch_sizes.dim() == 1, op,
               ": batch_sizes is ", describe(batch_sizes), ", expected int64 [T] on the CPU");
  std::vector<StepRows> steps;
  int64_t begin = 0, last = rows;
  for (const int64_t count : batch_sizes.to_vector<int64_t>()) {
    TANDEM_CHECK(ValueError, count >= 1 && count <= last, op, ": batch_sizes[", steps.size(), "] is ", count,
                 ", expected numbers of at least 1 that do not increase");
    steps.push_back({begin, last = count});
    begin = saturating_add(begin, count);
  }
  TANDEM_CHECK(ShapeError, begin == rows, op, ": batch_sizes add up to ", begin, ", but the input has ", rows, " rows");
  return steps;
}

LstmResult run_layers(const char* op, RecurrentKind kind, const Tensor& input, const std::vector<Tensor>& hx,
                      const std::vector<Tensor>& params, const RecurrentOptions& options) {
  const int64_t num_layers = options.num_layers, directions = options.bidirectional ? 2 : 1;
  const size_t per_direction = options.has_biases ? 4 : 2;
  const int64_t num_params = saturating_mul(num_layers, directions * static_cast<int64_t>(per_direction));
  TANDEM_CHECK(ValueError, num_layers >= 1, op, ": num_layers is ", num_layers, ", expected at least 1");
  TANDEM_CHECK(ValueError, options.dropout >= 0 && options.dropout <= 1, op, ": dropout is ", options.dropout,
               ", expected 0 <= dropout <= 1");
  TANDEM_CHECK(ValueError, static_cast<int64_t>(params.size()) == num_params, op, ": params has ", params.size(),
               " tensors, expected ", num_params, ", ", per_direction, " for each direction of each layer");
  RecurrentCall call{op, kind};
  call.add("input", input);
  call.add_states(hx);
  for (size_t i = 0; i < params.size(); ++i) call.add(str("params[", i, ']'), params[i]);
  const Call checked(call.operands(), DTypes::kSameFloating);

  const bool is_packed = options.batch_sizes.defined();
  const int64_t dims = is_packed ? 2 : 3;
  checked.require(call.tensors[0].dim() == dims && call.tensors[1].dim() == 3,
                  is_packed ? "input must be [rows, input size] and hx [layers, N, H]"
                            : "input must be [T, N, input size] and hx [layers, N, H]");
  const bool swaps = options.batch_first && !is_packed;
  const int64_t input_size = input.size(-1), hidden = call.tensors[1].size(2);
  std::vector<StepRows> steps;
  int64_t length = 1;
  if (is_packed) {
    steps = packed_steps(op, options.batch_sizes, input.size(0));
  } else {
    length = input.size(swaps ? 1 : 0);
    with_host_memory(op, saturating_mul(length, sizeof(StepRows)), [&] { steps.resize(static_cast<size_t>(length)); });
    for (int64_t t = 0, n = input.size(swaps ? 0 : 1); t < length; ++t) steps[static_cast<size_t>(t)] = {t * n, n};
  }
  checked.require(!steps.empty(), "input must have at least one step");
  const int64_t batch = steps.front().count;
  for (size_t i = 1; i <= call.num_states(); ++i) call.check_shape(i, {num_layers * directions, batch, hidden});
  const auto first_parameter = [&](int64_t index) {
    return 1 + call.num_states() + static_cast<size_t>(index) * per_direction;
  };
  for (int64_t i = 0; i < num_layers * directions; ++i) {
    call.check_parameters(first_parameter(i), per_direction, i < directions ? input_size : directions * hidden, hidden);
  }

  const DType dtype = call.widen();
  Tensor rows = call.tensors[0];
  if (swaps) rows = rows.transpose(0, 1);
  if (!is_packed) rows = rows.reshape({length * batch, input_size});
  const std::vector<StepRows> reversed(steps.rbegin(), steps.rend());
  const int64_t num_rows = rows.size(0);
  std::vector<Tensor> h_n, c_n;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    if (layer > 0 && options.train && options.dropout > 0) rows = dropout(rows, options.dropout, true);
    const auto state = [&](size_t k) {  // [directions, N, H]
      return k > call.num_states() ? Tensor() : call.tensors[k].slice(0, layer * directions, (layer + 1) * directions);
    };
    TensorList operands = {rows, state(1), state(2)};
    for (int64_t i = layer * directions; i < (layer + 1) * directions; ++i) {
      for (const Tensor& p : call.parameters(first_parameter(i), options.has_biases)) operands.push_back(p);
    }
    // The parts of a result [rows + num_states N, k H]: the output and the states [k, N, H].
    const auto take = [&](const Tensor& result, int64_t k) {
      const auto states = [&](int64_t i) {
        return result.slice(0, num_rows + i * batch, num_rows + (i + 1) * batch).view({k, batch, hidden});
      };
      h_n.push_back(states(0));
      if (kind == RecurrentKind::kLstm) c_n.push_back(states(1));
      return result.slice(0, 0, num_rows);
    };
    if (const Tensor result = library_layer(op, kind, operands, steps); result.defined()) {
      rows = take(result, directions);
      continue;
    }
    std::vector<Tensor> outputs;
    for (int64_t d = 0; d < directions; ++d) {
      outputs.push_back(
          take(recurrent_layer(op, kind, operands_of_direction(operands, d), d == 0 ? steps : reversed), 1));
    }
    rows = directions == 1 ? outputs[0] : cat(outputs, 1);
  }
  if (!is_packed) rows = rows.view({length, batch, directions * hidden});
  if (swaps) rows = rows.transpose(0, 1);
  return {to(rows, dtype), to(cat(h_n), dtype), c_n.empty() ? Tensor() : to(cat(c_n), dtype)};
}

RecurrentResult without_cells(LstmResult result) { return {std::move(result.output), std::move(result.h_n)}; }

LstmCellResult run_cell(const char* op, RecurrentKind kind, const Tensor& input, const std::vector<Tensor>& hx,
                        const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh) {
  RecurrentCall call{op, kind};
  call.add("input", input);
  call.add_states(hx);
  call.add("w_ih", w_ih);
  call.add("w_hh", w_hh);
  const bool has_biases = b_ih.defined() || b_hh.defined();
  if (has_biases) {
    call.add("b_ih", b_ih);
    call.add("b_hh", b_hh);
  }
  const Call checked(call.operands(), DTypes::kSameFloating);
  checked.require(call.tensors[0].dim() == 2 && call.tensors[1].dim() == 2,
                  "input must be [N, input size] and hx [N, H]");
  const int64_t batch = input.size(0), hidden = call.tensors[1].size(1);
  const size_t first = 1 + call.num_states();
  for (size_t i = 1; i < first; ++i) call.check_shape(i, {batch, hidden});
  call.check_parameters(first, has_biases ? 4 : 2, input.size(1), hidden);

  const DType dtype = call.widen();
  const Tensor c = kind == RecurrentKind::kLstm ? call.tensors[2] : Tensor();
  const TensorList p = call.parameters(first, has_biases);
  const Tensor result =
      recurrent_layer(op, kind, {call.tensors[0], call.tensors[1], c, p[0], p[1], p[2], p[3]}, {{0, batch}});
  return {to(result.slice(0, 0, batch), dtype),
          c.defined() ? to(result.slice(0, 2 * batch, 3 * batch), dtype) : Tensor()};
}

}  // namespace

LstmResult lstm(const Tensor& input, const std::vector<Tensor>& hx, const std::vector<Tensor>& params,
                const RecurrentOptions& options) {
  return run_layers("lstm", RecurrentKind::kLstm, input, hx, params, options);
}
RecurrentResult gru(const Tensor& input, const Tensor& hx, const std::vector<Tensor>& params,
                    const RecurrentOptions& options) {
  return without_cells(run_layers("gru", RecurrentKind::kGru, input, {hx}, params, options));
}
RecurrentResult rnn_tanh(const Tensor& input, const Tensor& hx, const std::vector<Tensor>& params,
                         const RecurrentOptions& options) {
  return without_cells(run_layers("rnn_tanh", RecurrentKind::kTanh, input, {hx}, params, options));
}
RecurrentResult rnn_relu(const Tensor& input, const Tensor& hx, const std::vector<Tensor>& params,
                         const RecurrentOptions& options) {
  return without_cells(run_layers("rnn_relu", RecurrentKind::kRelu, input, {hx}, params, options));
}

LstmCellResult lstm_cell(const Tensor& input, const std::vector<Tensor>& hx, const Tensor& w_ih, const Tensor& w_hh,
                         const Tensor& b_ih, const Tensor& b_hh) {
  return run_cell("lstm_cell", RecurrentKind::kLstm, input, hx, w_ih, w_hh, b_ih, b_hh);
}
Tensor gru_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                const Tensor& b_hh) {
  return run_cell("gru_cell", RecurrentKind::kGru, input, {hx}, w_ih, w_hh, b_ih, b_hh).h;
}
Tensor rnn_tanh_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                     const Tensor& b_hh) {
  return run_cell("rnn_tanh_cell", RecurrentKind::kTanh, input, {hx}, w_ih, w_hh, b_ih, b_hh).h;
}
Tensor rnn_relu_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                     const Tensor& b_hh) {
  return run_cell("rnn_relu_cell", RecurrentKind::kRelu, input, {hx}, w_ih, w_hh, b_ih, b_hh).h;
}

}}  // namespace tandem::v0
