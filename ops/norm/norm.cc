#include <tandem/ops/norm.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <tandem/autograd/checkpoint.h>
#include <tandem/base/trace.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/math.h>
#include <tandem/ops/norm/norm_kernels.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;

namespace {

/// `tensor` in row-major order, or undefined.
Tensor row_major_or_none(const Tensor& tensor) { return tensor.defined() ? row_major(tensor) : Tensor(); }

/// The memory for the gradient of parameter i: its leaf's slot, or a new tensor.
BackwardContext::GradBuffer slot_or_new(BackwardContext& context, int i, const Shape& shape, DType dtype) {
  BackwardContext::GradBuffer buffer = context.grad_buffer(i);
  if (!buffer.tensor.defined()) buffer = {empty(shape, {dtype, context.grad().device()}), false};
  return buffer;
}

/// The recorded gradient of (x - mean) * rstd over `dims` for the cotangent g. An undefined mean or rstd depends on x,
/// a defined one is constant. Sets `normal` to the recorded (x - mean) * rstd.
Tensor recorded_gradient(const Tensor& x, const Tensor& g, const Shape& dims, double eps, Tensor mean_value,
                         Tensor rstd, Tensor& normal) {
  const bool fixed = mean_value.defined();
  const Tensor centred = sub(x, fixed ? mean_value : mean(x, dims, true));
  if (!fixed) rstd = rsqrt(add(mean(mul(centred, centred), dims, true), eps));
  normal = mul(centred, rstd);
  if (fixed) return mul(g, rstd);
  const Tensor along = mul(normal, mean(mul(g, normal), dims, true));
  return mul(rstd, sub(sub(g, mean(g, dims, true)), along));
}

// --- batch norm ----------------------------------------------------------------------------------

/// The operation after normalization.
enum class Tail : int8_t { kNone, kRelu, kAddRelu };

struct BatchNormArguments {
  Tensor input, residual, running_mean, running_var, weight, bias;
  bool training;
  double momentum, eps;
  std::shared_ptr<BatchNormExchange> exchange = nullptr;
};

BatchNormShape batch_norm_shape(const Tensor& input) {
  const Shape& shape = input.shape();
  const int64_t channels = shape[1];
  int64_t inner = 1;
  for (size_t d = 2; d < shape.size(); ++d) inner *= shape[d];
  const bool channels_last = inner == 1 || (is_channels_last(input) && !(channels == 1 && input.is_contiguous()));
  return {shape[0], channels, inner, channels_last};
}

/// The tensor in the memory order of `shape`.
Tensor in_order(const Tensor& tensor, const BatchNormShape& shape) {
  return shape.channels_last && tensor.dim() == 4 ? ops::channels_last(tensor) : row_major(tensor);
}
Tensor empty_in_order(const Tensor& like, const BatchNormShape& shape) {
  return shape.channels_last && like.dim() == 4 ? empty_channels_last(like.shape(), like.options())
                                                : empty(like.shape(), like.options());
}

void check_eps(const char* op, double eps) {
  TANDEM_CHECK(ValueError, eps >= 0 && std::isfinite(eps), op, ": eps is ", eps, ", expected a finite number >= 0");
}

/// The dtype of weight and bias.
DType parameter_dtype(const BatchNormArguments& a) {
  return a.weight.defined() ? a.weight.dtype() : a.bias.defined() ? a.bias.dtype() : a.input.dtype();
}

KernelContext check_batch_norm(const char* op, const BatchNormArguments& a, Tail tail) {
  std::vector<Operand> operands = {{"input", a.input}};
  if (tail == Tail::kAddRelu) operands.push_back({"residual", a.residual});
  const size_t of_input_dtype = operands.size();
  const Operand optional[] = {
      {"running_mean", a.running_mean}, {"running_var", a.running_var}, {"weight", a.weight}, {"bias", a.bias}};
  for (const Operand& operand : optional) {
    if (operand.tensor.defined()) operands.push_back(operand);
  }
  KernelContext context = check_same_device(op, operands);
  check_floating(op, operands.front());
  TANDEM_CHECK(ShapeError, a.input.dim() >= 2, operand_error(op, "input must be [N, C] or [N, C, ...]", operands));
  TANDEM_CHECK(ShapeError, of_input_dtype == 1 || a.residual.shape() == a.input.shape(),
               operand_error(op, "input and residual must have the same shape", operands));
  TANDEM_CHECK(DTypeError, of_input_dtype == 1 || a.residual.dtype() == a.input.dtype(),
               operand_error(op, "input and residual must have the same dtype", operands));
  const Shape per_channel = {a.input.shape()[1]};
  for (const Operand& operand : optional) {
    if (!operand.tensor.defined()) continue;
    TANDEM_CHECK(ShapeError, operand.tensor.shape() == per_channel,
                 operand_error(op, str(operand.name, " must have shape ", per_channel), operands));
    const bool is_running = &operand - optional < 2, may_be_float32 = is_half(a.input.dtype());
    const DType dtype = operand.tensor.dtype();
    const bool fits = dtype == a.input.dtype() || (may_be_float32 && dtype == kFloat32);
    TANDEM_CHECK(DTypeError, is_running ? is_floating_point(dtype) : fits && dtype == parameter_dtype(a),
                 operand_error(op,
                               str(operand.name, is_running       ? " must be floating"
                                                 : may_be_float32 ? " must have input's dtype or be float32"
                                                                  : " must have input's dtype"),
                               operands));
    TANDEM_CHECK(
        StateError, !is_running || !a.training || per_channel[0] < 2 || operand.tensor.strides()[0] != 0,
        operand_error(op, str(operand.name, " is expanded, its elements share memory: clone it first"), operands));
  }
  check_eps(op, a.eps);
  TANDEM_CHECK(ValueError, a.momentum >= 0 && a.momentum <= 1, op, ": momentum is ", a.momentum,
               ", expected a number from 0 to 1");
  TANDEM_CHECK(StateError, a.training || (a.running_mean.defined() && a.running_var.defined()), op,
               ": without training, running_mean and running_var must be defined");
  if (a.training && !a.exchange) {
    const int64_t values = a.input.shape()[1] == 0 ? 2 : a.input.num_elements() / a.input.shape()[1];
    TANDEM_CHECK(ShapeError, values >= 2,
                 operand_error(op, str("training needs at least two values per channel, got ", values), operands));
  }
  return context;
}

/// Mean and 1 / sqrt(var + eps) of each channel, float64 [C], and the number of values per channel from which they were
/// computed (0: they are constants).
struct BatchStatistics {
  Tensor mean, rstd;
  double count = 0;
};

/// Row `row` of a float64 [rows, C] tensor.
double* row_of(const Tensor& rows, int64_t row) { return rows.data<double>() + row * rows.shape()[1]; }

/// running = (1 - momentum) * running + momentum * batch / divisor.
void update_running(const char* op, const KernelContext& context, const Tensor& running, double momentum,
                    double divisor, const Tensor& batch) {
  const Tensor dense = row_major(running);
  TANDEM_KERNEL(context, batch_norm_running, running.dtype(), running.num_elements(), momentum, divisor,
                batch.data<double>(), dense.data_ptr());
  if (!dense.is_same(running)) primitives::copy(dense, running);
  autograd::end_in_place(op, running);
}

/// Computes means and sums of squared deviations of the batch, or of the batches of all ranks; returns the number of
/// values per channel.
double batch_moments(const char* op, const KernelContext& context, const BatchNormArguments& a,
                     const BatchNormShape& shape, const Tensor& dense, const Tensor& workspace, double* mean,
                     double* squares) {
  const double local_count = shape.channels == 0 ? 0 : static_cast<double>(shape.per_channel());
  const auto local = [&](double* local_mean, double* local_squares) {
    TANDEM_KERNEL(context, batch_norm_moments, a.input.dtype(), shape, dense.data_ptr(), data_or_null(workspace),
                  local_mean, local_squares);
  };
  if (!a.exchange) {
    local(mean, squares);
    return local_count;
  }
  const Tensor moments = empty({3, shape.channels}, {kFloat64, context.device});  // counts, means, squared deviations
  primitives::fill(moments.slice(0, 0, 1), local_count);
  local(row_of(moments, 1), row_of(moments, 2));
  const Tensor gathered = row_major(a.exchange->gather(moments));
  TANDEM_KERNEL(context, batch_norm_join, gathered.shape()[0], shape.channels, gathered.data<double>(), mean, squares);
  // Counts are read on the CPU, because reading them from a GPU would wait for the GPU.
  const Tensor counts = context.device.is_cpu()
                            ? gathered.slice(1, 0, 1).slice(2, 0, std::min<int64_t>(1, shape.channels))
                            : a.exchange->gather(full({1}, local_count, {kFloat64}));
  double count = 0;
  for (const double one : counts.to_vector<double>()) count += one;
  TANDEM_CHECK(ShapeError, count >= 2 || shape.channels == 0, op,
               ": training needs at least two values per channel, all "
               "ranks together have ",
               count);
  return count;
}

BatchStatistics batch_statistics(const char* op, const KernelContext& context, const BatchNormArguments& a,
                                 const BatchNormShape& shape, const Tensor& dense, const Tensor& workspace) {
  const int64_t channels = shape.channels;
  const TensorOptions options = {kFloat64, context.device};
  BatchStatistics result{empty({channels}, options), empty({channels}, options)};
  const Tensor squares = empty({channels}, options);
  if (a.training) {
    const bool updates = !autograd::is_recomputing();  // the first run of a checkpoint has updated
    result.count =
        batch_moments(op, context, a, shape, dense, workspace, result.mean.data<double>(), squares.data<double>());
    if (a.running_mean.defined() && updates) update_running(op, context, a.running_mean, a.momentum, 1, result.mean);
    if (a.running_var.defined() && updates)
      update_running(op, context, a.running_var, a.momentum, result.count - 1, squares);
  } else {
    primitives::copy(a.running_mean, result.mean);
    primitives::copy(a.running_var, squares);
  }
  TANDEM_KERNEL(context, batch_norm_rstd, channels, a.training ? result.count : 1.0, a.eps, squares.data<double>(),
                result.rstd.data<double>());
  return result;
}

int64_t workspace_bytes(const KernelContext& context, const BatchNormShape& shape) {
  return TANDEM_KERNEL(context, batch_norm_workspace_bytes, shape);
}

/// Inputs: input, weight, bias, and residual if there is one.
struct BatchNormNode : Node {
  SavedTensor input{*this, "input"}, weight{*this, "weight"}, bias{*this, "bias"}, output{*this, "output"};
  SavedTensor mean{*this, "mean"}, rstd{*this, "rstd"};
  double count = 0, eps = 0;
  Tail tail = Tail::kNone;
  DType parameters = kFloat32;  ///< dtype of weight and bias
  std::shared_ptr<BatchNormExchange> exchange;

  TensorList backward(BackwardContext& context) override {
    return context.create_graph() ? recorded_gradients(context) : gradients(context);
  }

 private:
  TensorList gradients(BackwardContext& context) {
    TensorList grads(num_inputs());
    const Tensor x = input.get(), means = mean.get(), rstds = rstd.get();
    const BatchNormShape shape = batch_norm_shape(x);
    const Tensor dense = in_order(x, shape), grad = in_order(context.grad(), shape);
    const Tensor weights = row_major_or_none(weight.get()), biases = row_major_or_none(bias.get());
    const Tensor out = output.get();
    const KernelContext kernels = kernel_context(x.device());
    const Tensor workspace = scratch_memory(workspace_bytes(kernels, shape), x.device());
    const BatchNormChannels channels = {means.data<double>(), rstds.data<double>(), data_or_null(weights),
                                        data_or_null(biases), parameters != x.dtype()};
    const ReluMask mask = tail == Tail::kNone   ? ReluMask::kNone
                          : tail == Tail::kRelu ? ReluMask::kInput
                                                : ReluMask::kOutput;
    const Tensor sums = empty({2, shape.channels}, {kFloat64, x.device()});
    // With a residual, the masked gradient is the residual's gradient; it is stored and read from then on in place of
    // the mask.
    const Tensor counted = tail == Tail::kAddRelu ? empty_in_order(x, shape) : Tensor();
    TANDEM_KERNEL(kernels, batch_norm_backward_sums, x.dtype(), shape, channels, mask, dense.data_ptr(),
                  data_or_null(out), grad.data_ptr(), data_or_null(workspace), sums.data<double>(),
                  counted.defined() ? counted.data_ptr() : nullptr);
    const auto parameter = [&](int i, int64_t row, const double* factor) {
      if (!context.needs(i)) return;
      const auto [slot, accumulate] = slot_or_new(context, i, {shape.channels}, parameters);
      TANDEM_KERNEL(kernels, batch_norm_parameter_gradient, slot.dtype(), shape.channels, row_of(sums, row), factor,
                    accumulate, slot.data_ptr());
      grads[static_cast<size_t>(i)] = slot;
    };
    parameter(1, 1, channels.rstd);
    parameter(2, 0, nullptr);
    if (exchange) exchange->sum(sums);
    trace_work(0, (counted.defined() ? 4 : 2) * x.num_bytes() + (context.needs(0) ? 3 : 0) * x.num_bytes());
    if (context.needs(0)) {
      grads[0] = empty_in_order(x, shape);
      const bool masked = counted.defined();
      TANDEM_KERNEL(kernels, batch_norm_backward, x.dtype(), shape, channels, masked ? ReluMask::kNone : mask,
                    dense.data_ptr(), nullptr, masked ? counted.data_ptr() : grad.data_ptr(), sums.data<double>(),
                    count, data_or_null(workspace), grads[0].data_ptr());
    }
    if (counted.defined() && context.needs(3)) grads[3] = counted;
    return grads;
  }

  /// The gradients, composed of operations.
  TensorList recorded_gradients(BackwardContext& context) {
    TANDEM_CHECK(StateError, !exchange, name(), ": its backward cannot be recorded (create_graph)");
    TensorList grads(num_inputs());
    // Computed in the dtype of the parameters, which is at least as wide.
    const Tensor x = to(input.get(), parameters), weights = weight.get();
    Shape dims, per_channel(x.shape().size(), 1);
    for (int64_t d = 0; d < x.dim(); ++d) {
      if (d != 1) dims.push_back(d);
    }
    per_channel[1] = x.shape()[1];
    const auto fixed = [&](const Tensor& tensor) {
      return count == 0 ? to(tensor, x.dtype()).view(per_channel) : Tensor();
    };
    Tensor g = to(context.grad(), parameters);
    if (tail != Tail::kNone) g = where(le(result(input.get()), 0), 0, g);
    Tensor normal;
    const Tensor weighted = weights.defined() ? mul(g, weights.view(per_channel)) : g;
    grads[0] = to(recorded_gradient(x, weighted, dims, eps, fixed(mean.get()), fixed(rstd.get()), normal),
                  input.get().dtype());
    if (context.needs(1)) grads[1] = sum(mul(g, normal), dims);
    if (context.needs(2)) grads[2] = sum(g, dims);
    if (tail == Tail::kAddRelu && context.needs(3)) grads[3] = to(g, input.get().dtype());
    return grads;
  }

  /// The output, recomputed if it was not saved.
  Tensor result(const Tensor& x) {
    const Tensor saved = output.get();
    if (saved.defined()) return saved.detach();
    const BatchNormShape shape = batch_norm_shape(x);
    const Tensor dense = in_order(x, shape), out = empty_in_order(x, shape), means = mean.get(), rstds = rstd.get();
    const Tensor weights = row_major_or_none(weight.get()), biases = row_major_or_none(bias.get());
    const KernelContext kernels = kernel_context(x.device());
    const Tensor workspace = scratch_memory(workspace_bytes(kernels, shape), x.device());
    const BatchNormChannels channels = {means.data<double>(), rstds.data<double>(), data_or_null(weights),
                                        data_or_null(biases), parameters != x.dtype()};
    TANDEM_KERNEL(kernels, batch_norm, x.dtype(), shape, channels, true, dense.data_ptr(), nullptr,
                  data_or_null(workspace), out.data_ptr());
    return out;
  }
};

Tensor batch_norm_forward(const char* op, BatchNormArguments a, Tail tail) {
  cast_for(CastPolicy::kWidest, {&a.input, &a.residual});
  const KernelContext context = check_batch_norm(op, a, tail);
  for (const Tensor* running : {&a.running_mean, &a.running_var}) {
    if (a.training && running->defined()) autograd::begin_in_place(op, *running, false);
  }
  const BatchNormShape shape = batch_norm_shape(a.input);
  const Tensor dense = in_order(a.input, shape);
  const Tensor residual = tail == Tail::kAddRelu ? in_order(a.residual, shape) : Tensor();
  const Tensor weights = row_major_or_none(a.weight), biases = row_major_or_none(a.bias);
  const Tensor out = empty_in_order(a.input, shape);
  const Tensor workspace = scratch_memory(workspace_bytes(context, shape), context.device);
  const BatchStatistics statistics = batch_statistics(op, context, a, shape, dense, workspace);
  trace_work(0,
             (2 + a.training + (tail == Tail::kAddRelu)) *
                 out.num_bytes());  // the input is read a second time for the statistics
  const BatchNormChannels channels = {statistics.mean.data<double>(), statistics.rstd.data<double>(),
                                      data_or_null(weights), data_or_null(biases),
                                      parameter_dtype(a) != a.input.dtype()};
  TANDEM_KERNEL(context, batch_norm, a.input.dtype(), shape, channels, tail != Tail::kNone, dense.data_ptr(),
                data_or_null(residual), data_or_null(workspace), out.data_ptr());
  BatchNormNode* node = tail == Tail::kAddRelu
                            ? autograd::record<BatchNormNode>(op, out, a.input, a.weight, a.bias, a.residual)
                            : autograd::record<BatchNormNode>(op, out, a.input, a.weight, a.bias);
  if (node == nullptr) return out;
  node->input.save(a.input);
  node->weight.save(a.weight);
  if (tail == Tail::kRelu) node->bias.save(a.bias);
  if (tail == Tail::kAddRelu) node->output.save(out);
  node->mean.save(statistics.mean);
  node->rstd.save(statistics.rstd);
  node->count = statistics.count;
  node->eps = a.eps;
  node->tail = tail;
  node->parameters = parameter_dtype(a);
  node->exchange = std::move(a.exchange);
  return out;
}

}  // namespace

Tensor batch_norm(Tensor input, const Tensor& running_mean, const Tensor& running_var, Tensor weight, Tensor bias,
                  bool training, double momentum, double eps) {
  return batch_norm_forward(
      "batch_norm",
      {std::move(input), {}, running_mean, running_var, std::move(weight), std::move(bias), training, momentum, eps},
      Tail::kNone);
}

Tensor batch_norm_relu(Tensor input, const Tensor& running_mean, const Tensor& running_var, Tensor weight, Tensor bias,
                       bool training, double momentum, double eps) {
  return batch_norm_forward(
      "batch_norm_relu",
      {std::move(input), {}, running_mean, running_var, std::move(weight), std::move(bias), training, momentum, eps},
      Tail::kRelu);
}

Tensor batch_norm_add_relu(Tensor input, Tensor residual, const Tensor& running_mean, const Tensor& running_var,
                           Tensor weight, Tensor bias, bool training, double momentum, double eps) {
  return batch_norm_forward("batch_norm_add_relu",
                            {std::move(input), std::move(residual), running_mean, running_var, std::move(weight),
                             std::move(bias), training, momentum, eps},
                            Tail::kAddRelu);
}

Tensor sync_batch_norm(Tensor input, const Tensor& running_mean, const Tensor& running_var, Tensor weight, Tensor bias,
                       std::shared_ptr<BatchNormExchange> exchange, double momentum, double eps) {
  TANDEM_CHECK(ValueError, exchange, "sync_batch_norm: exchange is null");
  return batch_norm_forward("sync_batch_norm",
                            {std::move(input),
                             {},
                             running_mean,
                             running_var,
                             std::move(weight),
                             std::move(bias),
                             true,
                             momentum,
                             eps,
                             std::move(exchange)},
                            Tail::kNone);
}

// --- layer norm ----------------------------------------------------------------------------------

namespace {

struct LayerNormArguments {
  Tensor input, weight, bias;
  const Shape& normalized_shape;
  double eps;
  bool low_precision_result;

  /// The dtype of the result.
  DType result() const {
    return low_precision_result ? dtype_for(CastPolicy::kLowPrecision, input.dtype()) : input.dtype();
  }
};

/// `other` is added to the input, or null.
KernelContext check_layer_norm(const char* op, const LayerNormArguments& a, const Tensor* other = nullptr) {
  std::vector<Operand> operands, parameters;
  operands.reserve(4);
  parameters.reserve(2);
  operands.push_back({"input", a.input});
  if (other != nullptr) operands.push_back({"other", *other});
  if (a.weight.defined()) parameters.push_back({"weight", a.weight});
  if (a.bias.defined()) parameters.push_back({"bias", a.bias});
  for (const Operand& parameter : parameters) operands.push_back(parameter);
  KernelContext context = check_same_device(op, operands);
  check_floating(op, operands.front());
  check_eps(op, a.eps);
  const Shape &shape = a.input.shape(), &normalized = a.normalized_shape;
  const size_t dims = normalized.size(), all = shape.size();
  TANDEM_CHECK(ShapeError, dims > 0 && dims <= all && Shape(shape.begin() + (all - dims), shape.end()) == normalized,
               operand_error(op, str("input must end in normalized_shape ", normalized), operands));
  for (const Operand& parameter : parameters) {
    check_same_dtype(op, {operands.front(), parameter});
    TANDEM_CHECK(ShapeError, parameter.tensor.shape() == normalized,
                 operand_error(op, str(parameter.name, " must have shape ", normalized), operands));
  }
  TANDEM_CHECK(ShapeError, num_elements(normalized) > 0, operand_error(op, "normalized_shape is empty", operands));
  if (other != nullptr) {
    check_floating(op, operands[1]);
    TANDEM_CHECK(ShapeError, other->shape() == shape,
                 operand_error(op, "input and other must have the same shape", operands));
  }
  return context;
}

struct LayerNormNode : Node {
  SavedTensor input{*this, "input"}, weight{*this, "weight"}, statistics{*this, "statistics"};
  Shape normalized_shape;
  double eps = 0;

  TensorList backward(BackwardContext& context) override {
    TensorList grads(3);
    const Tensor x = input.get(), weights = weight.get();
    if (context.create_graph()) {
      Shape normalized, outer;
      for (int64_t d = 0; d < x.dim(); ++d) {
        (d < x.dim() - normalized_shape.dim() ? outer : normalized).push_back(d);
      }
      const Tensor g = to(context.grad(), x.dtype());
      const auto sum_outer = [&](const Tensor& tensor) { return outer.empty() ? tensor : sum(tensor, outer); };
      Tensor normal;
      grads[0] = recorded_gradient(x, weights.defined() ? mul(g, weights) : g, normalized, eps, {}, {}, normal);
      if (context.needs(1)) grads[1] = sum_outer(mul(g, normal));
      if (context.needs(2)) grads[2] = sum_outer(g);
      return grads;
    }
    const int64_t row_size = num_elements(normalized_shape), num_rows = x.num_elements() / row_size;
    const Tensor dense_x = row_major(x), grad = row_major(context.grad()), dense_weight = row_major_or_none(weights);
    const KernelContext kernels = kernel_context(x.device());
    const int64_t num_bytes = TANDEM_KERNEL(kernels, layer_norm_workspace_bytes, x.dtype(), num_rows, row_size);
    const Tensor workspace = scratch_memory(num_bytes, x.device());
    LayerNormGradients gradients = {};
    if (context.needs(0)) {
      grads[0] = context.sum_so_far(0);
      gradients.accumulate_in = grads[0].defined();
      if (!gradients.accumulate_in) grads[0] = empty(x.shape(), x.options());
      gradients.in = grads[0].data_ptr();
    }
    const auto parameter = [&](int i, void*& slot, bool& accumulate) {
      if (!context.needs(i)) return;
      const auto buffer = slot_or_new(context, i, normalized_shape, x.dtype());
      grads[static_cast<size_t>(i)] = buffer.tensor;
      slot = buffer.tensor.data_ptr();
      accumulate = buffer.accumulate;
    };
    parameter(1, gradients.weight, gradients.accumulate_weight);
    parameter(2, gradients.bias, gradients.accumulate_bias);
    TANDEM_KERNEL(kernels, layer_norm_backward, x.dtype(), grad.dtype(), num_rows, row_size, dense_x.data_ptr(),
                  data_or_null(dense_weight), statistics.get().data_ptr(), grad.data_ptr(), data_or_null(workspace),
                  gradients);
    return grads;
  }
};

/// Inputs: input, other.
struct AddNode : Node {
  DType other = kFloat32;

  TensorList backward(BackwardContext& context) override {
    return {context.grad(), context.needs(1) ? to(context.grad(), other) : Tensor()};
  }
};

/// Normalizes the rows of the input; or those of input + other, which it writes to `sum`, if they are defined.
Tensor normalize_rows(const char* op, const KernelContext& context, const LayerNormArguments& a,
                      const Tensor& other = {}, const Tensor& sum = {}) {
  const int64_t n = num_elements(a.normalized_shape), rows = a.input.num_elements() / n;
  const Tensor dense = row_major(a.input), added = row_major_or_none(other);
  const Tensor weights = row_major_or_none(a.weight), biases = row_major_or_none(a.bias);
  const Tensor out = empty(a.input.shape(), {a.result(), context.device});
  const Tensor statistics =
      empty({rows, kLayerNormStatistics}, {a.input.dtype() == kFloat64 ? kFloat64 : kFloat32, context.device});
  TANDEM_KERNEL(context, layer_norm, a.input.dtype(), out.dtype(), rows, n, a.eps, dense.data_ptr(),
                data_or_null(added), data_or_null(weights), data_or_null(biases), data_or_null(sum),
                statistics.data_ptr(), out.data_ptr());
  const Tensor& normalized = sum.defined() ? sum : a.input;
  if (auto* node = autograd::record<LayerNormNode>(op, out, normalized, a.weight, a.bias)) {
    node->input.save(normalized);
    node->weight.save(a.weight);
    node->statistics.save(statistics);
    node->normalized_shape = a.normalized_shape;
    node->eps = a.eps;
  }
  return out;
}

}  // namespace

Tensor layer_norm(Tensor input, const Shape& normalized_shape, Tensor weight, Tensor bias, double eps,
                  bool low_precision_result) {
  cast_for(CastPolicy::kFloat32, {&input, &weight, &bias});
  const LayerNormArguments a = {input, weight, bias, normalized_shape, eps, low_precision_result};
  const KernelContext context = check_layer_norm("layer_norm", a);
  if (a.result() != input.dtype() && context.device.is_cpu())
    return to(layer_norm(input, normalized_shape, weight, bias, eps), a.result());
  return normalize_rows("layer_norm", context, a);
}

std::pair<Tensor, Tensor> add_layer_norm(Tensor input, const Tensor& other, const Shape& normalized_shape,
                                         Tensor weight, Tensor bias, double eps, bool low_precision_result) {
  cast_for(CastPolicy::kFloat32, {&input, &weight, &bias});
  const LayerNormArguments a = {input, weight, bias, normalized_shape, eps, low_precision_result};
  const KernelContext context = check_layer_norm("add_layer_norm", a, &other);
  if (other.dtype() != a.result() || (a.result() != input.dtype() && context.device.is_cpu())) {
    const Tensor sum = add(input, to(other, input.dtype()));
    return {sum, layer_norm(sum, normalized_shape, weight, bias, eps, low_precision_result)};
  }
  const Tensor sum = empty(input.shape(), input.options());
  if (auto* node = autograd::record<AddNode>("add_layer_norm", sum, input, other)) node->other = other.dtype();
  return {sum, normalize_rows("add_layer_norm", context, a, other, sum)};
}

}}  // namespace tandem::v0
