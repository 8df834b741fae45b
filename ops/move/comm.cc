#include <tandem/ops/comm.h>

#include <functional>
#include <span>
#include <string>
#include <utility>

#include <tandem/ops/common/common.h>
#include <tandem/ops/move/device_copy.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 { namespace comm {

using autograd::BackwardContext;
using ops::DeviceCopy;

namespace {

std::vector<Device> devices_of(const std::vector<Tensor>& tensors) {
  std::vector<Device> devices;
  for (const Tensor& tensor : tensors) devices.push_back(tensor.device());
  return devices;
}

void check_one_per_device(const char* op, const std::vector<Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (tensors[k].device() != tensors[i].device()) continue;
      const std::string first = ops::nth("tensors", k), second = ops::nth("tensors", i);
      throw DeviceError(
          with_module_scope(ops::operand_error(op, "two tensors are on the same device, expected one tensor per device",
                                               {{first.c_str(), tensors[k]}, {second.c_str(), tensors[i]}})));
    }
  }
}

/// Copies grad_of(i), a part of the node's gradient, to devices[i] for each input i that needs a gradient; the copies
/// overlap.
TensorList move_back(const char* op, const BackwardContext& context, const std::vector<Device>& devices,
                     const std::function<Tensor(size_t i)>& grad_of) {
  std::vector<Tensor> moved(devices.size());
  std::vector<Device> targets = devices;
  for (size_t i = 0; i < devices.size(); ++i) {
    moved[i] = grad_of(i);
    if (!context.needs(static_cast<int>(i))) targets[i] = moved[i].device();  // is not copied
  }
  moved = ops::move_each(op, moved, targets, {});
  TensorList grads(devices.size());
  for (size_t i = 0; i < devices.size(); ++i) {
    if (context.needs(static_cast<int>(i))) grads[i] = moved[i];
  }
  return grads;
}

}  // namespace

namespace {

/// The sum on each of the devices.
std::vector<Tensor> sum_on(const char* op, const std::vector<Tensor>& tensors, std::span<const Device> devices,
                           const TransferOptions& options) {
  DeviceCopy transfer(op, options);
  for (const Device device : devices) transfer.expect_result(device, tensors[0].num_bytes());
  transfer.expect(tensors, devices, true);
  transfer.check_memory();
  std::vector<Tensor> outputs;
  for (const Device device : devices) outputs.push_back(empty(tensors[0].shape(), {tensors[0].dtype(), device}));
  transfer.add(tensors, outputs);
  transfer.run();
  const auto gradients = [op, inputs = devices_of(tensors)](BackwardContext& context) {
    return move_back(op, context, inputs, [&](size_t) { return context.grad(); });
  };
  for (const Tensor& output : outputs) ops::record_gradients(op, output, tensors, gradients);
  return outputs;
}

}  // namespace

Tensor sum_to(Device device, const std::vector<Tensor>& tensors, const TransferOptions& options) {
  ops::check_alike("sum_to", tensors);
  return sum_on("sum_to", tensors, {&device, 1}, options)[0];
}

std::vector<Tensor> all_reduce(const std::vector<Tensor>& tensors, const TransferOptions& options) {
  ops::check_alike("all_reduce", tensors);
  check_one_per_device("all_reduce", tensors);
  return sum_on("all_reduce", tensors, devices_of(tensors), options);
}

std::vector<Tensor> broadcast(const Tensor& tensor, const std::vector<Device>& devices,
                              const TransferOptions& options) {
  TANDEM_CHECK(StateError, tensor.defined(), "broadcast: tensor is undefined");
  return ops::move_each("broadcast", std::vector<Tensor>(devices.size(), tensor), devices, options);
}

std::vector<Tensor> scatter(const Tensor& tensor, const std::vector<Device>& devices, int64_t dim,
                            const TransferOptions& options) {
  TANDEM_CHECK(StateError, tensor.defined(), "scatter: tensor is undefined");
  TANDEM_CHECK(ValueError, !devices.empty(), "scatter: no devices");
  const int64_t d = wrap_dim("scatter", dim, tensor.dim());
  const int64_t size = tensor.size(d);
  const int64_t count = static_cast<int64_t>(devices.size());
  std::vector<Tensor> parts;
  for (int64_t i = 0, begin = 0; i < count; ++i) {
    const int64_t end = begin + size / count + (i < size % count ? 1 : 0);
    parts.push_back(tensor.slice(d, begin, end));
    begin = end;
  }
  return ops::move_each("scatter", parts, devices, options);
}

namespace {

std::vector<Tensor> gather_on(const char* op, const std::vector<Tensor>& tensors, int64_t dim,
                              std::span<const Device> devices, const TransferOptions& options) {
  const Tensor& first = tensors[0];
  TANDEM_CHECK(ShapeError, first.dim() > 0,
               ops::operand_error(op, "tensors must have at least one dimension", {{"tensors[0]", first}}));
  const int64_t d = wrap_dim(op, dim, first.dim());
  Shape shape = first.shape();
  std::vector<int64_t> sizes;
  int64_t total = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = ops::nth("tensors", i);
    const ops::Operands pair = {{"tensors[0]", first}, {name.c_str(), tensors[i]}};
    ops::check_same_dtype(op, pair);
    Shape other = tensors[i].shape();
    if (other.size() == shape.size()) other[static_cast<size_t>(d)] = shape[static_cast<size_t>(d)];
    TANDEM_CHECK(ShapeError, other == first.shape(),
                 ops::operand_error(op, str("shapes differ in a dimension other than ", d), pair));
    total += sizes.emplace_back(tensors[i].size(d));
  }
  shape[static_cast<size_t>(d)] = total;
  // Whether the part of each tensor in the result is one contiguous run of memory.
  const bool in_runs = num_elements(Shape(shape.begin(), shape.begin() + d)) == 1;

  DeviceCopy transfer(op, options);
  for (const Device device : devices) {
    transfer.expect_result(device, num_elements(shape) * size_of(first.dtype()));
    for (size_t i = 0; i < tensors.size(); ++i) {
      transfer.expect({&tensors[i], 1}, {&device, 1}, sizes[i] == total || in_runs);
    }
  }
  transfer.check_memory();
  std::vector<Tensor> outputs;
  for (const Device device : devices) outputs.push_back(empty(shape, {first.dtype(), device}));
  int64_t begin = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (const Tensor& output : outputs) transfer.add({tensors[i]}, {output.slice(d, begin, begin + sizes[i])});
    begin += sizes[i];
  }
  transfer.run();
  const auto gradients = [op, d, sizes, inputs = devices_of(tensors)](BackwardContext& context) {
    int64_t end = 0;
    return move_back(op, context, inputs, [&](size_t i) {
      const int64_t start = std::exchange(end, end + sizes[i]);
      return context.grad().slice(d, start, end);
    });
  };
  for (const Tensor& output : outputs) ops::record_gradients(op, output, tensors, gradients);
  return outputs;
}

}  // namespace

Tensor gather(const std::vector<Tensor>& tensors, int64_t dim, Device device, const TransferOptions& options) {
  ops::check_tensors("gather", tensors);
  return gather_on("gather", tensors, dim, {&device, 1}, options)[0];
}

std::vector<Tensor> all_gather(const std::vector<Tensor>& tensors, int64_t dim, const TransferOptions& options) {
  ops::check_tensors("all_gather", tensors);
  check_one_per_device("all_gather", tensors);
  return gather_on("all_gather", tensors, dim, devices_of(tensors), options);
}

}}}  // namespace tandem::v0::comm
