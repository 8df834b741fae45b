// Group and instance normalization, on batch norm's kernels: channel c of sample n is their channel n * C + c.
#include <algorithm>
#include <utility>

#include <tandem/autograd/checkpoint.h>
#include <tandem/base/trace.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/math.h>
#include <tandem/ops/norm/norm_common.h>
#include <tandem/ops/pad.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using namespace ops;
using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;

namespace {

/// An input [N, C, ...] whose channels form groups.
struct Grouping {
  int64_t samples;
  int64_t groups;  ///< of a sample
  int64_t size;    ///< channels of a group
  int64_t inner;
  BatchNormShape shape;  ///< of the channels of all samples

  Grouping(const Tensor& input, int64_t num_groups) {
    const BatchNormShape batch = batch_norm_shape(input);
    samples = batch.batch;
    groups = num_groups;
    size = batch.channels / num_groups;
    inner = batch.inner;
    shape = {1, samples * batch.channels, inner, batch.channels_last, std::max<int64_t>(1, samples)};
  }

  int64_t channels() const { return groups * size; }
  int64_t values() const { return size * inner; }  ///< of a group
  bool is_empty() const { return shape.channels * inner == 0; }

  /// Numbers of the groups of all samples, [2, N groups], as numbers of the channels of all samples.
  Tensor of_channels(const Tensor& numbers) const {
    if (size == 1) return numbers;
    const Tensor repeated = numbers.view({2, samples * groups, 1}).expand({2, samples * groups, size});
    return row_major(repeated).view({2, shape.channels});
  }
  /// A parameter [C] as numbers of the channels of all samples; undefined if it is.
  Tensor of_samples(const Tensor& parameter) const {
    return parameter.defined() ? row_major(parameter.detach().expand({samples, channels()})) : Tensor();
  }
};

/// The mean, 1 / sqrt(var + eps), and the sum of squared deviations of each group: float64 [3, N groups].
Tensor group_statistics(const KernelContext& context, const Grouping& grouping, const Tensor& dense, double eps) {
  const BatchNormShape& shape = grouping.shape;
  const int64_t groups = grouping.samples * grouping.groups;
  const Tensor result = empty({3, groups}, {kFloat64, context.device});
  if (grouping.is_empty()) {
    primitives::fill(result, 0);
    return result;
  }
  double *mean = row_of(result, 0), *squares = row_of(result, 2);
  const auto moments = [&](const BatchNormShape& of, double* means, double* deviations) {
    const Tensor workspace = batch_norm_workspace(context, of);
    TANDEM_KERNEL(context, batch_norm_moments, dense.dtype(), of, dense.data_ptr(), data_or_null(workspace), means,
                  deviations, nullptr);
  };
  if (!shape.channels_last || shape.inner == 1) {  // the values of a group are adjacent
    moments({1, groups, grouping.values(), false}, mean, squares);
  } else if (grouping.size == 1) {
    moments(shape, mean, squares);
  } else {
    const Tensor of_channels = empty({3, shape.channels}, result.options());  // counts, means, squared deviations
    primitives::fill(of_channels.slice(0, 0, 1), static_cast<double>(shape.inner));
    moments(shape, row_of(of_channels, 1), row_of(of_channels, 2));
    const Tensor gathered = row_major(of_channels.view({3, groups, grouping.size}).permute({2, 0, 1}));
    TANDEM_KERNEL(context, batch_norm_join, grouping.size, groups, gathered.data<double>(), mean, squares);
  }
  const BatchNormUpdate update = {
      .count = static_cast<double>(grouping.values()), .eps = eps, .rstd = row_of(result, 1)};
  TANDEM_KERNEL(context, batch_norm_update, groups, mean, squares, update);
  return result;
}

/// Inputs: input, weight, bias.
struct GroupNormNode : Node {
  SavedTensor input{*this, "input"}, weight{*this, "weight"};
  SavedTensor statistics{*this, "statistics"};  ///< mean and 1 / sqrt(var + eps): [2, N groups]
  int64_t groups = 1;
  double eps = 0;
  DType parameters = kFloat32;  ///< dtype of weight and bias

  TensorList backward(BackwardContext& context) override {
    return context.create_graph() ? recorded_gradients(context) : gradients(context);
  }

 private:
  TensorList gradients(BackwardContext& context) {
    TensorList grads(3);
    const Tensor x = input.get(), own_weight = weight.get();
    const Grouping grouping(x, groups);
    const BatchNormShape& shape = grouping.shape;
    const Tensor dense = in_order(x, shape), grad = in_order(context.grad(), shape);
    const Tensor of_channels = grouping.of_channels(statistics.get()), weights = grouping.of_samples(own_weight);
    const KernelContext kernels = kernel_context(x.device());
    const Tensor workspace = batch_norm_workspace(kernels, shape);
    const BatchNormChannels channels = {row_of(of_channels, 0),  row_of(of_channels, 1), data_or_null(weights), nullptr,
                                        parameters != x.dtype(), /*of_groups=*/true};
    const Tensor sums = empty({2, shape.channels}, of_channels.options());
    TANDEM_KERNEL(kernels, batch_norm_backward_sums, x.dtype(), shape, channels, ReluMask::kNone, dense.data_ptr(),
                  nullptr, nullptr, grad.data_ptr(), nullptr, data_or_null(workspace), sums.data<double>(), nullptr,
                  BatchNormParameters());
    BatchNormParameters slots = {.dtype = parameters};
    grads[1] = parameter_slot(context, 1, grouping.channels(), slots);
    grads[2] = parameter_slot(context, 2, grouping.channels(), slots);
    if (grads[1].defined() || grads[2].defined()) {
      const auto over_samples = [&](const Tensor& values) {
        return sum(values.view({grouping.samples, grouping.channels()}), {0});
      };
      const Tensor total = over_samples(sums.select(0, 0));
      const Tensor along = over_samples(mul(sums.select(0, 1), of_channels.select(0, 1)));
      TANDEM_KERNEL(kernels, batch_norm_parameters, grouping.channels(), total.data<double>(), along.data<double>(),
                    slots);
    }
    trace_work(0, (context.needs(0) ? 5 : 2) * x.num_bytes());
    if (!context.needs(0)) return grads;
    Tensor weighted = sums.view({2, grouping.samples, grouping.groups, grouping.size});
    if (own_weight.defined()) weighted = mul(weighted, own_weight.view({grouping.groups, grouping.size}));
    const Tensor of_groups = grouping.of_channels(sum(weighted, {3}).view({2, grouping.samples * grouping.groups}));
    grads[0] = empty_in_order(x, shape);
    TANDEM_KERNEL(kernels, batch_norm_backward, x.dtype(), shape, channels, /*relu=*/false, dense.data_ptr(),
                  grad.data_ptr(), of_groups.data<double>(), static_cast<double>(grouping.values()),
                  data_or_null(workspace), grads[0].data_ptr());
    return grads;
  }

  /// The gradients, composed of operations, in the dtype of the parameters, which is at least as wide.
  TensorList recorded_gradients(BackwardContext& context) {
    TensorList grads(3);
    const Tensor original = input.get(), own_weight = weight.get();
    const Grouping grouping(original, groups);
    const Shape grouped = {grouping.samples, grouping.groups, grouping.size, grouping.inner};
    const Shape per_channel = {grouping.groups, grouping.size, 1};
    const Tensor x = to(original, parameters).reshape(grouped), g = to(context.grad(), parameters).reshape(grouped);
    const Tensor weighted = own_weight.defined() ? mul(g, own_weight.view(per_channel)) : g;
    Tensor normal;
    const Tensor grad = recorded_gradient(x, weighted, {2, 3}, eps, {}, {}, normal);
    grads[0] = to(grad.reshape(original.shape()), original.dtype());
    if (context.needs(1)) grads[1] = sum(mul(g, normal), {0, 3}).view({grouping.channels()});
    if (context.needs(2)) grads[2] = sum(g, {0, 3}).view({grouping.channels()});
    return grads;
  }
};

/// Normalizes the groups of each sample; the arguments are checked. Updates running statistics with the means over
/// samples.
Tensor normalize_groups(const char* op, const KernelContext& context, const BatchNormArguments& a, int64_t groups) {
  for (const Tensor* running : {&a.running_mean, &a.running_var}) {
    if (running->defined()) autograd::begin_in_place(op, *running, false);
  }
  const Grouping grouping(a.input, groups);
  const BatchNormShape& shape = grouping.shape;
  const Tensor dense = in_order(a.input, shape), out = empty_in_order(a.input, shape);
  const Tensor all = group_statistics(context, grouping, dense, a.eps), statistics = all.slice(0, 0, 2);
  const bool updates = !autograd::is_recomputing() && !grouping.is_empty();  // a checkpoint's first run has updated
  if (updates && (a.running_mean.defined() || a.running_var.defined())) {
    const Tensor means = mean(all.view({3, grouping.samples, grouping.channels()}), {1});
    BatchNormUpdate update = {.count = static_cast<double>(grouping.values())};
    RunningStatistics running(a.running_mean, a.running_var, a.momentum, update);
    TANDEM_KERNEL(context, batch_norm_update, grouping.channels(), row_of(means, 0), row_of(means, 2), update);
    running.finish(op);
  }
  const Tensor of_channels = grouping.of_channels(statistics);
  const Tensor weights = grouping.of_samples(a.weight), biases = grouping.of_samples(a.bias);
  const Tensor workspace = batch_norm_workspace(context, shape);
  const BatchNormChannels channels = {row_of(of_channels, 0), row_of(of_channels, 1), data_or_null(weights),
                                      data_or_null(biases), parameter_dtype(a) != a.input.dtype()};
  trace_work(0, 3 * out.num_bytes());  // the input is read a second time for the statistics
  TANDEM_KERNEL(context, batch_norm, a.input.dtype(), shape, channels, false, dense.data_ptr(), nullptr,
                data_or_null(workspace), out.data_ptr(), nullptr);
  if (auto* node = autograd::record<GroupNormNode>(op, out, a.input, a.weight, a.bias)) {
    node->input.save(a.input);
    node->weight.save(a.weight);
    node->statistics.save(statistics);
    node->groups = groups;
    node->eps = a.eps;
    node->parameters = parameter_dtype(a);
  }
  return out;
}

}  // namespace

Tensor group_norm(Tensor input, int64_t num_groups, Tensor weight, Tensor bias, double eps) {
  cast_for(CastPolicy::kFloat32, {&input, &weight, &bias});
  const BatchNormArguments a = {std::move(input), {}, {}, {}, std::move(weight), std::move(bias), true, 0, eps};
  const Call call = check_batch_norm("group_norm", a, Tail::kNone, nullptr);
  TANDEM_CHECK(ValueError, num_groups >= 1, "group_norm: num_groups is ", num_groups, ", expected at least 1");
  check_input("group_norm", a.input, a.input.shape()[1] % num_groups == 0, "num_groups is ", num_groups,
              ", it must divide the channels of input");
  return normalize_groups("group_norm", call, a, num_groups);
}

Tensor instance_norm(Tensor input, const Tensor& running_mean, const Tensor& running_var, Tensor weight, Tensor bias,
                     bool use_input_stats, double momentum, double eps) {
  TANDEM_CHECK(StateError, use_input_stats || (running_mean.defined() && running_var.defined()),
               "instance_norm: without use_input_stats, running_mean and running_var must be defined");
  BatchNormArguments a = {std::move(input), {},       running_mean, running_var, std::move(weight), std::move(bias),
                          use_input_stats,  momentum, eps};
  if (!use_input_stats) return batch_norm_forward("instance_norm", std::move(a), Tail::kNone);
  const auto values = [](const Shape& of) {
    int64_t count = 1;
    for (size_t d = 2; d < of.size(); ++d) count *= of[d];
    return of[0] * of[1] == 0 ? 2 : count;
  };
  const Call call = check_batch_norm("instance_norm", a, Tail::kNone, values);
  return normalize_groups("instance_norm", call, a, std::max<int64_t>(1, a.input.shape()[1]));
}

Tensor local_response_norm(Tensor input, int64_t size, double alpha, double beta, double k) {
  const Call call("local_response_norm", CastPolicy::kFloat32, {{"input", &input}}, DTypes::kFloating);
  call.require(input.dim() >= 3, "input must be [N, C, ...]");
  TANDEM_CHECK(ValueError, size >= 1, "local_response_norm: size is ", size, ", expected at least 1");
  const Tensor x = to(input, is_half(input.dtype()) ? kFloat32 : input.dtype());
  Shape sides(static_cast<size_t>(2 * (x.dim() - 1)), 0);
  sides[sides.size() - 2] = size / 2;
  sides[sides.size() - 1] = (size - 1) / 2;
  const Tensor means = mean(pad(square(x), sides).unfold(1, size, 1), -1);
  return to(div(x, pow(add(mul(means, alpha), k), beta)), input.dtype());
}

}}  // namespace tandem::v0
