// Checks the tensors of each collective, and prepares its operation.
#include <functional>
#include <numeric>

#include <tandem/distributed/group/argument_checks.h>
#include <tandem/distributed/group/gpu_messages.h>
#include <tandem/tensor/cuda_capture.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

std::vector<Part> memories_of(Operation& operation, const Parts& parts, int world_size) {
  const auto memory = [&](const Tensor& tensor) {
    return memory_of(operation, tensor, !parts.is_result, parts.is_result);
  };
  std::vector<Part> result;
  if (parts.is_list) {
    for (const Tensor& tensor : parts.tensors) result.push_back({memory(tensor), tensor.numel(), tensor.shape()});
    return result;
  }
  const Tensor& tensor = parts.tensors[0];
  const int64_t count = tensor.numel() / world_size;
  Shape row = tensor.shape();
  row.erase(0);
  std::byte* const begin = memory(tensor);
  for (int rank = 0; rank < world_size; ++rank) {
    result.push_back({begin + rank * count * size_of(tensor.dtype()), count, row});
  }
  return result;
}

/// Checks that all parts have the dtype and device of `one`, and its shape, too. If `may_differ`, only this rank's part
/// must have its shape. Returns whether all have.
bool check_parts(const char* op, const Parts& parts, const Argument& one, const ProcessGroupOptions& group,
                 bool may_differ) {
  const auto check = parts.is_result ? check_writable : check_argument;
  bool are_equal = true;
  Shape wanted = one.tensor.shape();
  if (parts.is_list) {
    check_length(op, parts.name, parts.tensors.size(), group);
  } else {
    wanted.insert(0, group.world_size);
  }
  for (size_t i = 0; i < parts.tensors.size(); ++i) {
    check(op, parts.argument(i), group);
    check_alike(op, parts.argument(i), one);
    if (!may_differ || static_cast<int>(i) == group.rank) check_shape(op, parts.argument(i), wanted, one);
    are_equal &= parts.tensors[i].shape() == wanted;
  }
  return are_equal;
}

/// Checks that a rank other than root has no parts.
void check_no_parts(const char* op, const Parts& parts, int root) {
  TANDEM_CHECK(ValueError, parts.is_list || !parts.tensors[0].defined(), op, ": ", parts.name,
               " must be undefined on ranks other than root ", root, line_of(parts.argument(0)));
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

void prepare_in_place(CollectiveOperation& operation, const ProcessGroupOptions& group, CollectiveKind kind,
                      const Tensor& tensor, int root, ReduceOp op, CollectiveOptions&& options) {
  const char* const name = to_string(kind);
  const Argument argument{"tensor", tensor};
  if (kind != CollectiveKind::kAllReduce) check_rank(name, "root", root, group);
  check_writable(name, argument, group);  // on all ranks, so that all get the error
  if (is_reduction(kind)) check_reduce_op(name, op, argument);
  describe_collective(operation, group, kind, tensor, std::move(options), root, op);
  Collective& c = operation.collective;
  std::byte* const memory = memory_of(operation, tensor, c.contributes(group.rank), c.takes(group.rank));
  c.input = memory;
  if (kind == CollectiveKind::kReduce && root != group.rank) return;
  c.output = memory;
  tensor.storage()->bump_version(name);
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
  describe_collective(operation, group, CollectiveKind::kAllReduce, input, std::move(options), -1, op);
  Collective& c = operation.collective;
  std::byte* const memory = memory_of(operation, input, true, false);
  c.input = memory;
  c.output = memory_of(operation, output, false, true);
  check_apart(kOp, out, {c.output, c.num_elements}, in, {memory, c.num_elements}, true);
  output.storage()->bump_version(kOp);
}

void prepare_parts(CollectiveOperation& operation, const ProcessGroupOptions& group, CollectiveKind kind,
                   const Parts& parts, const Tensor& tensor, int root, ReduceOp op, CollectiveOptions&& options) {
  const char* const name = to_string(kind);
  const bool has_root = kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter;
  const bool has_parts = !has_root || root == group.rank;
  const Argument one{parts.is_result ? "input" : "output", tensor};
  if (has_root) check_rank(name, "root", root, group);
  parts.is_result ? check_argument(name, one, group) : check_writable(name, one, group);
  // Inputs of an all_gather may differ between ranks. Then the name contains all shapes and is compared.
  const bool may_differ = kind == CollectiveKind::kAllGather && parts.is_list;
  bool are_equal = true;
  if (has_parts) {
    are_equal = check_parts(name, parts, one, group, may_differ);
  } else {
    check_no_parts(name, parts, root);
  }
  if (!are_equal) {
    options.name += options.name.empty() ? "into" : " into";
    for (const Tensor& output : parts.tensors) options.name += str(" ", output.shape());
  }
  if (is_reduction(kind)) check_reduce_op(name, op, one);
  describe_collective(operation, group, kind, tensor, std::move(options), root, op);
  Collective& c = operation.collective;
  c.in_list = c.on_gpu && parts.is_list && !has_root;
  if (!are_equal) c.shape_hash = 0;
  std::byte* const memory = memory_of(operation, tensor, parts.is_result, !parts.is_result);
  if (parts.is_result) {
    c.input = memory;
  } else {
    c.output = memory;
  }
  if (has_parts) {
    std::vector<Part>& of_ranks = parts.is_result ? c.outputs : c.inputs;
    of_ranks = memories_of(operation, parts, group.world_size);
    check_parts_apart(name, parts, of_ranks, one, {memory, c.num_elements}, group.rank);
    if (parts.is_result) check_results_apart(name, parts, of_ranks);
    if (kind == CollectiveKind::kAllGather) {
      c.num_elements = std::transform_reduce(of_ranks.begin(), of_ranks.end(), int64_t{0}, std::plus<>(),
                                             [](const Part& part) { return part.num_elements; });
    }
    if (parts.is_result) bump_versions(name, parts.tensors);
  }
  if (!parts.is_result) tensor.storage()->bump_version(name);
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
  TANDEM_CHECK(ShapeError, outputs.is_list || (input.dim() > 0 && input.size(0) == group.world_size), kOp,
               ": input must be [", group.world_size, ", ...]", line_of(inputs.argument(0)));
  check_shape(kOp, outputs.argument(own), input.shape(), inputs.argument(own));
  describe_collective(operation, group, CollectiveKind::kAllToAll, input, std::move(options));
  operation.collective.outputs = memories_of(operation, outputs, group.world_size);
  operation.collective.inputs = memories_of(operation, inputs, group.world_size);
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
    TANDEM_CHECK(ShapeError, argument.tensor.dim() > 0 && argument.tensor.size(0) == sum, kOp, ": ", argument.name,
                 " must be [", sum, ", ...] for ", name, " ", to_string(Shape(splits)), line_of(argument));
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
  const auto split = [&](std::byte* begin, const Splits& splits) {
    std::vector<Part> parts;
    Shape shape = input.shape();
    for (const int64_t rows : splits) {
      shape[0] = rows;
      parts.push_back({begin, num_elements(shape), shape});
      begin += num_elements(shape) * size_of(input.dtype());
    }
    return parts;
  };
  operation.collective.outputs = split(memory_of(operation, output, false, true), output_splits);
  operation.collective.inputs = split(memory_of(operation, input, true, false), input_splits);
  finish_all_to_all(operation, Outputs(output), Inputs(input));
}

void prepare_message(Message& message, const char* op, const ProcessGroupOptions& group, const P2POp& what,
                     CollectiveOptions&& options) {
  const Argument argument{"tensor", what.tensor};
  const bool sends = what.kind == P2POp::Kind::kSend;
  const char* const peer_name = sends ? "dst" : "src";
  check_rank(op, peer_name, what.peer, group);
  TANDEM_CHECK(ValueError, what.peer != group.rank, op, ": ", peer_name, " ", what.peer, " is the calling rank");
  TANDEM_CHECK(ValueError, what.tag >= 0, op, ": tag ", what.tag, " is negative");
  sends ? check_argument(op, argument, group) : check_writable(op, argument, group);
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
  std::byte* const data = memory_of(message, what.tensor, sends, !sends);
  if (what.tensor.device().is_cpu() || t.num_elements == 0) {
    t.data = data;
  } else {
    message.gpu = std::make_shared<GpuMessage>(what.tensor, message, data);
    message.join = [gpu = message.gpu] { gpu->join(); };
  }
  if (!sends) what.tensor.storage()->bump_version("recv");
}

}}}  // namespace tandem::v0::distributed
