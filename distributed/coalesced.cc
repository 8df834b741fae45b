// Lists of tensors in one operation per dtype: packed into flat memory when it begins, and unpacked at its end.
#include <map>
#include <memory>

#include <tandem/distributed/operands.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::distributed {

namespace {

/// The places of a list's tensors of one dtype in flat memory.
struct Pack {
  std::vector<size_t> indices;
  std::vector<int64_t> offsets;
  int64_t count = 0;

  void add(size_t index, int64_t num_elements) {
    indices.push_back(index);
    offsets.push_back(count);
    count += num_elements;
  }
};

/// By dtype, in one order for all ranks.  An empty list is one operation without elements, so that ranks notice where
/// others have a longer one.
std::map<DType, Pack> pack_by_dtype(const Tensors& tensors) {
  std::map<DType, Pack> packs;
  for (size_t i = 0; i < tensors.size(); ++i) packs[tensors[i].dtype()].add(i, tensors[i].num_elements());
  if (tensors.empty()) packs[kFloat32];
  return packs;
}

/// A part of flat memory as a tensor of that shape; where there are `rows` > 0, of [rows, ...] with the flat memory
/// being [rows, n].
Tensor place(const Tensor& flat, const Shape& shape, int64_t offset, int64_t rows) {
  Shape strides = row_major_strides(shape);
  if (rows > 0) strides[0] = flat.size(-1);
  return make_view(flat.storage(), flat.dtype(), shape, strides, offset);
}

/// The list as the signature shows and compares it, beside what one operation shows: its length and all sizes.
struct ListName {
  std::string shown;
  uint64_t hash;

  ListName(const std::string& name, const Tensors& tensors) {
    const std::string list = str(tensors.size(), tensors.size() == 1 ? " tensor" : " tensors");
    shown = name.empty() ? list : name + ", " + list;
    std::string sizes = shown;
    for (const Tensor& tensor : tensors) sizes += str(" ", tensor.dtype(), " ", tensor.num_elements());
    hash = hash_name(sizes);
  }
};

void check_equal_lengths(const char* op, const Tensors& outputs, const Tensors& inputs) {
  TANDEM_CHECK(ValueError, outputs.size() == inputs.size(), op, ": outputs and inputs have ", outputs.size(), " and ",
               inputs.size(), " elements");
}

/// Checks that larger[i] is [size(), ...] of smaller[i].
void check_stacked(const char* op, const ProcessGroupOptions& group, const Operand& larger, const Operand& smaller) {
  check_alike(op, larger, smaller);
  Shape wanted = smaller.tensor.shape();
  wanted.insert(0, group.world_size);
  check_shape(op, larger, wanted, smaller);
}

std::shared_ptr<CollectiveOperation> finish(std::shared_ptr<CollectiveOperation> operation, const ListName& name) {
  operation->collective.name_hash = name.hash;
  return operation;
}

void bump_versions(const char* op, const Tensors& results) {
  for (const Tensor& tensor : results) tensor.storage()->bump_version(op);
}

Tensor flat_memory(const Shape& shape, DType dtype, const Tensors& like) {
  return empty(shape, {dtype, like.empty() ? Device() : like.front().device()});
}

}  // namespace

Operations prepare_all_reduce_coalesced(const ProcessGroupOptions& group, const Tensors& tensors, ReduceOp op,
                                        CollectiveOptions&& options) {
  constexpr const char* kOp = "all_reduce_coalesced";
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Operand operand{"tensors", tensors[i], static_cast<int>(i)};
    check_writable(kOp, operand);
    check_reduce_op(kOp, op, operand);
  }
  const ListName name(options.name, tensors);
  options.name = name.shown;
  Operations operations;
  for (const auto& [dtype, pack] : pack_by_dtype(tensors)) {
    const auto operation = std::make_shared<CollectiveOperation>();
    const Tensor flat = flat_memory({pack.count}, dtype, tensors);
    prepare_all_reduce(*operation, group, flat, tensors.empty() ? ReduceOp::kSum : op, CollectiveOptions(options));
    for (size_t k = 0; k < pack.indices.size(); ++k) {
      const Tensor& tensor = tensors[pack.indices[k]];
      const Tensor part = place(flat, tensor.shape(), pack.offsets[k], 0);
      operation->before.push_back({tensor, part});
      operation->after.push_back({part, tensor});
    }
    operations.push_back(finish(operation, name));
  }
  bump_versions(kOp, tensors);
  return operations;
}

Operations prepare_broadcast_coalesced(const ProcessGroupOptions& group, const Tensors& tensors, int root,
                                       CollectiveOptions&& options) {
  constexpr const char* kOp = "broadcast_coalesced";
  check_rank(kOp, "root", root, group);
  for (size_t i = 0; i < tensors.size(); ++i) check_writable(kOp, {"tensors", tensors[i], static_cast<int>(i)});
  const ListName name(options.name, tensors);
  options.name = name.shown;
  Operations operations;
  for (const auto& [dtype, pack] : pack_by_dtype(tensors)) {
    const auto operation = std::make_shared<CollectiveOperation>();
    const Tensor flat = flat_memory({pack.count}, dtype, tensors);
    prepare_broadcast(*operation, group, flat, root, CollectiveOptions(options));
    for (size_t k = 0; k < pack.indices.size(); ++k) {
      const Tensor& tensor = tensors[pack.indices[k]];
      const Tensor part = place(flat, tensor.shape(), pack.offsets[k], 0);
      if (root == group.rank) {
        operation->before.push_back({tensor, part});
      } else {
        operation->after.push_back({part, tensor});
      }
    }
    operations.push_back(finish(operation, name));
  }
  bump_versions(kOp, tensors);
  return operations;
}

Operations prepare_all_gather_coalesced(const ProcessGroupOptions& group, const Tensors& outputs, const Tensors& inputs,
                                        CollectiveOptions&& options) {
  constexpr const char* kOp = "all_gather_coalesced";
  check_equal_lengths(kOp, outputs, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Operand input{"inputs", inputs[i], static_cast<int>(i)};
    const Operand output{"outputs", outputs[i], static_cast<int>(i)};
    check_operand(kOp, input);
    check_writable(kOp, output);
    check_stacked(kOp, group, output, input);
  }
  const ListName name(options.name, inputs);
  options.name = name.shown;
  Operations operations;
  for (const auto& [dtype, pack] : pack_by_dtype(inputs)) {
    const auto operation = std::make_shared<CollectiveOperation>();
    const Tensor flat_input = flat_memory({pack.count}, dtype, inputs);
    const Tensor flat_output = flat_memory({group.world_size, pack.count}, dtype, inputs);
    prepare_all_gather(*operation, group, flat_output, flat_input, CollectiveOptions(options));
    for (size_t k = 0; k < pack.indices.size(); ++k) {
      const Tensor& input = inputs[pack.indices[k]];
      const Tensor& output = outputs[pack.indices[k]];
      operation->before.push_back({input, place(flat_input, input.shape(), pack.offsets[k], 0)});
      operation->after.push_back({place(flat_output, output.shape(), pack.offsets[k], group.world_size), output});
    }
    operations.push_back(finish(operation, name));
  }
  bump_versions(kOp, outputs);
  return operations;
}

Operations prepare_reduce_scatter_coalesced(const ProcessGroupOptions& group, const Tensors& outputs,
                                            const Tensors& inputs, ReduceOp op, CollectiveOptions&& options) {
  constexpr const char* kOp = "reduce_scatter_coalesced";
  check_equal_lengths(kOp, outputs, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Operand input{"inputs", inputs[i], static_cast<int>(i)};
    const Operand output{"outputs", outputs[i], static_cast<int>(i)};
    check_operand(kOp, input);
    check_writable(kOp, output);
    check_stacked(kOp, group, input, output);
    check_reduce_op(kOp, op, output);
  }
  const ListName name(options.name, outputs);
  options.name = name.shown;
  Operations operations;
  for (const auto& [dtype, pack] : pack_by_dtype(outputs)) {
    const auto operation = std::make_shared<CollectiveOperation>();
    const Tensor flat_output = flat_memory({pack.count}, dtype, outputs);
    const Tensor flat_input = flat_memory({group.world_size, pack.count}, dtype, outputs);
    prepare_reduce_scatter(*operation, group, flat_output, flat_input, outputs.empty() ? ReduceOp::kSum : op,
                           CollectiveOptions(options));
    for (size_t k = 0; k < pack.indices.size(); ++k) {
      const Tensor& input = inputs[pack.indices[k]];
      const Tensor& output = outputs[pack.indices[k]];
      operation->before.push_back({input, place(flat_input, input.shape(), pack.offsets[k], group.world_size)});
      operation->after.push_back({place(flat_output, output.shape(), pack.offsets[k], 0), output});
    }
    operations.push_back(finish(operation, name));
  }
  bump_versions(kOp, outputs);
  return operations;
}

}  // namespace tandem::inline v0::distributed
