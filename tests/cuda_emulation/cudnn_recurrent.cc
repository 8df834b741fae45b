// cuDNN's functions for recurrent layers: one layer of packed sequences by the standard algorithm. A violation of a
// documented rule ends the process.
#include <cudnn.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <tandem/tests/cuda_emulation/cudnn_handle.h>
#include <tandem/tests/cuda_emulation/cudnn_recurrent.h>
#include <tandem/tests/cuda_emulation/library.h>

struct cudnnTensorStruct {
  cudnnDataType_t type = CUDNN_DATA_DOUBLE;
  std::vector<int> sizes = {};  // without gaps
};
struct cudnnDropoutStruct {
  bool is_set = false;
};
struct cudnnRNNDataStruct {
  cudnnDataType_t type = CUDNN_DATA_DOUBLE;
  int width = 0;
  std::vector<int> lengths = {};
};

using namespace cuda_emulation;
using namespace cuda_emulation::cudnn_objects;
using namespace cuda_emulation::recurrent;

namespace {

constexpr size_t kWorkspaceBytes = 256, kAlignment = 16;

cudnnRNNStruct& checked_rnn(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const char* call) {
  checked_handle(handle, call);
  if (!checked(rnn, call).is_set) fault("a recurrent descriptor that is not set");
  return *rnn;
}

/// The sequences of a descriptor with vectors of the right type and width.
const std::vector<int>& lengths_of(cudnnRNNDataDescriptor_t data, const cudnnRNNStruct& rnn, int width) {
  const cudnnRNNDataStruct& d = checked(data, "cuDNN: a sequence");
  if (d.lengths.empty()) fault("a data descriptor that is not set");
  if (d.type != rnn.type || d.width != width) fault("the type or the width of a sequence does not match the layer");
  return d.lengths;
}

/// A call: its layer, and the checks of its memory.
class Call {
 public:
  Call(const char* name, cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t* device_lengths,
       cudnnRNNDataDescriptor_t x, cudnnRNNDataDescriptor_t y)
      : layer(checked_rnn(handle, rnn, name), lengths_of(x, *rnn, rnn->input)), handle_(handle) {
    if (handle->stream == nullptr) fault("the handle has no stream");
    if (device_lengths != nullptr) fault("lengths in device memory, which since cuDNN 8.9.1 must be null");
    if (lengths_of(y, *rnn, rnn->directions * rnn->hidden) != layer.lengths) {
      fault("input and output have sequences of different lengths");
    }
  }
  /// A state's descriptor and its tensors; of c only for an LSTM.
  void states(cudnnTensorDescriptor_t descriptor, bool is_cell, std::vector<const void*> operands,
              std::vector<const void*> results) {
    if (is_cell && layer.rnn.mode != CUDNN_LSTM) {
      for (const auto& list : {operands, results}) {
        for (const void* p : list) {
          if (p != nullptr) fault("a cell state of a layer that is no LSTM");
        }
      }
      return;
    }
    const cudnnTensorStruct& tensor = checked(descriptor, "cuDNN: a state");
    const std::vector<int> sizes = {layer.rnn.directions, static_cast<int>(layer.batch()), layer.rnn.hidden};
    if (tensor.type != layer.rnn.type || tensor.sizes != sizes) fault("the type or the sizes of a state do not match");
    const char* const what = is_cell ? "a cell state" : "a hidden state";
    for (const void* p : operands) memory(what, p, layer.state_elements(), false);
    for (const void* p : results) memory(what, p, layer.state_elements(), true);
  }
  void memory(const char* what, const void* p, int64_t elements, bool is_result) {
    block(what, p, layer.bytes(elements), size(bytes_of(layer.rnn.type)), is_result);
  }
  void weights(const void* p, size_t num_bytes, bool is_result) {
    if (num_bytes < weight_bytes_of(layer.rnn)) fault("the weight space is too small");
    block("the weight space", p, num_bytes, size(bytes_of(layer.rnn.type)), is_result);
  }
  void spaces(void* workspace, size_t workspace_bytes, void* reserve, size_t reserve_bytes, bool is_training = true) {
    if (workspace_bytes < kWorkspaceBytes) fault("the workspace is too small");
    block("the workspace", workspace, workspace_bytes, kAlignment, true);
    if (!is_training) {
      if (reserve != nullptr || reserve_bytes != 0) fault("inference has no reserve space");
      return;
    }
    if (reserve_bytes < layer.reserve_bytes()) fault("the reserve space is too small");
    block("the reserve space", reserve, reserve_bytes, kAlignment, true);
  }
  template <class F>
  cudnnStatus_t run(F work) {
    compute_on(handle_->stream, [l = layer, work] { work(l); });
    return CUDNN_STATUS_SUCCESS;
  }

  Layer layer;

 private:
  struct Block {
    const char* what;
    const void* data;
    size_t num_bytes;
    bool is_result;
  };
  void block(const char* what, const void* p, size_t num_bytes, size_t alignment, bool is_result) {
    check_device_memory(std::string("cuDNN: ") + what, p, num_bytes, alignment, handle_->device);
    for (const Block& other : blocks_) {
      if (is_result || other.is_result) {
        check_disjoint(std::string("cuDNN: ") + what, p, num_bytes, other.what, other.data, other.num_bytes);
      }
    }
    blocks_.push_back({what, p, num_bytes, is_result});
  }

  cudnnHandle_t handle_;
  std::vector<Block> blocks_;
};

/// The name of a call, with the kind of its products.
std::string name_of(const char* call, cudnnRNNDescriptor_t rnn) {
  const cudnnMathType_t math = checked(rnn, call).math;
  return std::string(call) + (math == CUDNN_FMA_MATH         ? ", fma"
                              : math == CUDNN_TENSOR_OP_MATH ? ", tensor cores"
                                                             : ", tf32");
}

}  // namespace

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* descriptor) {
  TANDEM_RECORD();
  add(descriptor, new cudnnTensorStruct);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) { return destroy(descriptor, __func__); }
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t descriptor, cudnnDataType_t type, int num_dims,
                                         const int sizes[], const int strides[]) {
  TANDEM_RECORD();
  cudnnTensorStruct& tensor = checked(descriptor, __func__);
  tensor.type = type;
  tensor.sizes.assign(sizes, sizes + num_dims);
  int stride = 1;
  for (int d = num_dims; d-- > 0; stride *= sizes[d]) {
    if (strides[d] != stride) fault("a state with gaps");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t* descriptor) {
  TANDEM_RECORD();
  add(descriptor, new cudnnDropoutStruct);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t descriptor) {
  return destroy(descriptor, __func__);
}
cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t descriptor, cudnnHandle_t handle, float dropout, void*,
                                        size_t, unsigned long long) {
  TANDEM_RECORD();
  checked_handle(handle, __func__);
  if (dropout != 0) fault("dropout is not emulated");
  checked(descriptor, __func__).is_set = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t* descriptor) {
  TANDEM_RECORD();
  add(descriptor, new cudnnRNNStruct);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t descriptor) { return destroy(descriptor, __func__); }
cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t descriptor, cudnnRNNAlgo_t algorithm, cudnnRNNMode_t mode,
                                       cudnnRNNBiasMode_t bias, cudnnDirectionMode_t directions,
                                       cudnnRNNInputMode_t input_mode, cudnnDataType_t type, cudnnDataType_t precision,
                                       cudnnMathType_t math, int32_t input_size, int32_t hidden_size,
                                       int32_t projection_size, int32_t num_layers, cudnnDropoutDescriptor_t dropout,
                                       uint32_t flags) {
  TANDEM_RECORD();
  if (!has_cudnn_engines()) return CUDNN_STATUS_NOT_SUPPORTED;
  if (!checked(dropout, __func__).is_set) fault("a dropout descriptor that is not set");
  if (algorithm != CUDNN_RNN_ALGO_STANDARD || input_mode != CUDNN_LINEAR_INPUT || num_layers != 1 ||
      flags != CUDNN_RNN_PADDED_IO_DISABLED || precision != CUDNN_DATA_FLOAT || type == CUDNN_DATA_DOUBLE) {
    fault("only one layer of packed sequences by the standard algorithm in float is emulated");
  }
  if (projection_size != hidden_size) fault("a projection is not emulated");
  if (input_size < 1 || hidden_size < 1) fault("a layer of size 0");
  checked(descriptor, __func__) = {
      true,       mode,       bias == CUDNN_RNN_DOUBLE_BIAS, directions == CUDNN_BIDIRECTIONAL ? 2 : 1, type, math,
      input_size, hidden_size};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t* descriptor) {
  TANDEM_RECORD();
  add(descriptor, new cudnnRNNDataStruct);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t descriptor) {
  return destroy(descriptor, __func__);
}
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t descriptor, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int max_length, int batch, int width,
                                        const int lengths[], void*) {
  TANDEM_RECORD();
  if (layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED) fault("only packed sequences are emulated");
  if (batch < 1 || width < 1 || lengths[0] != max_length || lengths[batch - 1] < 1 ||
      !std::is_sorted(lengths, lengths + batch, std::greater<>())) {
    fault("lengths that are not sorted, or do not begin with the maximum");
  }
  checked(descriptor, __func__) = {type, width, {lengths, lengths + batch}};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, size_t* num_bytes) {
  TANDEM_RECORD();
  *num_bytes = weight_bytes_of(checked_rnn(handle, rnn, __func__));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int32_t pseudo_layer,
                                      size_t weight_bytes, const void* weights, int32_t linear_layer,
                                      cudnnTensorDescriptor_t matrix, void** matrix_address,
                                      cudnnTensorDescriptor_t bias, void** bias_address) {
  TANDEM_RECORD();
  const cudnnRNNStruct& r = checked_rnn(handle, rnn, __func__);
  if (weight_bytes < weight_bytes_of(r)) fault("the weight space is too small");
  if (pseudo_layer < 0 || pseudo_layer >= r.directions) fault("no such layer");
  if (linear_layer < 0 || linear_layer >= 2 * r.gates()) fault("no such linear layer");
  const int part = linear_layer / r.gates();
  const int64_t gate = linear_layer % r.gates();
  const auto find = [&](int p, cudnnTensorDescriptor_t descriptor, void** address) {
    const int64_t begin = offset(r, pseudo_layer, p) + gate * r.hidden * columns(r, p);
    checked(descriptor, __func__) = {r.type, {1, r.hidden, static_cast<int>(columns(r, p))}};
    *address = static_cast<char*>(const_cast<void*>(weights)) + begin * bytes_of(r.type);
  };
  find(part, matrix, matrix_address);
  *bias_address = nullptr;
  if (r.has_bias) find(2 + part, bias, bias_address);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,
                                        cudnnRNNDataDescriptor_t x, size_t* workspace_bytes, size_t* reserve_bytes) {
  TANDEM_RECORD();
  const Layer layer(checked_rnn(handle, rnn, __func__), lengths_of(x, *rnn, rnn->input));
  *workspace_bytes = kWorkspaceBytes;
  if (reserve_bytes != nullptr) *reserve_bytes = mode == CUDNN_FWD_MODE_TRAINING ? layer.reserve_bytes() : 0;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,
                              const int32_t device_lengths[], cudnnRNNDataDescriptor_t x_descriptor, const void* x,
                              cudnnRNNDataDescriptor_t y_descriptor, void* y, cudnnTensorDescriptor_t h_descriptor,
                              const void* hx, void* hy, cudnnTensorDescriptor_t c_descriptor, const void* cx, void* cy,
                              size_t weight_bytes, const void* weights, size_t workspace_bytes, void* workspace,
                              size_t reserve_bytes, void* reserve) {
  TANDEM_RECORD_AS(name_of(__func__, rnn));
  Call call(__func__, handle, rnn, device_lengths, x_descriptor, y_descriptor);
  call.memory("the input", x, call.layer.rows() * call.layer.rnn.input, false);
  call.memory("the output", y, call.layer.output_elements(), true);
  call.states(h_descriptor, false, {hx}, {hy});
  call.states(c_descriptor, true, {cx}, {cy});
  call.weights(weights, weight_bytes, false);
  call.spaces(workspace, workspace_bytes, reserve, reserve_bytes, mode == CUDNN_FWD_MODE_TRAINING);
  return call.run([=](const Layer& l) { forward(l, x, y, hx, hy, cx, cy, weights, reserve); });
}

cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t device_lengths[],
                                      cudnnRNNDataDescriptor_t y_descriptor, const void* y, const void* dy,
                                      cudnnRNNDataDescriptor_t x_descriptor, void* dx,
                                      cudnnTensorDescriptor_t h_descriptor, const void* hx, const void* dhy, void* dhx,
                                      cudnnTensorDescriptor_t c_descriptor, const void* cx, const void* dcy, void* dcx,
                                      size_t weight_bytes, const void* weights, size_t workspace_bytes, void* workspace,
                                      size_t reserve_bytes, void* reserve) {
  TANDEM_RECORD_AS(name_of(__func__, rnn));
  Call call(__func__, handle, rnn, device_lengths, x_descriptor, y_descriptor);
  call.memory("the output", y, call.layer.output_elements(), false);
  call.memory("the output's gradient", dy, call.layer.output_elements(), false);
  call.memory("the input's gradient", dx, call.layer.rows() * call.layer.rnn.input, true);
  call.states(h_descriptor, false, {hx, dhy}, {dhx});
  call.states(c_descriptor, true, {cx, dcy}, {dcx});
  call.weights(weights, weight_bytes, false);
  call.spaces(workspace, workspace_bytes, reserve, reserve_bytes);
  return call.run([=](const Layer& l) { backward_data(l, y, dy, dx, hx, dhy, dhx, dcy, dcx, weights, reserve); });
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnWgradMode_t grad_mode,
                                         const int32_t device_lengths[], cudnnRNNDataDescriptor_t x_descriptor,
                                         const void* x, cudnnTensorDescriptor_t h_descriptor, const void* hx,
                                         cudnnRNNDataDescriptor_t y_descriptor, const void* y, size_t weight_bytes,
                                         void* weights_grad, size_t workspace_bytes, void* workspace,
                                         size_t reserve_bytes, void* reserve) {
  TANDEM_RECORD_AS(name_of(__func__, rnn));
  if (grad_mode != CUDNN_WGRAD_MODE_ADD) fault("gradients of weights can only be added");
  Call call(__func__, handle, rnn, device_lengths, x_descriptor, y_descriptor);
  call.memory("the input", x, call.layer.rows() * call.layer.rnn.input, false);
  call.memory("the output", y, call.layer.output_elements(), false);
  call.states(h_descriptor, false, {hx}, {});
  call.weights(weights_grad, weight_bytes, true);
  call.spaces(workspace, workspace_bytes, reserve, reserve_bytes);
  return call.run([=](const Layer& l) { backward_weights(l, x, hx, y, weights_grad, reserve); });
}
