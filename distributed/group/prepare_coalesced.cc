// Lists of tensors: one operation per dtype, packed into flat memory when it begins and unpacked when it ends.
#include <map>
#include <memory>
#include <utility>

#include <tandem/distributed/group/argument_checks.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// A list's tensors of one dtype in flat memory.
struct Pack {
  TensorOptions options;
  std::vector<std::pair<size_t, int64_t>> places;  // index in the list and offset in the memory
  int64_t count = 0;
};

/// Packs by dtype, in the same order on all ranks. An empty list becomes one operation with zero elements, so that a
/// longer list on another rank is detected as a mismatch.
std::map<DType, Pack> pack_by_dtype(const Tensors& list) {
  std::map<DType, Pack> packs;
  for (size_t i = 0; i < list.size(); ++i) {
    Pack& pack = packs[list[i].dtype()];
    pack.options = list[i].options();
    pack.places.emplace_back(i, pack.count);
    pack.count += list[i].numel();
  }
  if (list.empty()) packs[kFloat32];
  return packs;
}

/// A view of a tensor of that shape in flat memory [n], or of [rows, ...] in flat memory [rows, n].
Tensor place(const Tensor& flat, const Shape& shape, int64_t offset) {
  Shape strides = row_major_strides(shape);
  if (flat.dim() == 2) strides[0] = flat.size(1);
  return make_view(flat.storage(), flat.dtype(), shape, strides, offset);
}

/// Copies to flat memory when the operation begins, and from it when it ends.
void add_copies(Operation& operation, const Pack& pack, const Tensors* in, const Tensor& flat_in, const Tensors* out,
                const Tensor& flat_out) {
  for (const auto& [i, offset] : pack.places) {
    if (in != nullptr) operation.before.push_back({(*in)[i], place(flat_in, (*in)[i].shape(), offset)});
    if (out != nullptr) operation.after.push_back({place(flat_out, (*out)[i].shape(), offset), (*out)[i]});
  }
}

/// "float32 [2, 3], 12 x [4], int32 [5]", with "and 7 more" if the text is too long for an error.
std::string describe_list(const Tensors& list) {
  constexpr size_t kRoomForMore = 32;
  std::string text;
  for (size_t begin = 0, end = 0; begin < list.size(); begin = end) {
    const DType dtype = list[begin].dtype();
    const Shape& shape = list[begin].shape();
    while (end < list.size() && list[end].dtype() == dtype && list[end].shape() == shape) ++end;
    std::string run = begin == 0 ? "" : ", ";
    if (begin == 0 || list[begin - 1].dtype() != dtype) run += str(dtype, " ");
    if (end - begin > 1) run += str(end - begin, " x ");
    run += to_string(ShownShape(shape));
    if (text.size() + run.size() + kRoomForMore > kMaxShownTensors)
      return str(text, ", and ", list.size() - begin, " more");
    text += run;
  }
  return text;
}

/// Calls prepare(operation, pack, options) for each pack of the list; `last` is the last operation. In addition to the
/// fields of one operation, the signature compares the list's length and all dtypes and shapes.
template <class Prepare>
void prepare_packs(CollectiveOperation& last, const char* op, const Tensors& list, const Tensors& results,
                   CollectiveOptions&& options, const Prepare& prepare) {
  if (!options.name.empty()) options.name += ", ";
  options.name += str(list.size(), list.size() == 1 ? " tensor" : " tensors");
  std::string shapes = options.name;
  for (const Tensor& tensor : list) shapes += str(" ", tensor.dtype(), " ", tensor.shape());
  const std::string shown = describe_list(list);
  const std::map<DType, Pack> packs = pack_by_dtype(list);
  for (const auto& [dtype, pack] : packs) {
    const bool is_last = dtype == packs.rbegin()->first;
    auto& operation = is_last ? last : *last.earlier.emplace_back(std::make_shared<CollectiveOperation>());
    prepare(operation, pack, CollectiveOptions(options));
    operation.collective.name_hash = hash_name(shapes);
    operation.collective.tensors = shown;
  }
  bump_versions(op, results);
}

/// Checks lists in which larger[i] has the shape [size(), ...] of smaller[i].
void check_lists(const char* op, const ProcessGroupOptions& group, const Tensors& outputs, const Tensors& inputs,
                 bool outputs_are_larger) {
  TANDEM_CHECK(ValueError, outputs.size() == inputs.size(), op, ": outputs and inputs have ", outputs.size(), " and ",
               inputs.size(), " elements");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Argument input{"inputs", inputs[i], static_cast<int>(i)};
    const Argument output{"outputs", outputs[i], static_cast<int>(i)};
    const Argument& larger = outputs_are_larger ? output : input;
    const Argument& smaller = outputs_are_larger ? input : output;
    check_argument(op, input, group);
    check_writable(op, output, group);
    check_alike(op, larger, smaller);
    check_same_device(op, input, {"inputs", inputs[0], 0});
    Shape wanted = smaller.tensor.shape();
    wanted.insert(0, group.world_size);
    check_shape(op, larger, wanted, smaller);
  }
}

}  // namespace

void prepare_coalesced_in_place(CollectiveOperation& last, const ProcessGroupOptions& group, CollectiveKind kind,
                                const Tensors& tensors, int root, ReduceOp op, CollectiveOptions&& options) {
  const bool reduces = is_reduction(kind);
  const char* const name = reduces ? "all_reduce_coalesced" : "broadcast_coalesced";
  if (!reduces) check_rank(name, "root", root, group);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Argument argument{"tensors", tensors[i], static_cast<int>(i)};
    check_writable(name, argument, group);
    check_same_device(name, argument, {"tensors", tensors[0], 0});
    if (reduces) check_reduce_op(name, op, argument);
  }
  if (tensors.empty()) op = ReduceOp::kSum;  // valid for every dtype
  prepare_packs(last, name, tensors, tensors, std::move(options), [&](auto& operation, const Pack& pack, auto&& o) {
    const Tensor flat = empty({pack.count}, pack.options);
    prepare_in_place(operation, group, kind, flat, root, op, std::move(o));
    const Collective& c = operation.collective;
    add_copies(operation, pack, c.contributes(group.rank) ? &tensors : nullptr, flat,
               c.takes(group.rank) ? &tensors : nullptr, flat);
  });
}

void prepare_coalesced_parts(CollectiveOperation& last, const ProcessGroupOptions& group, CollectiveKind kind,
                             const Tensors& outputs, const Tensors& inputs, ReduceOp op, CollectiveOptions&& options) {
  const bool reduces = is_reduction(kind);
  const char* const name = reduces ? "reduce_scatter_coalesced" : "all_gather_coalesced";
  check_lists(name, group, outputs, inputs, !reduces);
  for (size_t i = 0; reduces && i < outputs.size(); ++i) {
    check_reduce_op(name, op, {"outputs", outputs[i], static_cast<int>(i)});
  }
  if (outputs.empty()) op = ReduceOp::kSum;  // valid for every dtype
  const Tensors& smaller = reduces ? outputs : inputs;
  prepare_packs(last, name, smaller, outputs, std::move(options), [&](auto& operation, const Pack& pack, auto&& o) {
    const Tensor one = empty({pack.count}, pack.options);
    const Tensor all = empty({group.world_size, pack.count}, pack.options);
    const Parts parts = reduces ? Parts(Inputs(all)) : Parts(Outputs(all));
    prepare_parts(operation, group, kind, parts, one, -1, op, std::move(o));
    add_copies(operation, pack, &inputs, reduces ? all : one, &outputs, reduces ? one : all);
  });
}

}}}  // namespace tandem::v0::distributed
