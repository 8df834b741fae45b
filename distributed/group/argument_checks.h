// Argument checks, and preparation of operations. Private to distributed/.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <tandem/distributed/group/operation.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// An argument and its name in errors: "output", "outputs[3]".
struct Argument {
  const char* name;
  const Tensor& tensor;
  int index = -1;
};

std::string to_string(const Argument& argument);
/// Shown at the end of an error: "\n  output  float32 [3, 4] on cpu". `width`: of the name.
std::string line_of(const Argument& argument, size_t width = 0);

using Tensors = std::vector<Tensor>;
using Splits = std::vector<int64_t>;

/// An argument with one part per rank: one tensor [size(), ...], or a list.
struct Parts {
  const char* name;
  std::span<const Tensor> tensors;
  bool is_list;
  bool is_result;

  Argument argument(size_t rank) const {
    return is_list ? Argument{name, tensors[rank], static_cast<int>(rank)} : Argument{name, tensors[0]};
  }
};
struct Outputs : Parts {
  Outputs(const Tensor& tensor) : Parts{"output", {&tensor, 1}, false, true} {}
  Outputs(const Tensors& list) : Parts{"outputs", list, true, true} {}
};
struct Inputs : Parts {
  Inputs(const Tensor& tensor) : Parts{"input", {&tensor, 1}, false, false} {}
  Inputs(const Tensors& list) : Parts{"inputs", list, true, false} {}
};

// --- checks; they throw the errors of base/error.h, "op: what is wrong" and the arguments ---

/// Checks that the tensor is defined and on a supported device: a CPU device, or a GPU if the group has NCCL or one
/// rank.
void check_argument(const char* op, const Argument& argument, const ProcessGroupOptions& group);
/// Also checks that no two elements share memory.
void check_writable(const char* op, const Argument& argument, const ProcessGroupOptions& group);
/// Checks that both are on one device.
void check_same_device(const char* op, const Argument& a, const Argument& b);
/// Checks that both have one dtype and are on one device.
void check_alike(const char* op, const Argument& a, const Argument& b);
void check_shape(const char* op, const Argument& argument, const Shape& wanted, const Argument& other);
void check_reduce_op(const char* op, ReduceOp reduction, const Argument& argument);
/// `name`: "root", "dst".
void check_rank(const char* op, const char* name, int rank, const ProcessGroupOptions& group);
/// Checks that the list has one tensor per rank.
void check_length(const char* op, const char* name, size_t length, const ProcessGroupOptions& group);

/// Checks that a result and an input do not share memory. `may_be_same`: they may be identical.
void check_apart(const char* op, const Argument& a, const Part& a_part, const Argument& b, const Part& b_part,
                 bool may_be_same);

// --- row-major memory; the operation keeps it and makes the copies ---

/// The memory of a tensor that the operation reads or writes; of a copy if the tensor is not row-major.
std::byte* memory_of(Operation& operation, const Tensor& tensor, bool reads, bool writes);
/// Marks the results as changed from the start of the operation on.
void bump_versions(const char* op, std::span<const Tensor> results);

/// Sets the arguments, name, call site and timeout, and dtype, shape and count of `tensor`, which is undefined for a
/// barrier.
void describe_collective(CollectiveOperation& operation, const ProcessGroupOptions& group, CollectiveKind kind,
                         const Tensor& tensor, CollectiveOptions&& options, int root = -1,
                         ReduceOp op = ReduceOp::kSum);
/// Checks that the timeout is not negative. Returns 0 (no timeout) also for a timeout that is too long for a clock.
std::chrono::milliseconds checked_timeout(const char* op, std::chrono::milliseconds timeout);
/// `options.timeout`, else the group's; 0 means no timeout.
std::chrono::milliseconds timeout_of(const char* op, const CollectiveOptions& options,
                                     const ProcessGroupOptions& group);

// --- operations; each is checked and complete except for its number ---

/// all_reduce, reduce or broadcast of one tensor. A collective without root has the root -1.
void prepare_in_place(CollectiveOperation& operation, const ProcessGroupOptions& group, CollectiveKind kind,
                      const Tensor& tensor, int root, ReduceOp op, CollectiveOptions&& options);
void prepare_all_reduce_into(CollectiveOperation& operation, const ProcessGroupOptions& group, const Tensor& output,
                             const Tensor& input, ReduceOp op, CollectiveOptions&& options);
/// gather or all_gather of `tensor`, or scatter or reduce_scatter into it.
void prepare_parts(CollectiveOperation& operation, const ProcessGroupOptions& group, CollectiveKind kind,
                   const Parts& parts, const Tensor& tensor, int root, ReduceOp op, CollectiveOptions&& options);
void prepare_all_to_all(CollectiveOperation& operation, const ProcessGroupOptions& group, const Outputs& outputs,
                        const Inputs& inputs, CollectiveOptions&& options);
void prepare_all_to_all_of_splits(CollectiveOperation& operation, const ProcessGroupOptions& group,
                                  const Tensor& output, const Tensor& input, const Splits& output_splits,
                                  const Splits& input_splits, CollectiveOptions&& options);
void prepare_message(Message& message, const char* op, const ProcessGroupOptions& group, const P2POp& what,
                     CollectiveOptions&& options);

/// all_reduce or broadcast of a list: the last operation of the call, with the earlier ones.
void prepare_coalesced_in_place(CollectiveOperation& last, const ProcessGroupOptions& group, CollectiveKind kind,
                                const Tensors& tensors, int root, ReduceOp op, CollectiveOptions&& options);
/// all_gather or reduce_scatter of lists, as above.
void prepare_coalesced_parts(CollectiveOperation& last, const ProcessGroupOptions& group, CollectiveKind kind,
                             const Tensors& outputs, const Tensors& inputs, ReduceOp op, CollectiveOptions&& options);

}}}  // namespace tandem::v0::distributed
