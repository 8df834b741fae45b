#include <tandem/ops/common/common.h>

#include <algorithm>
#include <iterator>

namespace tandem { inline namespace v0 { namespace ops {

namespace {

/// Appends `text`, padded with spaces to `width` characters.
void append_padded(std::string& out, const std::string& text, size_t width) {
  out += text;
  out.append(width - std::min(width, text.size()), ' ');
}

[[noreturn]] void throw_undefined(const char* op, OperandSpan operands) {
  std::string names;
  int count = 0;
  for (const Operand& operand : operands) {
    if (!operand.tensor.defined()) names += str(count++ == 0 ? "" : " and ", operand.name);
  }
  throw StateError(
      with_module_scope(operand_error(op, names + (count == 1 ? " is undefined" : " are undefined"), operands)));
}

[[noreturn]] void throw_different_devices(const char* op, OperandSpan operands) {
  Device home;
  int64_t most = 0;
  for (const Operand& candidate : operands) {
    const auto on_it = [&](const Operand& operand) { return operand.tensor.device() == candidate.tensor.device(); };
    const int64_t count = std::count_if(operands.begin(), operands.end(), on_it);
    if (count > most) {
      most = count;
      home = candidate.tensor.device();
    }
  }
  std::string moves;
  std::vector<bool> marked;
  for (const Operand& operand : operands) {
    marked.push_back(operand.tensor.device() != home);
    if (marked.back()) moves += str(moves.empty() ? "" : " and ", operand.name, ".to(", home, ")");
  }
  const bool one = std::count(marked.begin(), marked.end(), true) == 1;
  throw DeviceError(with_module_scope(operand_error(
      op, "operands are on different devices", operands, marked,
      str("move ", one ? "it" : "them", " with ", moves, ", or move the module with model.to(", home, ")"))));
}

/// The context, with a new trace span of the operation.
KernelContext traced(const char* op, Device device, OperandSpan operands) {
  int64_t bytes = 0;
  for (const Operand& operand : operands) bytes += operand.tensor.num_bytes();
  return {device, TraceSpan(op, "op", bytes), stream_for(device)};
}

}  // namespace

std::string operand_error(const char* op, const std::string& problem, OperandSpan operands,
                          const std::vector<bool>& marked, const std::string& hint) {
  struct Line {
    std::string columns[4];  // name, device, dtype, shape
  };
  std::vector<Line> lines;
  size_t width[4] = {};
  for (const Operand& operand : operands) {
    const Tensor& t = operand.tensor;
    Line line{{operand.name, "undefined", "", ""}};
    if (t.defined()) line = {{operand.name, to_string(t.device()), to_string(t.dtype()), to_string(t.shape())}};
    for (int c = 0; c < 4; ++c) width[c] = std::max(width[c], line.columns[c].size());
    lines.push_back(std::move(line));
  }
  std::string out = str(op, ": ", problem);
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string text = "  ";
    append_padded(text, lines[i].columns[0], width[0] + 2);
    append_padded(text, lines[i].columns[1], width[1] + 2);
    append_padded(text, lines[i].columns[2], width[2] + 1);
    append_padded(text, lines[i].columns[3], width[3] + 2);
    if (i < marked.size() && marked[i]) text += "<- differs";
    text.erase(text.find_last_not_of(' ') + 1);
    out += '\n' + text;
  }
  if (!hint.empty()) out += "\n  " + hint;
  return out;
}

KernelContext check_same_device(const char* op, OperandSpan operands) {
  for (const Operand& operand : operands) {
    if (!operand.tensor.defined()) [[unlikely]]
      throw_undefined(op, operands);
  }
  const Device device = operands.begin()->tensor.device();
  for (const Operand& operand : operands) {
    if (operand.tensor.device() != device) [[unlikely]]
      throw_different_devices(op, operands);
  }
  if (!trace_enabled()) [[likely]]
    return kernel_context(device);
  return traced(op, device, operands);
}

KernelContext check_same_device_list(const char* op, const std::vector<Tensor>& tensors) {
  const Tensor& first = tensors.front();
  const auto is_on_first_device = [&](const Tensor& tensor) {
    return tensor.defined() && tensor.device() == first.device();
  };
  if (first.defined() && std::all_of(tensors.begin(), tensors.end(), is_on_first_device)) {
    return check_same_device(op, {{"tensors[0]", first}});
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < tensors.size(); ++i) names.push_back(str("tensors[", i, ']'));
  std::vector<Operand> operands;
  for (size_t i = 0; i < tensors.size(); ++i) operands.push_back({names[i].c_str(), tensors[i]});
  return check_same_device(op, operands);
}

void check_same_dtype(const char* op, OperandSpan operands) {
  const DType dtype = operands.begin()->tensor.dtype();
  const auto differs = [&](const Operand& operand) { return operand.tensor.dtype() != dtype; };
  if (std::none_of(operands.begin(), operands.end(), differs)) [[likely]]
    return;
  std::vector<bool> marked;
  std::transform(operands.begin(), operands.end(), std::back_inserter(marked), differs);
  throw DTypeError(with_module_scope(operand_error(op, "operands have different dtypes", operands, marked)));
}

void check_floating(const char* op, Operand operand) {
  TANDEM_CHECK(DTypeError, is_floating_point(operand.tensor.dtype()),
               operand_error(op, str(operand.name, " must be floating"), {operand}));
}

Shape broadcast_shape(const char* op, OperandSpan operands) {
  Shape result = operands.front().tensor.shape();
  for (const Operand& operand : operands) {
    const Shape& shape = operand.tensor.shape();
    if (shape == result) continue;
    while (result.size() < shape.size()) result.insert(0, 1);
    const size_t skip = result.size() - shape.size();
    for (size_t d = 0; d < shape.size(); ++d) {
      int64_t& size = result[skip + d];
      if (size == 1) size = shape[d];
      TANDEM_CHECK(ShapeError, shape[d] == size || shape[d] == 1,
                   operand_error(op, "shapes do not broadcast", operands));
    }
  }
  return result;
}

Shape broadcast_strides(const Tensor& tensor, const Shape& shape) {
  const Shape& sizes = tensor.shape();
  const size_t skip = shape.size() - sizes.size();
  Shape strides(shape.size(), 0);
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1) strides[skip + d] = tensor.strides()[d];
  }
  return strides;
}

DType result_dtype(const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return a.dtype();
  if ((a.dim() == 0) == (b.dim() == 0)) return promote(a.dtype(), b.dtype());
  const DType with_dims = a.dim() == 0 ? b.dtype() : a.dtype();
  const DType zero_dim = a.dim() == 0 ? a.dtype() : b.dtype();
  return result_dtype(with_dims, zero_dim);
}

DType result_dtype(DType tensor, DType number) {
  const auto kind = [](DType dtype) { return dtype == kBool ? 0 : is_floating_point(dtype) ? 2 : 1; };
  return kind(number) > kind(tensor) ? number : tensor;
}

namespace {

Shape channels_last_strides(const Shape& shape) {
  const int64_t channels = shape[1], width = shape[3];
  return {shape[2] * width * channels, 1, width * channels, channels};
}

}  // namespace

bool is_channels_last(const Tensor& tensor) {
  if (tensor.dim() != 4) return false;
  const Shape wanted = channels_last_strides(tensor.shape());
  for (size_t d = 0; d < 4; ++d) {
    if (tensor.shape()[d] != 1 && tensor.strides()[d] != wanted[d]) return false;
  }
  return true;
}

Tensor channels_last(const Tensor& tensor) {
  if (is_channels_last(tensor)) return tensor;
  const Tensor copy = empty_channels_last(tensor.shape(), tensor.options());
  primitives::copy(tensor, copy);
  return copy;
}

Tensor empty_channels_last(const Shape& shape, TensorOptions options) {
  const Tensor memory = empty(shape, options);
  return make_view(memory.storage(), options.dtype, shape, channels_last_strides(shape), 0);
}

Tensor converted(const Tensor& tensor, DType dtype) {
  if (!tensor.defined() || tensor.dtype() == dtype) return tensor;
  const Tensor copy = empty_preserving_layout(tensor, dtype);
  primitives::copy(tensor, copy);
  return copy;
}

Tensor row_major(const Tensor& tensor) {
  if (!tensor.defined() || tensor.is_contiguous()) return tensor;
  const Tensor copy = empty(tensor.shape(), tensor.options());
  primitives::copy(tensor, copy);
  return copy;
}

Tensor scratch_memory(int64_t num_bytes, Device device) {
  return num_bytes == 0 ? Tensor() : empty({num_bytes}, {kUInt8, device});
}

void* data_or_null(const Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; }

}}}  // namespace tandem::v0::ops
