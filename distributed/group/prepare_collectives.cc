// Checks the tensors of each collective, and prepares its operation.
#include <numeric>
#include <span>

#include <tandem/distributed/group/argument_checks.h>
#include <tandem/distributed/group/gpu_messages.h>
#include <tandem/tensor/cuda_capture.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

std::vector<Part> memory_of(Operation& operation, const Parts& parts, int world_size) {
  const auto memory = parts.is_result ? memory_to_write : memory_to_read;
  std::vector<Part> result;
  if (parts.is_list) {
    for (const Tensor& tensor : parts.tensors)
      result.push_back({memory(operation, tensor), tensor.numel(), tensor.shape()});
    return result;
  }
  const Tensor& tensor = parts.tensors[0];
  const int64_t count = tensor.numel() / world_size;
  Shape row = tensor.shape();
  row.erase(0);
  std::byte* const begin = memory(operation, tensor);
  for (int rank = 0; rank < world_size; ++rank) {
    result.push_back({begin + rank * count * size_of(tensor.dtype()), count, row});
  }
  return result;
}

/// Checks that all parts have the shape, dtype and device of `one`.
void check_parts(const char* op, const Parts& parts, const Argument& one, const ProcessGroupOptions& group) {
  const auto check = parts.is_result ? check_writable : check_argument;
  Shape wanted = one.tensor.shape();
  if (parts.is_list) {
    check_length(op, parts.name, parts.tensors.size(), group);
  } else {
    wanted.insert(0, group.world_size);
  }
  for (size_t i = 0; i < parts.tensors.size(); ++i) {
    check(op, parts.argument(i), group);
    check_alike(op, parts.argument(i), one);
    check_shape(op, parts.argument(i), wanted, one);
  }
}

/// On root: check_parts. On other ranks: checks that there are no parts.
void check_parts_of_root(const char* op, const Parts& parts, const Argument& one, const ProcessGroupOptions& group,
                         int root) {
  if (root == group.rank) return check_parts(op, parts, one, group);
  if (!parts.is_list && parts.tensors[0].defined()) {
    refuse(op, parts.argument(0), str("undefined on ranks other than root ", root));
  }
  TANDEM_CHECK(ValueError, !parts.is_list || parts.tensors.empty(), op, ": ", parts.name,
               " must be empty on ranks other than root ", root, ", but has ", parts.tensors.size(),
               parts.tensors.size() == 1 ? " element" : " elements");
}

/// Checks that no part overlaps `one`. Only part `same` may be `one` itself (-1: no part).
void check_parts_apart(const char* op, const Parts& parts, const std::vector<Part>& memory, const Argument& one,
                       const Part& one_memory, int same) {
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    check_apart(op, parts.argument(rank), memory[rank], one, one_memory, static_cast<int>(rank) == same);
  }
}

/// Checks that the results of a list do not overlap each other.
void check_results_apart(const char* op, const Parts& parts, const std::vector<Part>& memory) {
  if (!parts.is_list) return;
  for (size_t a = 0; a < memory.size(); ++a) {
    for (size_t b = a + 1; b < memory.size(); ++b) {
      check_apart(op, parts.argument(a), memory[a], parts.argument(b), memory[b], false);
    }
  }
}

/// The parts have their own sizes and shapes, which each pair of ranks compares.
void finish_all_to_all(CollectiveOperation& operation, const Parts& outputs, const Parts& inputs) {
  constexpr const char* kOp = "all_to_all";
  Collective& c = operation.collective;
  for (size_t from = 0; from < c.inputs.size(); ++from) {
    check_parts_apart(kOp, outputs, c.outputs, inputs.argument(from), c.inputs[from], -1);
  }
  check_results_apart(kOp, outputs, c.outputs);
  c.num_elements = 0;
  c.shape_hash = 0;
  bump_versions(kOp, outputs.tensors);
}

}  // namespace

void prepare_all_reduce(CollectiveOperation& operation, const ProcessGroupOptions& group, const Tensor& tensor,
                        ReduceOp op, CollectiveOptions&& options) {
  constexpr const char* kOp = "all_reduce";
  const Argument argument{"tensor", tensor};
  check_writable(kOp, argument, group);
  check_reduce_op(kOp, op, argument);
  describe_collective(operation, group, CollectiveKind::kAllReduce, tensor, std::move(options));
  Collective& c = operation.collective;
  c.op = op;
  c.output = memory_to_update(operation, tensor);
  c.input = c.output;
  tensor.storage()->bump_version(kOp);
}

void prepare_all_reduce_into(CollectiveOperation& operation, const ProcessGroupOptions& group, const Tensor& output,
                             const Tensor& input, ReduceOp op, CollectiveOptions&& options) {
  constexpr const char* kOp = "all_reduce";
  const Argument out{"output", output};
  const Argument in{"input", input};
  check_writable(kOp, out, group);
  check_argument(kOp, in, group);
  check_alike(kOp, out, in);
  check_shape(kOp, out, input.shape(), in);
  check_reduce_op(kOp, op, in);
  describe_collective(operation, group, CollectiveKind::kAllReduce, input, std::move(options));
  Collective& c = operation.collective;
  c.op = op;
  std::byte* const memory = memory_to_read(operation, input);
  c.input = memory;
  c.output = memory_to_write(operation, output);
  check_apart(kOp, out, {c.output, c.num_elements}, in, {memory, c.num_elements}, true);
  output.storage()->bump_version(kOp);
}

void prepare_reduce(CollectiveOperation& operation, const ProcessGroupOptions& group, const Tensor& tensor, int root,
                    ReduceOp op, CollectiveOptions&& options) {
  constexpr const char* kOp = "reduce";
  const Argument argument{"tensor", tensor};
  check_rank(kOp, "root", root, group);
  check_writable(kOp, argument, group);  // on all ranks, so that all get the error
  check_reduce_op(kOp, op, argument);
  describe_collective(operation, group, CollectiveKind::kReduce, tensor, std::move(options));
  Collective& c = operation.collective;
  c.op = op;
  c.root = root;
  if (root != group.rank) {
    c.input = memory_to_read(operation, tensor);
    return;
  }
  c.output = memory_to_update(operation, tensor);
  c.input = c.output;
  tensor.storage()->bump_version(kOp);
}

void prepare_broadcast(CollectiveOperation& operation, const ProcessGroupOptions& group, const Tensor& tensor, int root,
                       CollectiveOptions&& options) {
  constexpr const char* kOp = "broadcast";
  check_writable(kOp, {"tensor", tensor}, group);
  check_rank(kOp, "root", root, group);
  describe_collective(operation, group, CollectiveKind::kBroadcast, tensor, std::move(options));
  Collective& c = operation.collective;
  c.root = root;
  c.output = root == group.rank ? memory_to_read(operation, tensor) : memory_to_write(operation, tensor);
  c.input = c.output;
  tensor.storage()->bump_version(kOp);
}

void prepare_gather(CollectiveOperation& operation, const ProcessGroupOptions& group, const Outputs& outputs,
                    const Tensor& input, int root, CollectiveOptions&& options) {
  constexpr const char* kOp = "gather";
  check_rank(kOp, "root", root, group);
  const Argument in{"input", input};
  check_argument(kOp, in, group);
  check_parts_of_root(kOp, outputs, in, group, root);
  describe_collective(operation, group, CollectiveKind::kGather, input, std::move(options));
  Collective& c = operation.collective;
  c.root = root;
  std::byte* const memory = memory_to_read(operation, input);
  c.input = memory;
  if (root != group.rank) return;
  c.outputs = memory_of(operation, outputs, group.world_size);
  check_parts_apart(kOp, outputs, c.outputs, in, {memory, c.num_elements}, group.rank);
  check_results_apart(kOp, outputs, c.outputs);
  bump_versions(kOp, outputs.tensors);
}

void prepare_all_gather(CollectiveOperation& operation, const ProcessGroupOptions& group, const Outputs& outputs,
                        const Tensor& input, CollectiveOptions&& options) {
  constexpr const char* kOp = "all_gather";
  const Argument in{"input", input};
  check_argument(kOp, in, group);
  bool equal = true;
  if (outputs.is_list) {
    check_length(kOp, outputs.name, outputs.tensors.size(), group);
    for (size_t rank = 0; rank < outputs.tensors.size(); ++rank) {
      check_writable(kOp, outputs.argument(rank), group);
      check_alike(kOp, outputs.argument(rank), in);
      equal &= outputs.tensors[rank].shape() == input.shape();
    }
    check_shape(kOp, outputs.argument(static_cast<size_t>(group.rank)), input.shape(), in);
    if (!equal) {
      // Inputs may differ between ranks. The name contains all shapes and is compared.
      options.name += options.name.empty() ? "into" : " into";
      for (const Tensor& output : outputs.tensors) options.name += str(" ", output.shape());
    }
  } else {
    check_parts(kOp, outputs, in, group);
  }
  describe_collective(operation, group, CollectiveKind::kAllGather, input, std::move(options));
  Collective& c = operation.collective;
  if (!equal) c.shape_hash = 0;
  c.in_list = c.on_gpu && outputs.is_list;
  std::byte* const memory = memory_to_read(operation, input);
  c.input = memory;
  c.outputs = memory_of(operation, outputs, group.world_size);
  check_parts_apart(kOp, outputs, c.outputs, in, {memory, c.num_elements}, group.rank);
  check_results_apart(kOp, outputs, c.outputs);
  c.num_elements = 0;
  for (const Part& part : c.outputs) c.num_elements += part.num_elements;
  bump_versions(kOp, outputs.tensors);
}

void prepare_scatter(CollectiveOperation& operation, const ProcessGroupOptions& group, const Tensor& output,
                     const Inputs& inputs, int root, CollectiveOptions&& options) {
  constexpr const char* kOp = "scatter";
  check_rank(kOp, "root", root, group);
  const Argument out{"output", output};
  check_writable(kOp, out, group);
  check_parts_of_root(kOp, inputs, out, group, root);
  describe_collective(operation, group, CollectiveKind::kScatter, output, std::move(options));
  Collective& c = operation.collective;
  c.root = root;
  c.output = memory_to_write(operation, output);
  if (root == group.rank) {
    c.inputs = memory_of(operation, inputs, group.world_size);
    check_parts_apart(kOp, inputs, c.inputs, out, {c.output, c.num_elements}, group.rank);
  }
  output.storage()->bump_version(kOp);
}

void prepare_reduce_scatter(CollectiveOperation& operation, const ProcessGroupOptions& group, const Tensor& output,
                            const Inputs& inputs, ReduceOp op, CollectiveOptions&& options) {
  constexpr const char* kOp = "reduce_scatter";
  const Argument out{"output", output};
  check_writable(kOp, out, group);
  check_parts(kOp, inputs, out, group);
  check_reduce_op(kOp, op, out);
  describe_collective(operation, group, CollectiveKind::kReduceScatter, output, std::move(options));
  Collective& c = operation.collective;
  c.op = op;
  c.in_list = c.on_gpu && inputs.is_list;
  c.output = memory_to_write(operation, output);
  c.inputs = memory_of(operation, inputs, group.world_size);
  check_parts_apart(kOp, inputs, c.inputs, out, {c.output, c.num_elements}, group.rank);
  output.storage()->bump_version(kOp);
}

void prepare_all_to_all(CollectiveOperation& operation, const ProcessGroupOptions& group, const Outputs& outputs,
                        const Inputs& inputs, CollectiveOptions&& options) {
  constexpr const char* kOp = "all_to_all";
  if (outputs.is_list) {
    check_length(kOp, outputs.name, outputs.tensors.size(), group);
    check_length(kOp, inputs.name, inputs.tensors.size(), group);
  }
  for (size_t i = 0; i < inputs.tensors.size(); ++i) {
    check_writable(kOp, outputs.argument(i), group);
    check_argument(kOp, inputs.argument(i), group);
    check_alike(kOp, outputs.argument(i), inputs.argument(0));
    check_alike(kOp, inputs.argument(i), inputs.argument(0));
  }
  const size_t own = outputs.is_list ? static_cast<size_t>(group.rank) : 0;
  const Tensor& input = inputs.tensors[own];
  if (!outputs.is_list && (input.dim() == 0 || input.size(0) != group.world_size)) {
    refuse<ShapeError>(kOp, inputs.argument(0), str("[", group.world_size, ", ...]"));
  }
  check_shape(kOp, outputs.argument(own), input.shape(), inputs.argument(own));
  describe_collective(operation, group, CollectiveKind::kAllToAll, input, std::move(options));
  operation.collective.outputs = memory_of(operation, outputs, group.world_size);
  operation.collective.inputs = memory_of(operation, inputs, group.world_size);
  finish_all_to_all(operation, outputs, inputs);
}

void prepare_all_to_all_of_splits(CollectiveOperation& operation, const ProcessGroupOptions& group,
                                  const Tensor& output, const Tensor& input, const Splits& output_splits,
                                  const Splits& input_splits, CollectiveOptions&& options) {
  constexpr const char* kOp = "all_to_all";
  const Argument out{"output", output};
  const Argument in{"input", input};
  check_writable(kOp, out, group);
  check_argument(kOp, in, group);
  check_alike(kOp, out, in);
  const auto check_splits = [&](const Argument& argument, const char* name, const Splits& splits) {
    check_length(kOp, name, splits.size(), group);
    for (const int64_t rows : splits) {
      TANDEM_CHECK(ValueError, rows >= 0, kOp, ": ", name, " ", to_string(Shape(splits)), " has a negative element");
    }
    const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
    if (argument.tensor.dim() == 0 || argument.tensor.size(0) != sum) {
      refuse<ShapeError>(kOp, argument, str("[", sum, ", ...] for ", name, " ", to_string(Shape(splits))));
    }
  };
  check_splits(out, "output_splits", output_splits);
  check_splits(in, "input_splits", input_splits);
  Shape wanted = input.shape();
  wanted[0] = output.size(0);
  check_shape(kOp, out, wanted, in);
  const auto own = static_cast<size_t>(group.rank);
  TANDEM_CHECK(ValueError, output_splits[own] == input_splits[own], kOp, ": output_splits[", own, "] (",
               output_splits[own], ") and input_splits[", own, "] (", input_splits[own],
               ") must be equal: both count the rows that this rank sends to itself");

  describe_collective(operation, group, CollectiveKind::kAllToAll, input, std::move(options));
  Shape row = input.shape();
  row.erase(0);
  const int64_t row_elements = num_elements(row);
  const auto split = [&](std::byte* begin, const Splits& splits) {
    std::vector<Part> parts;
    for (const int64_t rows : splits) {
      Shape part = row;
      part.insert(0, rows);
      parts.push_back({begin, rows * row_elements, part});
      begin += rows * row_elements * size_of(input.dtype());
    }
    return parts;
  };
  operation.collective.outputs = split(memory_to_write(operation, output), output_splits);
  operation.collective.inputs = split(memory_to_read(operation, input), input_splits);
  finish_all_to_all(operation, Outputs(output), Inputs(input));
}

void prepare_barrier(CollectiveOperation& operation, const ProcessGroupOptions& group, CollectiveOptions&& options) {
  describe_collective(operation, group, CollectiveKind::kBarrier, {}, std::move(options));
}

void prepare_message(Message& message, const char* op, const ProcessGroupOptions& group, const P2POp& what,
                     CollectiveOptions&& options) {
  const Argument argument{"tensor", what.tensor};
  const bool sends = what.kind == P2POp::Kind::kSend;
  const char* const peer_name = sends ? "dst" : "src";
  check_rank(op, peer_name, what.peer, group);
  TANDEM_CHECK(ValueError, what.peer != group.rank, op, ": ", peer_name, " ", what.peer, " is the calling rank");
  TANDEM_CHECK(ValueError, what.tag >= 0, op, ": tag ", what.tag, " is negative");
  if (sends) {
    check_argument(op, argument, group);
  } else {
    check_writable(op, argument, group);
  }
  if (!what.tensor.device().is_cpu()) cuda::check_not_capturing("a message");
  message.timeout = timeout_of(op, options, group);
  message.shown_peer = job_rank(group, what.peer);
  P2pRequest& t = message.transfer;
  t.sends = sends;
  t.peer = what.peer;
  t.tag = what.tag;
  t.dtype = what.tensor.dtype();
  t.num_elements = what.tensor.numel();
  t.shape = what.tensor.shape();
  t.shape_hash = hash_shape(t.shape);
  t.name = std::move(options.name);
  t.name_hash = hash_name(t.name);
  t.where = options.where;
  std::byte* const data = sends ? memory_to_read(message, what.tensor) : memory_to_write(message, what.tensor);
  if (what.tensor.device().is_cpu() || t.num_elements == 0) {
    t.data = data;
  } else {
    message.gpu = std::make_shared<GpuMessage>(what.tensor, message, data);
    message.join = [gpu = message.gpu] { gpu->join(); };
  }
  if (!sends) what.tensor.storage()->bump_version("recv");
}

}}}  // namespace tandem::v0::distributed
