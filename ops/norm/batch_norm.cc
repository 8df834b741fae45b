#include <algorithm>
#include <limits>
#include <utility>

#include <tandem/autograd/checkpoint.h>
#include <tandem/base/trace.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/norm.h>
#include <tandem/ops/norm/norm_common.h>
#include <tandem/ops/norm/norm_kernels.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;

namespace {

/// Mean and 1 / sqrt(var + eps) of each channel, float64 [C], and the number of values per channel from which they were
/// computed (0: they are constants).
struct BatchStatistics {
  Tensor mean, rstd;
  double count = 0;
};

/// Computes means and sums of squared deviations of the batches of all ranks; returns the number of values per channel.
double joint_moments(const char* op, const KernelContext& context, const BatchNormArguments& a,
                     const BatchNormShape& shape, const Tensor& dense, const Tensor& workspace, double* mean,
                     double* squares) {
  const double local_count = shape.channels == 0 ? 0 : static_cast<double>(shape.per_channel());
  const Tensor moments = empty({3, shape.channels}, {kFloat64, context.device});  // counts, means, squared deviations
  primitives::fill(moments.slice(0, 0, 1), local_count);
  TANDEM_KERNEL(context, batch_norm_moments, a.input.dtype(), shape, dense.data_ptr(), data_or_null(workspace),
                row_of(moments, 1), row_of(moments, 2), nullptr);
  const Tensor gathered = row_major(a.exchange->gather(moments));
  // Counts are read on the CPU, because reading them from a GPU would wait for the GPU.
  const Tensor counts = context.device.is_cpu()
                            ? gathered.slice(1, 0, 1).slice(2, 0, std::min<int64_t>(1, shape.channels))
                            : a.exchange->gather(full({1}, local_count, {kFloat64}));
  double count = 0;
  for (const double one : counts.to_vector<double>()) count += one;
  TANDEM_KERNEL(context, batch_norm_join, gathered.shape()[0], shape.channels, gathered.data<double>(), mean, squares);
  TANDEM_CHECK(ShapeError, count >= 2 || shape.channels == 0, op,
               ": training needs at least two values per channel, all "
               "ranks together have ",
               count);
  return count;
}

BatchStatistics batch_statistics(const char* op, const KernelContext& context, const BatchNormArguments& a,
                                 const BatchNormShape& shape, const Tensor& dense, const Tensor& workspace) {
  const TensorOptions options = {kFloat64, context.device};
  BatchStatistics result{empty({shape.channels}, options), empty({shape.channels}, options)};
  const Tensor squares_tensor = empty({shape.channels}, options);
  double *mean = result.mean.data<double>(), *squares = squares_tensor.data<double>();
  BatchNormUpdate update = {.eps = a.eps, .rstd = result.rstd.data<double>()};
  if (!a.training) {
    primitives::copy(a.running_mean, result.mean);
    primitives::copy(a.running_var, squares_tensor);
    TANDEM_KERNEL(context, batch_norm_update, shape.channels, mean, squares, update);
    return result;
  }
  const bool updates = !autograd::is_recomputing();  // the first run of a checkpoint has updated
  RunningStatistics running(updates ? a.running_mean : Tensor(), updates ? a.running_var : Tensor(), a.momentum,
                            update);
  if (a.exchange) {
    update.count = joint_moments(op, context, a, shape, dense, workspace, mean, squares);
    TANDEM_KERNEL(context, batch_norm_update, shape.channels, mean, squares, update);
  } else {
    update.count = shape.channels == 0 ? 0 : static_cast<double>(shape.per_channel());
    TANDEM_KERNEL(context, batch_norm_moments, a.input.dtype(), shape, dense.data_ptr(), data_or_null(workspace), mean,
                  squares, &update);
  }
  running.finish(op);
  result.count = update.count;
  return result;
}

/// BatchNormChannels::ceiling.
double ceiling_of(Tail tail) { return tail == Tail::kRelu6 ? 6 : std::numeric_limits<double>::infinity(); }

/// The kernels' argument. The tensors are row-major and must outlive it; `parameters` is the dtype of weight and bias.
BatchNormChannels channels_of(const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& bias,
                              DType dtype, DType parameters, Tail tail) {
  return {.mean = mean.data<double>(),
          .rstd = rstd.data<double>(),
          .weight = data_or_null(weight),
          .bias = data_or_null(bias),
          .has_float32_parameters = parameters != dtype,
          .ceiling = ceiling_of(tail)};
}

/// Inputs: input, weight, bias, and residual if there is one.
struct BatchNormNode : Node {
  SavedTensor input{*this, "input"}, weight{*this, "weight"}, bias{*this, "bias"}, output{*this, "output"};
  SavedTensor positive{*this, "positive"};  ///< the mask of `output`, if there is one
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
    const bool may_overwrite = context.may_overwrite(context.grad());
    const Tensor dense = in_order(x, shape), grad = in_order(context.grad(), shape);
    const bool owns_grad = may_overwrite || !grad.is_same(context.grad());
    const Tensor more = context.second_grad().defined() ? in_order(context.second_grad(), shape) : Tensor();
    const Tensor weights = row_major(weight.get()), biases = row_major(bias.get());
    const Tensor out = output.get(), bits = positive.get();
    const KernelContext kernels = kernel_context(x.device());
    const Tensor workspace = batch_norm_workspace(kernels, shape);
    const BatchNormChannels channels = channels_of(means, rstds, weights, biases, x.dtype(), parameters, tail);
    const ReluMask mask = tail == Tail::kNone      ? ReluMask::kNone
                          : tail == Tail::kAddRelu ? ReluMask::kOutput
                                                   : ReluMask::kInput;
    const Tensor sums = empty({2, shape.channels}, {kFloat64, x.device()});
    // With a residual, the masked gradient is the residual's gradient; it is stored and read from then on in place of
    // the mask. Results are written into the memory of `grad` if possible, because it is in the cache.
    const Tensor counted = tail != Tail::kAddRelu ? Tensor() : owns_grad ? grad : empty_in_order(x, shape);
    BatchNormParameters slots = {.dtype = parameters};
    grads[1] = parameter_slot(context, 1, shape.channels, slots);
    grads[2] = parameter_slot(context, 2, shape.channels, slots);
    TANDEM_KERNEL(kernels, batch_norm_backward_sums, x.dtype(), shape, channels, mask, dense.data_ptr(),
                  data_or_null(out), data_or_null(bits), grad.data_ptr(), data_or_null(more), data_or_null(workspace),
                  sums.data<double>(), data_or_null(counted), slots);
    if (exchange) exchange->sum(sums);
    const bool reads_out = out.defined() && !bits.defined();
    trace_work(0, (2 + counted.defined() + reads_out + more.defined() + (context.needs(0) ? 3 : 0)) * x.num_bytes());
    if (context.needs(0)) {
      grads[0] = owns_grad && !counted.defined() ? grad : empty_in_order(x, shape);
      TANDEM_KERNEL(kernels, batch_norm_backward, x.dtype(), shape, channels, mask == ReluMask::kInput,
                    dense.data_ptr(), counted.defined() ? counted.data_ptr() : grad.data_ptr(), sums.data<double>(),
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
    if (tail != Tail::kNone) {
      const Tensor y = result(input.get());
      g = where(le(y, 0), 0, g);
      if (tail == Tail::kRelu6) g = where(ge(y, ceiling_of(tail)), 0, g);
    }
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
    const Tensor weights = row_major(weight.get()), biases = row_major(bias.get());
    const KernelContext kernels = kernel_context(x.device());
    const Tensor workspace = batch_norm_workspace(kernels, shape);
    const BatchNormChannels channels = channels_of(means, rstds, weights, biases, x.dtype(), parameters, tail);
    TANDEM_KERNEL(kernels, batch_norm, x.dtype(), shape, channels, true, dense.data_ptr(), nullptr,
                  data_or_null(workspace), out.data_ptr(), nullptr);
    return out;
  }
};

}  // namespace

Tensor ops::batch_norm_forward(const char* op, BatchNormArguments a, Tail tail) {
  cast_for(CastPolicy::kWidest, {&a.input, &a.residual});
  const auto values = [](const Shape& of) { return of[1] == 0 ? 2 : num_elements(of) / of[1]; };
  const Call call = check_batch_norm(op, a, tail, a.training && !a.exchange ? +values : nullptr);
  for (const Tensor* running : {&a.running_mean, &a.running_var}) {
    if (a.training && running->defined()) autograd::begin_in_place(op, *running, false);
  }
  const BatchNormShape shape = batch_norm_shape(a.input);
  const Tensor dense = in_order(a.input, shape);
  const Tensor residual = tail == Tail::kAddRelu ? in_order(a.residual, shape) : Tensor();
  const Tensor weights = row_major(a.weight), biases = row_major(a.bias);
  const Tensor out = empty_in_order(a.input, shape);
  const Tensor workspace = batch_norm_workspace(call, shape);
  const BatchStatistics statistics = batch_statistics(op, call, a, shape, dense, workspace);
  trace_work(0,
             (2 + a.training + (tail == Tail::kAddRelu)) *
                 out.num_bytes());  // the input is read a second time for the statistics
  const BatchNormChannels channels =
      channels_of(statistics.mean, statistics.rstd, weights, biases, a.input.dtype(), parameter_dtype(a), tail);
  Tensor positive;
  if (tail == Tail::kAddRelu && autograd::should_record(a.input, a.weight, a.bias, a.residual)) {
    positive = scratch_memory(TANDEM_KERNEL(call, batch_norm_mask_bytes, a.input.dtype(), shape, dense.data_ptr(),
                                            residual.data_ptr(), out.data_ptr()),
                              call.device);
  }
  TANDEM_KERNEL(call, batch_norm, a.input.dtype(), shape, channels, tail != Tail::kNone, dense.data_ptr(),
                data_or_null(residual), data_or_null(workspace), out.data_ptr(), data_or_null(positive));
  BatchNormNode* node = tail == Tail::kAddRelu
                            ? autograd::record<BatchNormNode>(op, out, a.input, a.weight, a.bias, a.residual)
                            : autograd::record<BatchNormNode>(op, out, a.input, a.weight, a.bias);
  if (node == nullptr) return out;
  node->input.save(a.input);
  node->weight.save(a.weight);
  if (tail == Tail::kRelu || tail == Tail::kRelu6) node->bias.save(a.bias);
  if (tail == Tail::kAddRelu) node->output.save(out);  // also with a mask, for create_graph and unaligned gradients
  node->positive.save(positive);
  node->mean.save(statistics.mean);
  node->rstd.save(statistics.rstd);
  node->count = statistics.count;
  node->eps = a.eps;
  node->tail = tail;
  node->accepts_two_gradients = tail == Tail::kAddRelu;
  node->parameters = parameter_dtype(a);
  node->exchange = std::move(a.exchange);
  return out;
}

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

Tensor batch_norm_relu6(Tensor input, const Tensor& running_mean, const Tensor& running_var, Tensor weight, Tensor bias,
                        bool training, double momentum, double eps) {
  return batch_norm_forward(
      "batch_norm_relu6",
      {std::move(input), {}, running_mean, running_var, std::move(weight), std::move(bias), training, momentum, eps},
      Tail::kRelu6);
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

}}  // namespace tandem::v0
