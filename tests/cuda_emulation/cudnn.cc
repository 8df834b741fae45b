// cuDNN's graph API for a convolution, to which a bias may be added. Descriptors are checked when they are finalized
// and executed; a violation of a documented rule ends the process.
#include <cudnn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <cuda_emulation/control.h>
#include <tandem/base/half.h>
#include <tandem/tests/cuda_emulation/cudnn_handle.h>
#include <tandem/tests/cuda_emulation/library.h>
#include <tandem/tests/cuda_emulation/runtime.h>

/// Stores the attributes as they were set.
struct cudnnBackendDescriptor {
  struct Value {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::vector<char> bytes;
  };
  cudnnBackendDescriptorType_t type;
  bool is_final = false;
  std::map<cudnnBackendAttributeName_t, Value> values;
  int64_t engine = -1;  // of an engine and its configuration
};

namespace cuda_emulation {
namespace {

using namespace cudnn_objects;
using Descriptor = cudnnBackendDescriptor;

constexpr size_t kVersion = 91900;

/// The engines, in the order of the heuristic; the last one is the fallback's.
struct Engine {
  std::vector<cudnnBackendNumericalNote_t> notes;
  int64_t workspace_bytes;
};
const Engine kEngines[] = {{{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, 0},
                           {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, int64_t{1} << 20},
                           {{CUDNN_NUMERICAL_NOTE_WINOGRAD}, 4096},
                           {{}, 4096},
                           {{CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}, 0}};
constexpr int64_t kNumEngines = std::size(kEngines);
constexpr size_t kWorkspaceAlignment = 16;

struct Objects {
  std::mutex mutex;
  std::set<const void*> all;  // handles and descriptors that exist
};

Objects& objects() {
  static Objects* const all = new Objects;  // never destroyed: libraries may be called after main
  return *all;
}

size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    default: return 4;
  }
}

/// The attributes of each type of descriptor that must be set, with their types.
struct Required {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
};
const std::vector<Required>& required(cudnnBackendDescriptorType_t type) {
  using Names = std::vector<Required>;
  static const auto operation = [](int first, int conv, int w, int x, int y) {
    const auto name = [](int number) { return static_cast<cudnnBackendAttributeName_t>(number); };
    return Names{{name(first), CUDNN_TYPE_FLOAT},
                 {name(first + 1), CUDNN_TYPE_FLOAT},
                 {name(conv), CUDNN_TYPE_BACKEND_DESCRIPTOR},
                 {name(w), CUDNN_TYPE_BACKEND_DESCRIPTOR},
                 {name(x), CUDNN_TYPE_BACKEND_DESCRIPTOR},
                 {name(y), CUDNN_TYPE_BACKEND_DESCRIPTOR}};
  };
  static const std::map<cudnnBackendDescriptorType_t, Names> all = {
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
       {{CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE},
        {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE}}},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR},
        {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
        {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
        {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR}}},
      {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
       {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64},
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64}}},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
       {{CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE},
        {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR}}},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
       {{CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR},
        {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE}}},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, operation(700, 702, 703, 704, 705)},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, operation(706, 708, 709, 710, 711)},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, operation(712, 714, 715, 716, 717)},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
       {{CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR},
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE}}},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
       {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR}}},
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR,
       {{CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64},
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64}}}};
  const auto found = all.find(type);
  if (found == all.end()) fault("descriptors of type " + std::to_string(type) + " cannot be finalized");
  return found->second;
}

template <class T>
std::vector<T> values_of(const Descriptor& d, int name) {
  const auto found = d.values.find(static_cast<cudnnBackendAttributeName_t>(name));
  if (found == d.values.end()) fault("attribute " + std::to_string(name) + " is not set");
  std::vector<T> all(static_cast<size_t>(found->second.count));
  std::memcpy(all.data(), found->second.bytes.data(), found->second.bytes.size());
  return all;
}

template <class T>
T value_of(const Descriptor& d, int name) {
  const std::vector<T> all = values_of<T>(d, name);
  if (all.size() != 1) fault("attribute " + std::to_string(name) + " has " + std::to_string(all.size()) + " values");
  return all[0];
}

/// The finalized descriptors that are the values of an attribute.
std::vector<Descriptor*> children_of(const Descriptor& d, int name) {
  const auto all = values_of<cudnnBackendDescriptor_t>(d, name);
  for (Descriptor* child : all) {
    if (!checked(child, "cuDNN: a descriptor in an attribute").is_final) {
      fault("attribute " + std::to_string(name) + " is a descriptor that is not finalized");
    }
  }
  return all;
}

Descriptor& child_of(const Descriptor& d, int name) {
  const std::vector<Descriptor*> all = children_of(d, name);
  if (all.size() != 1) fault("attribute " + std::to_string(name) + " has " + std::to_string(all.size()) + " values");
  return *all[0];
}

struct TensorInfo {
  int64_t id, alignment;
  cudnnDataType_t type;
  bool is_virtual;
  std::vector<int64_t> sizes, strides;

  explicit TensorInfo(const Descriptor& d)
      : id(value_of<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID)),
        alignment(value_of<int64_t>(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)),
        type(value_of<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE)),
        is_virtual(value_of<char>(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0),
        sizes(values_of<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS)),
        strides(values_of<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES)) {
    if (sizes.size() != 4 || strides.size() != 4) fault("a tensor needs four sizes and strides");
    if (std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 1; })) fault("a tensor of size 0");
    if (alignment < 1 || (alignment & (alignment - 1)) != 0) fault("an alignment that is no power of two");
    if (strides[1] != 1 || strides[3] != sizes[1] || strides[2] != sizes[3] * strides[3] ||
        strides[0] != sizes[2] * strides[2]) {
      fault("strides that are not those of channels-last tensors");
    }
  }
  int64_t element_bytes() const { return bytes_of(type); }
  int64_t numel() const { return sizes[0] * sizes[1] * sizes[2] * sizes[3]; }
};

struct Convolution {
  int pass;  // 0: y, 1: dx, 2: dw
  TensorInfo w, x, y;
  std::vector<int64_t> padding, end_padding, stride, dilation;

  explicit Convolution(const Descriptor& op) : Convolution(op, first_name(op.type)) {}

 private:
  static int first_name(cudnnBackendDescriptorType_t type) {
    return type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? 700
           : type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? 706
                                                                                  : 712;
  }
  Convolution(const Descriptor& op, int first)
      : pass((first - 700) / 6), w(child_of(op, first + 3)), x(child_of(op, first + 4)), y(child_of(op, first + 5)) {
    const Descriptor& conv = child_of(op, first + 2);
    padding = values_of<int64_t>(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    end_padding = values_of<int64_t>(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
    stride = values_of<int64_t>(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    dilation = values_of<int64_t>(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS);
    if (value_of<int64_t>(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) != 2) fault("only two spatial dimensions");
    if (value_of<cudnnDataType_t>(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT) {
      fault("convolutions of float and half types are summed in float");
    }
    if (value_of<cudnnConvolutionMode_t>(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION) {
      fault("only cross-correlation is emulated");
    }
    if (value_of<float>(op, first) != 1 || value_of<float>(op, first + 1) != 0) fault("alpha is not 1 or beta not 0");
    for (const TensorInfo* t : {&x, &y}) {
      if (t->type != w.type && !t->is_virtual) fault("tensors of different types");
    }
    if (std::set<int64_t>{x.id, w.id, y.id}.size() != 3) fault("two tensors have the same id");
    if (x.sizes[0] != y.sizes[0] || w.sizes[0] != y.sizes[1] || x.sizes[1] % w.sizes[1] != 0 ||
        w.sizes[0] % (x.sizes[1] / w.sizes[1]) != 0) {
      fault("the sizes of input, filters and output do not match");
    }
    for (size_t i = 0; i < 2; ++i) {
      const int64_t span = (w.sizes[2 + i] - 1) * dilation[i] + 1;
      if (padding[i] < 0 || end_padding[i] < 0 || stride[i] < 1 || dilation[i] < 1 ||
          y.sizes[2 + i] != (x.sizes[2 + i] + padding[i] + end_padding[i] - span) / stride[i] + 1) {
        fault("the output's size does not follow from the input's");
      }
    }
  }
};

std::vector<double> load(const TensorInfo& tensor, const void* data) {
  return load_elements(tensor.type, data, static_cast<size_t>(tensor.numel()));
}

void store(const TensorInfo& tensor, const std::vector<double>& values, void* data) {
  store_elements(tensor.type, values, data);
}

/// The addition of a bias to the result of a convolution.
struct Addition {
  TensorInfo a, bias, sum;

  explicit Addition(const Descriptor& op)
      : a(child_of(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC)),
        bias(child_of(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC)),
        sum(child_of(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC)) {
    const Descriptor& mode = child_of(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    if (value_of<cudnnPointwiseMode_t>(mode, CUDNN_ATTR_POINTWISE_MODE) != CUDNN_POINTWISE_ADD ||
        value_of<cudnnDataType_t>(mode, CUDNN_ATTR_POINTWISE_MATH_PREC) != CUDNN_DATA_FLOAT) {
      fault("only additions in float are emulated");
    }
    if (a.sizes != sum.sizes || bias.sizes != std::vector<int64_t>{1, a.sizes[1], 1, 1}) {
      fault("the sizes of an addition do not match");
    }
  }
};

/// A graph: a convolution, and perhaps the addition of a bias to its virtual result.
struct ConvGraph {
  Convolution conv;
  std::optional<Addition> add;

  explicit ConvGraph(const std::vector<Descriptor*>& ops) : conv(*ops.at(0)) {
    if (ops.size() > 2) fault("a graph of more than two operations is not emulated");
    if (ops.size() == 2) {
      add.emplace(*ops[1]);
      if (add->a.id != products().id) fault("the bias is not added to the convolution's result");
    }
    if (products().is_virtual != add.has_value())
      fault("a virtual result that no operation reads, or a read one that is not");
    if (conv.w.is_virtual || (conv.pass == 0 ? conv.x : conv.y).is_virtual) fault("a virtual operand");
  }
  const TensorInfo& input() const { return add && conv.pass == 1 ? add->sum : conv.x; }
  const TensorInfo& output() const { return add && conv.pass == 0 ? add->sum : conv.y; }

 private:
  const TensorInfo& products() const { return conv.pass == 0 ? conv.y : conv.pass == 1 ? conv.x : conv.w; }
};

/// Computes y, dx or dw from the other two, in float64; y or dx plus a bias if b_data is not null.
void convolve(const ConvGraph& graph, void* x_data, void* w_data, void* y_data, void* b_data) {
  const Convolution& c = graph.conv;
  std::vector<double> x = load(graph.input(), x_data), w = load(c.w, w_data), y = load(graph.output(), y_data);
  std::vector<double>& result = c.pass == 0 ? y : c.pass == 1 ? x : w;
  std::fill(result.begin(), result.end(), 0);
  const int64_t channels = c.w.sizes[1], filters = c.w.sizes[0] / (c.x.sizes[1] / channels);
  for (int64_t n = 0; n < c.y.sizes[0]; ++n) {
    for (int64_t row = 0; row < c.y.sizes[2]; ++row) {
      for (int64_t column = 0; column < c.y.sizes[3]; ++column) {
        for (int64_t filter = 0; filter < c.w.sizes[0]; ++filter) {
          double& out =
              y[static_cast<size_t>(((n * c.y.sizes[2] + row) * c.y.sizes[3] + column) * c.y.sizes[1] + filter)];
          for (int64_t r = 0; r < c.w.sizes[2]; ++r) {
            const int64_t from_row = row * c.stride[0] - c.padding[0] + r * c.dilation[0];
            if (from_row < 0 || from_row >= c.x.sizes[2]) continue;
            for (int64_t s = 0; s < c.w.sizes[3]; ++s) {
              const int64_t from_column = column * c.stride[1] - c.padding[1] + s * c.dilation[1];
              if (from_column < 0 || from_column >= c.x.sizes[3]) continue;
              double* const in = x.data() +
                                 ((n * c.x.sizes[2] + from_row) * c.x.sizes[3] + from_column) * c.x.sizes[1] +
                                 filter / filters * channels;
              double* const tap = w.data() + ((filter * c.w.sizes[2] + r) * c.w.sizes[3] + s) * channels;
              for (int64_t i = 0; i < channels; ++i) {
                if (c.pass == 0) out += in[i] * tap[i];
                if (c.pass == 1) in[i] += out * tap[i];
                if (c.pass == 2) tap[i] += out * in[i];
              }
            }
          }
        }
      }
    }
  }
  if (graph.add) {
    const std::vector<double> bias = load(graph.add->bias, b_data);
    for (size_t i = 0; i < result.size(); ++i) result[i] += bias[i % bias.size()];
  }
  store(c.pass == 0   ? graph.output()
        : c.pass == 1 ? graph.input()
                      : c.w,
        result,
        c.pass == 0   ? y_data
        : c.pass == 1 ? x_data
                      : w_data);
}

/// The engines [first, last) of a heuristic: the engines of mode A, or the fallback engine.
std::pair<int64_t, int64_t> engines_of(const Descriptor& heuristic) {
  const bool is_fallback =
      value_of<cudnnBackendHeurMode_t>(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_FALLBACK;
  return is_fallback ? std::pair{kNumEngines - 1, kNumEngines} : std::pair{int64_t{0}, kNumEngines - 1};
}

void check_final(const Descriptor& d) {
  for (const Required& one : required(d.type)) {
    const auto found = d.values.find(one.name);
    if (found == d.values.end()) fault("attribute " + std::to_string(one.name) + " is not set");
    if (found->second.type != one.type) fault("attribute " + std::to_string(one.name) + " has the wrong type");
    if (one.type == CUDNN_TYPE_BACKEND_DESCRIPTOR) children_of(d, one.name);
  }
  if (d.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) TensorInfo{d};
  if (d.type >= CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR &&
      d.type <= CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
    Convolution{d};
  }
  if (d.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) Addition{d};
  if (d.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) ConvGraph{children_of(d, CUDNN_ATTR_OPERATIONGRAPH_OPS)};
  if (d.type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR &&
      values_of<int64_t>(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).size() !=
          values_of<void*>(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size()) {
    fault("a variant pack with unequal numbers of ids and pointers");
  }
}

}  // namespace

void cudnn_objects::insert(const void* object) {
  std::lock_guard lock(objects().mutex);
  objects().all.insert(object);
}
void cudnn_objects::check(const void* object, const char* call) {
  std::lock_guard lock(objects().mutex);
  if (objects().all.count(object) == 0) end_process(std::string(call) + ": an argument does not exist");
}
void cudnn_objects::erase(const void* object) {
  std::lock_guard lock(objects().mutex);
  objects().all.erase(object);
}

std::vector<double> load_elements(cudnnDataType_t type, const void* data, size_t count) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = type == CUDNN_DATA_FLOAT  ? static_cast<const float*>(data)[i]
                : type == CUDNN_DATA_HALF ? float{static_cast<const tandem::Half*>(data)[i]}
                                          : float{static_cast<const tandem::BFloat16*>(data)[i]};
  }
  return values;
}

void store_elements(cudnnDataType_t type, const std::vector<double>& values, void* data) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(values[i]);
    if (type == CUDNN_DATA_FLOAT) {
      static_cast<float*>(data)[i] = value;
    } else if (type == CUDNN_DATA_HALF) {
      static_cast<tandem::Half*>(data)[i] = tandem::Half(value);
    } else {
      static_cast<tandem::BFloat16*>(data)[i] = tandem::BFloat16(value);
    }
  }
}

const cudnnContext& checked_handle(cudnnHandle_t handle, const char* call) { return checked(handle, call); }

bool has_cudnn_engines() {
  static const bool has = [] {
    const char* const value = std::getenv("TANDEM_EMULATED_CUDNN");
    return value == nullptr || std::string(value) != "0";
  }();
  return has;
}

}  // namespace cuda_emulation

using namespace cuda_emulation;
using namespace cuda_emulation::cudnn_objects;

const char* cudnnGetErrorString(cudnnStatus_t status) {
  static thread_local std::string text;
  text = "CUDNN_STATUS " + std::to_string(status);
  return text.c_str();
}
void cudnnGetLastErrorString(char* message, size_t max_bytes) { std::snprintf(message, max_bytes, "emulated"); }
size_t cudnnGetVersion() { return kVersion; }

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  TANDEM_RECORD();
  add(handle, new cudnnContext{current_device()});
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  TANDEM_RECORD();
  if (device_of(__func__, stream) != checked(handle, __func__).device) fault("a stream of another device");
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  TANDEM_RECORD();
  auto* const made = new Descriptor;
  made->type = type;
  add(descriptor, made);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return destroy(descriptor, __func__);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  TANDEM_RECORD();
  Descriptor& d = checked(descriptor, __func__);
  if (d.is_final) fault("an attribute of a finalized descriptor is set");
  const std::vector<Required>& names = required(d.type);
  if (std::none_of(names.begin(), names.end(), [name](const Required& one) { return one.name == name; })) {
    fault("attribute " + std::to_string(name) + " does not belong to a descriptor of type " + std::to_string(d.type));
  }
  const auto* const bytes = static_cast<const char*>(values);
  d.values[name] = {type, count, {bytes, bytes + static_cast<size_t>(count) * size_of(type)}};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  TANDEM_RECORD();
  Descriptor& d = checked(descriptor, __func__);
  check_final(d);
  if (d.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR && !has_cudnn_engines()) return CUDNN_STATUS_NOT_SUPPORTED;
  d.is_final = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t* count, void* values) {
  TANDEM_RECORD();
  Descriptor& d = checked(descriptor, __func__);
  if (!d.is_final) fault("an attribute of a descriptor that is not finalized is read");
  const auto one_integer = [&](int64_t value) {
    if (type != CUDNN_TYPE_INT64 || most < 1) fault("the attribute is one int64");
    *static_cast<int64_t*>(values) = value;
    *count = 1;
  };
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      const auto [begin, end] = engines_of(d);
      *count = end - begin;
      for (int64_t i = 0; i < std::min(most, end - begin); ++i) {
        Descriptor& config = checked(static_cast<cudnnBackendDescriptor_t*>(values)[i], __func__);
        if (config.type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) fault("a result that is no engine configuration");
        config.engine = begin + i;
        config.values[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] = d.values.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        config.is_final = true;
      }
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
      Descriptor& engine = checked(*static_cast<cudnnBackendDescriptor_t*>(values), __func__);
      if (engine.type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) fault("the result is no engine");
      engine.engine = d.engine;
      engine.is_final = true;
      *count = 1;
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX: one_integer(d.engine); return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: {
      const auto& notes = kEngines[d.engine].notes;
      *count = static_cast<int64_t>(notes.size());
      std::copy_n(notes.begin(), std::min<size_t>(notes.size(), static_cast<size_t>(most)),
                  static_cast<cudnnBackendNumericalNote_t*>(values));
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      one_integer(kEngines[child_of(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine].workspace_bytes);
      return CUDNN_STATUS_SUCCESS;
    default: fault("attribute " + std::to_string(name) + " is not emulated");
  }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variant_pack) {
  const Descriptor& p = checked(plan, __func__);
  if (!p.is_final) fault("a plan that is not finalized");
  const Descriptor& config = child_of(p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  TANDEM_RECORD_AS("cudnnBackendExecute, engine " + std::to_string(config.engine));

  const int device = checked(handle, __func__).device;
  if (value_of<cudnnHandle_t>(p, CUDNN_ATTR_EXECUTION_PLAN_HANDLE) != handle) fault("a plan of another handle");
  if (handle->stream == nullptr) fault("the handle has no stream");
  const ConvGraph graph(
      children_of(child_of(config, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), CUDNN_ATTR_OPERATIONGRAPH_OPS));
  const Descriptor& pack = checked(variant_pack, __func__);
  if (!pack.is_final) fault("a variant pack that is not finalized");
  const std::vector<int64_t> ids = values_of<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const std::vector<void*> pointers = values_of<void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  const auto data_of = [&](const TensorInfo& tensor, const char* what) {
    const auto found = std::find(ids.begin(), ids.end(), tensor.id);
    if (found == ids.end()) fault(std::string("no pointer for ") + what);
    void* const data = pointers[static_cast<size_t>(found - ids.begin())];
    check_device_memory(std::string("cuDNN: ") + what, data,
                        static_cast<size_t>(tensor.numel() * tensor.element_bytes()),
                        static_cast<size_t>(tensor.alignment), device);
    return data;
  };
  void* const x = data_of(graph.input(), "the input");
  void* const w = data_of(graph.conv.w, "the filters");
  void* const y = data_of(graph.output(), "the output");
  void* const b = graph.add ? data_of(graph.add->bias, "the bias") : nullptr;
  std::vector<std::tuple<const char*, void*, size_t>> memory;
  const auto add_memory = [&](const char* what, void* data, const TensorInfo& t) {
    memory.emplace_back(what, data, static_cast<size_t>(t.numel() * t.element_bytes()));
  };
  add_memory("the input", x, graph.input());
  add_memory("the filters", w, graph.conv.w);
  add_memory("the output", y, graph.output());
  if (graph.add) add_memory("the bias", b, graph.add->bias);
  if (const int64_t needed = kEngines[config.engine].workspace_bytes; needed != 0) {
    void* const workspace = value_of<void*>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    check_device_memory("cuDNN: the workspace", workspace, static_cast<size_t>(needed), kWorkspaceAlignment, device);
    memory.emplace_back("the workspace", workspace, static_cast<size_t>(needed));
  }
  for (size_t i = 0; i < memory.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const auto& [what_a, a, a_bytes] = memory[i];
      const auto& [what_b, other, b_bytes] = memory[j];
      check_disjoint(std::string("cuDNN: ") + what_a, a, a_bytes, what_b, other, b_bytes);
    }
  }
  compute_on(handle->stream, [graph, x, w, y, b] { convolve(graph, x, w, y, b); });
  return CUDNN_STATUS_SUCCESS;
}
