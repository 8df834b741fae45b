#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>

#include <tandem/base/trace.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/recurrent/recurrent_layer.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 { namespace ops {

using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;

namespace {

constexpr size_t kFirstParameter = 3;  // of the operands
/// The first parameter of direction d.
constexpr int64_t first_of(int64_t d) { return static_cast<int64_t>(kFirstParameter) + 4 * d; }
constexpr const char* kNames[] = {"input",
                                  "h_0",
                                  "c_0",
                                  "weight_ih",
                                  "weight_hh",
                                  "bias_ih",
                                  "bias_hh",
                                  "weight_ih_reverse",
                                  "weight_hh_reverse",
                                  "bias_ih_reverse",
                                  "bias_hh_reverse"};

int64_t num_rows(const RecurrentProblem& problem) {
  int64_t rows = 0;
  for (const int64_t count : problem.batch_sizes) rows += count;
  return rows;
}

/// The parts of the result of library_layer, or of its gradient, which is row-major.
RecurrentSequence parts_of(const RecurrentProblem& problem, const Tensor& joined) {
  const int64_t row_bytes = joined.size(1) * size_of(joined.dtype());
  const auto row = [&](int64_t i) { return static_cast<std::byte*>(joined.data_ptr()) + i * row_bytes; };
  const int64_t rows = num_rows(problem);
  return {row(0), row(rows), problem.kind == RecurrentKind::kLstm ? row(rows + problem.batch_sizes.front()) : nullptr};
}

/// The first three operands, or tensors of their shapes.
RecurrentSequence sequence_of(const TensorList& tensors) {
  return {tensors[0].data_ptr(), tensors[1].data_ptr(), data_or_null(tensors[2])};
}

/// The memory of each parameter in that of all parameters.
TensorList parameters_in(const Tensor& weights, const RecurrentMemory& memory, const TensorList& operands) {
  TensorList views(operands.size());
  for (size_t i = kFirstParameter; i < operands.size(); ++i) {
    if (!operands[i].defined()) continue;
    const int64_t begin = memory.offsets[i - kFirstParameter];
    views[i] = weights.slice(0, begin, begin + operands[i].numel()).view(operands[i].shape());
  }
  return views;
}

/// A pass of a layer: the memory that its pointers refer to.
struct Pass {
  TensorList in;  ///< input, h, c
  Tensor weights, workspace;

  Pass(const RecurrentMemory& memory, const TensorList& operands) {
    for (size_t i = 0; i < kFirstParameter; ++i) in.push_back(row_major(operands[i]));
    const TensorOptions options = in[0].options();
    weights = empty({memory.weights / size_of(options.dtype)}, options);
    workspace = scratch_memory(memory.workspace, options.device);
    const TensorList views = parameters_in(weights, memory, operands);
    for (size_t i = kFirstParameter; i < operands.size(); ++i) {
      if (operands[i].defined()) primitives::copy(operands[i], views[i]);
    }
  }
};

/// Adds the work of a pass to the trace, in products of the rows and all weights.
void trace_products(const RecurrentProblem& problem, int64_t passes) {
  trace_work(passes * 2 * num_rows(problem) * problem.directions * num_gates(problem.kind) * problem.hidden *
             (problem.input_size + problem.hidden));
}

struct LibraryLayerNode : Node {
  RecurrentProblem problem;
  std::vector<StepRows> steps;
  std::deque<SavedTensor> operands;
  SavedTensor result{*this, "output"}, reserve{*this, "reserve"};

  TensorList backward(BackwardContext& context) override {
    TensorList in;
    for (const SavedTensor& operand : operands) in.push_back(operand.get());
    TensorList grads = context.create_graph() ? TensorList() : by_library(context, in);
    if (grads.empty()) grads = composed(in, context.grad());
    clear_unneeded(context, grads);
    return grads;
  }

 private:
  /// Empty if the library does not compute it.
  TensorList by_library(const BackwardContext& context, const TensorList& in) {
    const KernelContext kernels = kernel_context(in[0].device());
    const RecurrentMemory memory = TANDEM_KERNEL(kernels, recurrent_memory, problem);
    if (memory.weights == 0) return {};
    const Pass pass(memory, in);
    const Tensor out = result.get(), grad = row_major(context.grad()), saved = reserve.get();
    const Tensor space = context.may_overwrite(saved) ? saved : saved.clone();
    TensorList grads;
    for (const Tensor& operand : pass.in) grads.push_back(operand.defined() ? empty_like(operand) : Tensor());
    bool needs_parameters = false;
    for (size_t i = kFirstParameter; i < in.size(); ++i) needs_parameters |= context.needs(static_cast<int>(i));
    const Tensor weights_grad = needs_parameters ? zeros(pass.weights.shape(), pass.weights.options()) : Tensor();
    const RecurrentPass pointers{.in = sequence_of(pass.in),
                                 .out = parts_of(problem, out),
                                 .grad_in = sequence_of(grads),
                                 .grad_out = parts_of(problem, grad),
                                 .weights = pass.weights.data_ptr(),
                                 .weights_grad = data_or_null(weights_grad),
                                 .workspace = data_or_null(pass.workspace),
                                 .reserve = space.data_ptr()};
    if (!TANDEM_KERNEL(kernels, recurrent_pass, problem, memory, pointers)) return {};
    trace_products(problem, needs_parameters ? 2 : 1);
    TensorList all = needs_parameters ? parameters_in(weights_grad, memory, in) : TensorList(in.size());
    std::copy(grads.begin(), grads.end(), all.begin());
    return all;
  }

  TensorList composed(const TensorList& in, const Tensor& grad) const {
    const int64_t rows = num_rows(problem), batch = problem.batch_sizes.front(), hidden = problem.hidden;
    TensorList grads(in.size());
    std::vector<Tensor> state_grads[2];
    for (int64_t d = 0; d < problem.directions; ++d) {
      std::vector<Tensor> parts = {grad.slice(0, 0, rows).slice(1, d * hidden, (d + 1) * hidden)};
      for (int64_t row = rows; row < grad.size(0); row += batch) {
        parts.push_back(grad.slice(0, row, row + batch).reshape({problem.directions, batch, hidden}).select(0, d));
      }
      const std::vector<StepRows> reversed(steps.rbegin(), steps.rend());
      const TensorList of_one = composed_recurrent_backward(problem.kind, d == 0 ? steps : reversed,
                                                            operands_of_direction(in, d), cat(parts));
      grads[0] = d == 0 ? of_one[0] : add(grads[0], of_one[0]);
      for (size_t i : {0, 1}) state_grads[i].push_back(of_one[1 + i]);
      std::copy(of_one.begin() + kFirstParameter, of_one.end(), grads.begin() + first_of(d));
    }
    grads[1] = stack(state_grads[0]);
    if (in[2].defined()) grads[2] = stack(state_grads[1]);
    return grads;
  }
};

}  // namespace

LayerOperands operands_of_direction(const TensorList& operands, int64_t d) {
  const Tensor* const p = operands.begin() + first_of(d);
  const Tensor c = operands[2].defined() ? operands[2].select(0, d) : Tensor();
  return {operands[0], operands[1].select(0, d), c, p[0], p[1], p[2], p[3]};
}

Tensor library_layer(const char* op, RecurrentKind kind, const TensorList& operands,
                     const std::vector<StepRows>& steps) {
  const Tensor &input = operands[0], &h = operands[1];
  RecurrentProblem problem{.kind = kind,
                           .dtype = input.dtype(),
                           .tf32 = cuda::allow_tf32(),
                           .is_training = std::any_of(operands.begin(), operands.end(),
                                                      [](const Tensor& t) { return autograd::should_record(t); }),
                           .has_biases = operands[kFirstParameter + 2].defined(),
                           .directions = h.size(0),
                           .input_size = input.size(1),
                           .hidden = h.size(2),
                           .batch_sizes = {}};
  for (const StepRows& step : steps) problem.batch_sizes.push_back(step.count);
  const KernelContext context = kernel_context(input.device());
  const RecurrentMemory memory = TANDEM_KERNEL(context, recurrent_memory, problem);
  if (memory.weights == 0) return {};

  const int64_t states = kind == RecurrentKind::kLstm ? 2 : 1;
  const Tensor result =
      empty({input.size(0) + states * h.size(1), problem.directions * problem.hidden}, input.options());
  const Pass pass(memory, operands);
  const Tensor reserve = scratch_memory(memory.reserve, input.device());
  const RecurrentPass pointers{.in = sequence_of(pass.in),
                               .out = parts_of(problem, result),
                               .weights = pass.weights.data_ptr(),
                               .workspace = data_or_null(pass.workspace),
                               .reserve = data_or_null(reserve)};
  if (!TANDEM_KERNEL(context, recurrent_pass, problem, memory, pointers)) return {};
  trace_products(problem, 1);
  if (auto* node = autograd::record_list<LibraryLayerNode>(op, result, operands)) {
    for (size_t i = 0; i < operands.size(); ++i) node->operands.emplace_back(*node, kNames[i]).save(operands[i]);
    node->result.save(result);
    node->reserve.save(reserve);
    node->problem = std::move(problem);
    node->steps = steps;
  }
  return result;
}

}}}  // namespace tandem::v0::ops
