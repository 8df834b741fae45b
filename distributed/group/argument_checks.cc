#include <tandem/distributed/group/argument_checks.h>

#include <algorithm>

#include <tandem/tensor/cuda.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

std::string lines(const Argument& a, const Argument& b) {
  const size_t width = std::max(to_string(a).size(), to_string(b).size());
  return line_of(a, width) + line_of(b, width);
}

}  // namespace

std::string to_string(const Argument& argument) {
  return argument.index < 0 ? argument.name : str(argument.name, "[", argument.index, "]");
}

std::string line_of(const Argument& argument, size_t width) {
  std::string name = to_string(argument);
  name.resize(std::max(name.size(), width), ' ');
  return str("\n  ", name, "  ", describe(argument.tensor));
}

void check_argument(const char* op, const Argument& argument, const ProcessGroupOptions& group) {
  TANDEM_CHECK(StateError, argument.tensor.defined(), op, ": ", to_string(argument), " is undefined");
  const bool on_gpu = !argument.tensor.device().is_cpu();
  if (!on_gpu || group.world_size == 1) return;
  TANDEM_CHECK(DeviceError, cuda::is_built(), op, ": this build supports CPU tensors only; build with --config=cuda",
               line_of(argument));
  TANDEM_CHECK(DeviceError, moves_gpu_tensors(group), op, ": the group's backend '", group.backend,
               "' supports CPU tensors only; use 'cpu:", group.backend, ",cuda:nccl'", line_of(argument));
}

void check_writable(const char* op, const Argument& argument, const ProcessGroupOptions& group) {
  check_argument(op, argument, group);
  const Shape& shape = argument.tensor.shape();
  for (size_t i = 0; i < shape.size(); ++i) {
    TANDEM_CHECK(ValueError, shape[i] <= 1 || argument.tensor.strides()[i] != 0, op, ": ", to_string(argument),
                 " is expanded, so its elements share memory and cannot be written; pass a contiguous tensor",
                 line_of(argument));
  }
}

void check_same_device(const char* op, const Argument& a, const Argument& b) {
  TANDEM_CHECK(DeviceError, a.tensor.device() == b.tensor.device(), op, ": devices differ", lines(a, b));
}

void check_alike(const char* op, const Argument& a, const Argument& b) {
  TANDEM_CHECK(DTypeError, a.tensor.dtype() == b.tensor.dtype(), op, ": dtypes differ", lines(a, b));
  check_same_device(op, a, b);
}

void check_shape(const char* op, const Argument& argument, const Shape& wanted, const Argument& other) {
  TANDEM_CHECK(ShapeError, argument.tensor.shape() == wanted, op, ": ", to_string(argument), " must be ", wanted,
               lines(argument, other));
}

void check_reduce_op(const char* op, ReduceOp reduction, const Argument& argument) {
  const bool floating = is_floating_point(argument.tensor.dtype());
  const bool bitwise = reduction >= ReduceOp::kBitAnd;
  TANDEM_CHECK(DTypeError, reduction != ReduceOp::kAvg || floating, op, ": avg requires a floating-point dtype",
               line_of(argument));
  TANDEM_CHECK(DTypeError, !bitwise || !floating, op, ": ", to_string(reduction), " requires an integer or bool dtype",
               line_of(argument));
}

void check_rank(const char* op, const char* name, int rank, const ProcessGroupOptions& group) {
  TANDEM_CHECK(ValueError, rank >= 0 && rank < group.world_size, op, ": ", name, " ", rank, " is not in [0, ",
               group.world_size, ")");
}

void check_length(const char* op, const char* name, size_t length, const ProcessGroupOptions& group) {
  TANDEM_CHECK(ValueError, length == static_cast<size_t>(group.world_size), op, ": ", name, " has ", length,
               length == 1 ? " element" : " elements", " for a group of ", group.world_size, " ranks");
}

void check_apart(const char* op, const Argument& a, const Part& a_part, const Argument& b, const Part& b_part,
                 bool may_be_same) {
  const int64_t bytes = size_of(a.tensor.dtype());
  const bool overlap = a_part.data < b_part.data + b_part.num_elements * bytes &&
                       b_part.data < a_part.data + a_part.num_elements * bytes;
  const bool same = a_part.data == b_part.data && a_part.num_elements == b_part.num_elements;
  TANDEM_CHECK(ValueError, !overlap || (same && may_be_same), op, ": ", to_string(a), " and ", to_string(b),
               " share memory; pass tensors that do not overlap", lines(a, b));
}

std::byte* memory_of(Operation& operation, const Tensor& tensor, bool reads, bool writes) {
  if (tensor.is_contiguous()) {
    operation.kept.push_back(tensor);
    return tensor.data_ptr();
  }
  const Tensor copy = empty(tensor.shape(), tensor.options());
  operation.kept.push_back(copy);
  if (reads) operation.before.push_back({tensor, copy});
  if (writes) operation.after.push_back({copy, tensor});
  return copy.data_ptr();
}

void bump_versions(const char* op, std::span<const Tensor> results) {
  for (const Tensor& tensor : results) tensor.storage()->bump_version(op);
}

std::chrono::milliseconds timeout_of(const char* op, const CollectiveOptions& options,
                                     const ProcessGroupOptions& group) {
  const std::chrono::milliseconds timeout = checked_timeout(op, options.timeout);
  return options.timeout.count() > 0 ? timeout : group.timeout;
}

std::chrono::milliseconds checked_timeout(const char* op, std::chrono::milliseconds timeout) {
  TANDEM_CHECK(ValueError, timeout.count() >= 0, op, ": timeout must not be negative, got ", timeout.count(), " ms");
  // The sum of a time point and the timeout must not overflow.
  constexpr std::chrono::hours kLongest(24 * 365 * 100);
  return timeout > kLongest ? std::chrono::milliseconds(0) : timeout;
}

void describe_collective(CollectiveOperation& operation, const ProcessGroupOptions& group, CollectiveKind kind,
                         const Tensor& tensor, CollectiveOptions&& options, int root, ReduceOp op) {
  Collective& c = operation.collective;
  operation.timeout = timeout_of(to_string(kind), options, group);
  c.kind = kind;
  c.root = root;
  c.op = op;
  c.name = std::move(options.name);
  c.name_hash = hash_name(c.name);
  c.where = options.where;
  if (!tensor.defined()) return;
  c.device = tensor.device();
  c.on_gpu = !c.device.is_cpu();
  c.dtype = tensor.dtype();
  c.shape = tensor.shape();
  c.num_elements = tensor.numel();
  c.shape_hash = hash_shape(c.shape);
}

}}}  // namespace tandem::v0::distributed
